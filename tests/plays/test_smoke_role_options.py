"""The options that the role smoke_test passes to `unhang smoke`, from the inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from local_fleet import PROJECT

from unhang.smoke.commands.smoke_expectations import bandwidth_in

ROW = {
    "gpu": "NVIDIA H200",
    "gpus": 8,
    "nvls": False,
    "transport": "nvlink",
    "operation": "all_reduce",
    "size_bytes": 1 << 30,
    "low_gb_s": 322.1,
}
POLICY = {"bandwidth": [{**ROW, "reached_gb_s": 357.84}]}


def options(folder, policies, extra=()):
    """{host: the role's arguments for `unhang smoke`}. policies: {host: unhang_policy}; extra:
    options of ansible-playbook."""
    role = PROJECT / "roles" / "smoke_test"
    task = {
        "ansible.builtin.copy": {
            "content": "{{ __smoke_test_options | to_json }}",
            "dest": f"{folder}/{{{{ inventory_hostname }}}}",
            "mode": "0600",
        }
    }
    files = [str(role / "vars/main.yml"), str(role / "defaults/main.yml")]
    (folder / "play.yml").write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "vars_files": files,
                    "tasks": [{"name": "Tell", **task}],
                }
            ]
        )
    )
    inventory = {
        "all": {
            "hosts": {
                host: {"ansible_connection": "local", "unhang_policy": policy}
                for host, policy in policies.items()
            }
        }
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    argv = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        str(folder / "hosts.yml"),
        str(folder / "play.yml"),
        *extra,
    ]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")},
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {host: json.loads((folder / host).read_text()) for host in policies}


def test_the_policys_bandwidth_reaches_the_judge_of_the_smoke_test(tmp_path):
    given = options(tmp_path, {"measured": POLICY, "unmeasured": {"driver": {"held": True}}})
    assert (
        bandwidth_in(given["measured"][given["measured"].index("--policy-bandwidth") + 1])
        == POLICY["bandwidth"]
    )
    assert "--policy-bandwidth" not in given["unmeasured"]


@pytest.mark.parametrize(
    ("given", "asked"), [("false", False), (False, False), ("true", True), (True, True)]
)
def test_it_starts_beside_jobs_only_for_a_yes_however_that_was_typed(tmp_path, given, asked):
    found = options(
        tmp_path, {"node": {}}, extra=["-e", json.dumps({"smoke_test_beside_jobs": given})]
    )
    assert ("--beside-jobs" in found["node"]) is asked


@pytest.mark.parametrize("name", ["experiments", "isolate"])
@pytest.mark.parametrize(
    ("given", "asked"), [("false", False), (False, False), ("true", True), (True, True)]
)
def test_a_search_for_the_cause_is_left_out_for_a_no_however_that_was_typed(
    tmp_path, name, given, asked
):
    found = options(tmp_path, {"node": {}}, extra=["-e", json.dumps({f"smoke_test_{name}": given})])
    assert (f"--no-{name}" not in found["node"]) is asked
