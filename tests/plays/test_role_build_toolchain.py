"""What the role build_toolchain finds missing on a node, computed by Ansible from the role's own
variables."""

from __future__ import annotations

import json
import re

from fakes.role_play import PROJECT, answer_of, environment

TOOLS = {
    "has_compiler": True,
    "has_ninja": True,
    "make": {"path": "/usr/bin/make"},
    "python_headers": True,
    "has_nvcc": True,
}
NVCC = {"path": "/usr/local/cuda/bin/nvcc", "version": "12.6.85"}
CASES = {
    "another minor release of CUDA alone": (
        {**TOOLS, "nvcc": NVCC},
        [{"version": "12.6.3", "nvcc": True}],
        ["cuda-toolkit-12-8"],
    ),
    "torch's release beside the default one": (
        {**TOOLS, "nvcc": NVCC},
        [{"version": "12.6.3", "nvcc": True}, {"version": "12.8", "nvcc": True}],
        [],
    ),
    "torch's release without its nvcc": (
        {**TOOLS, "nvcc": NVCC},
        [{"version": "12.8", "nvcc": False}],
        ["cuda-toolkit-12-8"],
    ),
    "torch's release as the default one": (
        {**TOOLS, "nvcc": {**NVCC, "version": "12.8.93"}},
        None,
        [],
    ),
    "nothing": (
        {"has_nvcc": False, "has_ninja": False},
        None,
        ["g++", "ninja-build", "make", "python3-dev", "cuda-toolkit-12-8"],
    ),
}


def test_what_is_missing_is_told_by_the_nvcc_of_torchs_own_release(tmp_path):
    absent = dict.fromkeys(("has_compiler", "make", "python_headers", "nvcc"))
    facts = {
        name: {
            "node_facts": {
                "sections": {
                    "node": {"os": {"family": "debian"}},
                    "cuda": {"toolkits": toolkits, "build_tools": {**absent, **tools}},
                }
            }
        }
        for name, (tools, toolkits, _missing) in CASES.items()
    }
    tasks = [
        {
            "ansible.builtin.debug": {"var": "__build_toolchain_missing"},
            "vars": {"__build_toolchain_node": found},
        }
        for found in facts.values()
    ]
    known = {"unhang_policy": {"torch": {"cuda": "12.8"}}, "build_toolchain_nvcc_packages": []}
    files = [str(PROJECT / "roles/build_toolchain/vars/main.yml")]
    (tmp_path / "play.yml").write_text(
        json.dumps(
            [
                {
                    "hosts": "localhost",
                    "gather_facts": False,
                    "vars": known,
                    "vars_files": files,
                    "tasks": tasks,
                }
            ]
        )
    )
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    done = answer_of(command, environment(tmp_path))
    found = [
        json.loads(text)
        for text in re.findall(r'"__build_toolchain_missing": (\[.*?\])', done.stdout, re.DOTALL)
    ]
    assert dict(zip(CASES, found, strict=True)) == {
        name: missing for name, (_tools, _toolkits, missing) in CASES.items()
    }, done.stdout + done.stderr
