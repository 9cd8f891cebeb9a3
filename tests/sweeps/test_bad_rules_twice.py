"""What the tests of the catalogue refuse: a list of bad rules goes through them, in a copy of the
project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("tools", "module_utils", "roles", "tests", "docs", "playbooks")
TESTS = ("tests/rows/test_rules_prove_themselves.py", "tests/rows/test_healthy_nodes.py",
    "tests/sweeps/test_rules_keep_apart.py")  # fmt: skip
SAYS = "the default is 20, and 99 keeps writers waiting"
GOOD = {
    "title": "Dirty pages may fill the memory", "severity": "info", "scope": "node",
    "when": "limits.sysctls['vm.dirty_ratio'] == '99'", "expected": "20",
    "found": "vm.dirty_ratio {{ limits.sysctls['vm.dirty_ratio'] }}",
    "remedy": {"person": "set vm.dirty_ratio to 20"},
    "sources": [{"url": "https://docs.kernel.org/admin-guide/sysctl/vm.html", "says": SAYS}],
    "confidence": "documented",
    "examples": {"match": [{"limits": {"sysctls": {"vm.dirty_ratio": "99"}}}],
    "near_miss": [{"limits": {"sysctls": {"vm.dirty_ratio": "20"}}}]},
}  # fmt: skip
NUMA = {"when": "limits.numa_balancing and gpus.count > 1", "found": "it is on", "examples": {
    "match": [{"limits": {"numa_balancing": True}, "gpus": {"count": 8},
    "node": {"numa_nodes": 2}}],
    "near_miss": [{"limits": {"numa_balancing": False}, "gpus": {"count": 8}}]}}  # fmt: skip
MATCH = GOOD["examples"]["match"]


def swappiness(value, **more):
    return {"limits": {"sysctls": {"vm.swappiness": value}, **more}}


BAD = {
    "no-costs": ({"severity": "warning"}, "costs: expected"),
    "needless-costs": ({"costs": "some jobs"}, "costs must be absent"),
    "foreign-source": ({"sources": [{"url": "https://example.org/", "says": SAYS}]},
    "sources.0.url"),
    "short-source": ({"sources": [{**GOOD["sources"][0], "says": "so"}]}, "sources.0.says"),
    "one-report": ({"severity": "warning", "costs": "some jobs", "confidence": "reported"},
    "proof: expected the fact"),
    "needless-proof": ({"proof": "it is read"}, "proof: expected none"),
    "no-such-role": ({"remedy": {"role": "host_tunning"}}, "did you mean host_tuning?"),
    "role-reads-it-not": ({"remedy": {"role": "fabric_manager",
    "policy": {"host": {"numa_balancing": False}}}}, "the role fabric_manager reads"),
    "no-such-policy": ({"remedy": {"role": "host_tuning",
    "policy": {"host": {"numa_blancing": False}}}}, "numa_blancing"),
    "ended-branch": ({"remedy": {"role": "gpu_driver",
    "policy": {"driver": {"version": "460.32.03"}}}}, "has ended"),
    "contradicts": ({**NUMA, "also": ["numa-balancing-on", "bad-not-in-also"],
    "remedy": {"role": "host_tuning", "policy": {"host": {"numa_balancing": True}}}},
        "this contradicts numa-balancing-on"),
    "nothing-to-do": ({"remedy": {"person": "look"}}, "remedy.person"),
    "drains-for-info": ({"remedy": {"person": "drain the node and set it"}}, "an info takes no node out of service"),
    "not-in-also": ({**NUMA, "also": ["bad-contradicts"]}, "also lacks numa-balancing-on"),
    "unrelated-miss": ({"examples": {"match": MATCH, "near_miss": [{"kernel": {}}]}},
    "examples.near_miss[0]"),
    "two-differences": ({"when": "limits.sysctls['vm.dirty_ratio'] == '99' and limits.swap_total_bytes == 0", "examples": {
        "match": [{"limits": {"sysctls": {"vm.dirty_ratio": "99"}, "swap_total_bytes": 0}}],
        "near_miss": [{"limits": {"sysctls": {"vm.dirty_ratio": "20"}, "swap_total_bytes": 1}}]}},
        "differs from a match in one deciding fact"),
    "match-is-silent": ({"when": "limits.sysctls['vm.dirty_ratio'] == '98'"},
    "match[0]: the rule must give fail"),
    "quotes-what-is-not-there": ({"found": "swap {{ limits.swap_total_bytes }}"},
    "found: the text lacks a value"),
    "part-of-a-name": ({"when": "gpus.devices | selectattr('model', 'like', '*H77*') | list | length > 0 and limits.sysctls['vm.dirty_ratio'] == '99'",
        "examples": {"match": [{"gpus": {"devices": [{"model": "H77"}]}, **MATCH[0]}],
        "near_miss": [{"gpus": {"devices": [{"model": "A"}]}, **MATCH[0]}]}},
        "a part of a model's name"),
    "of-another-section": ({"when": "gpus.count == 77", "found": "{{ gpus.count }} GPUs",
        "examples": {"match": [{"gpus": {"count": 77}}], "near_miss": [{"gpus": {"count": 7}}]}},
        "expected a rule that reads limits"),
    "cries-on-healthy": ({"severity": "warning", "costs": "some jobs",
    "when": "limits.sysctls['vm.swappiness'] == '60'", "found": "60",
        "examples": {"match": [swappiness("60")], "near_miss": [swappiness("1")]}},
        "finds something on healthy machines"),
    "unknown-key": ({"sympotms": ["slow"]}, "did you mean symptoms?"),
}  # fmt: skip


def told_apart(row, number):
    """The row about another value, so that no other one fires on its examples."""
    return json.loads(
        json.dumps(row)
        .replace("'99'", f"'{number}'")
        .replace('"99"', f'"{number}"')
        .replace("'98'", "'198'")
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the bad rules and a good one in its catalogue."""
    copy = tmp_path_factory.mktemp("project")
    for name in COPIED:
        shutil.copytree(
            PROJECT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "ansible.cfg"):
        shutil.copy(PROJECT / name, copy)
    rows = [
        told_apart({"id": f"bad-{name}", **GOOD, **change}, number)
        for number, (name, (change, _)) in enumerate(BAD.items(), 200)
    ]
    folder = copy / "tools/unhang/audit/catalogue/rules/limits/twice"
    folder.mkdir()
    (folder / "bad.yml").write_text(
        json.dumps({"rules": [*rows, told_apart({"id": "good-one", **GOOD}, 100)]})
    )
    return copy


def output_of(project, *argv):
    """(exit code, output) of a Python module in the copy."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{project}/tools:{project}/module_utils",
        "UNHANG_RUNS": str(project / "runs"),
    }
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_tests_of_the_catalogue_refuse_each_bad_rule(project):
    code, lines = output_of(
        project,
        "pytest",
        "-vv",
        "-p",
        "no:cacheprovider",
        "-k",
        "bad or good or fault or lie or healthy_node",
        *TESTS,
    )
    failed = [line for line in lines.splitlines() if line.startswith(("FAILED", "E  "))]
    assert code == 1 and not any("good-one" in line for line in failed)
    assert {name for name in BAD if not any(f"bad-{name}" in line for line in failed)} == set(), (
        lines
    )
