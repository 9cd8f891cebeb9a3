"""playbooks/smoke.yml over four real nodes: the same result as every launcher, and a failure names who is to blame."""

from __future__ import annotations

import json
import subprocess
import sys

import audits
import torch_in_nodes
from four_nodes import NAMES

pytestmark = torch_in_nodes.needs_torch
DEADLINE_S = 280


def play(fleet, *options, playbook="playbooks/smoke.yml", inventory=None, extra=None):
    """(code, result, everything said) of the playbook. options: for `unhang smoke`; extra: variables."""
    hosts = fleet.work / "hosts.json"
    hosts.write_text(inventory or audits.inventory_of(fleet.bed, {"training": list(NAMES)}))
    results = fleet.work / "results"
    arguments = ["--backend", "gloo", "--nproc", "1", "--max-size", "64K", "--sizes", "16K", "--step-timeout", "60", *options]
    variables = {"smoke_test_python": str(torch_in_nodes.PYTHON), "smoke_test_arguments": arguments, "smoke_test_results": str(results), **(extra or {})}
    command = fleet.bed.inside(["ansible-playbook", playbook, "-i", str(hosts), "-e", json.dumps(variables)], audits.PROJECT)
    environment = audits.environment_of(fleet.bed, fleet.work)
    said = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    done = subprocess.run(command, env=environment, timeout=DEADLINE_S, check=False, **said)
    sys.stdout.write(f"{done.stdout[-9000:]}\n{done.stderr[-3000:]}\n")
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(results.glob("*/*/result.json"))}
    return done.returncode, found, done.stdout


def left_over(fleet, names=NAMES):
    """What the smoke test left on nodes."""
    left = [line for name in names for line in fleet.shell(name, "ps -eo args").splitlines() if "unhang_smoke.py" in line]
    return left + [line for name in names for line in fleet.shell(name, "ls /tmp").splitlines() if line.startswith("unhang-smoke-")]


def test_the_playbook_passes_on_four_nodes_and_leaves_nothing(fleet):
    code, found, said = play(fleet, "--phases", "broadcast,all_reduce,bandwidth")
    assert code == 0, said
    result = found["group"]
    assert (result["verdict"], result["launcher"], result["world_size"]) == ("pass", "ansible", 4)
    assert result["rendezvous"]["interface"] == "host0"
    assert left_over(fleet) == []


def test_the_playbook_fails_with_the_bad_node_and_names_those_that_it_could_not_ask(fleet):
    fleet.power_off("gpu004")
    code, found, said = play(fleet, "--phases", "broadcast,all_reduce", "--drill", "gpu002:exit:all_reduce")
    assert code != 0
    suspects = {row["host"]: row["why"] for row in found["group"]["suspects"]}
    assert set(suspects) == {"gpu002", "gpu004"}
    assert "code 7" in suspects["gpu002"]
    assert "could not be asked" in suspects["gpu004"]
    assert "the smoke test failed" in said
    assert left_over(fleet, NAMES[:3]) == []


def gate(fleet, names, *options, host_variables=None):
    """playbooks/preprovision.yml, the last node being the reference."""
    inventory = audits.inventory_of(fleet.bed, {"training": list(names)}, host_variables=host_variables)
    extra = {"preprovision_reference": names[-1]}
    return play(fleet, "--phases", "all_reduce", *options, playbook="playbooks/preprovision.yml", inventory=inventory, extra=extra)


def test_the_gate_passes_a_good_node_alone_and_with_the_reference(fleet):
    code, found, said = gate(fleet, NAMES[:2])
    assert code == 0, said
    assert {name: result["verdict"] for name, result in found.items()} == {"gpu001": "pass", "gpu002": "pass", "group": "pass"}
    assert found["group"]["rendezvous"]["host"] == "gpu002"
    assert left_over(fleet) == []


def test_the_gate_fails_what_the_policy_refuses_and_what_the_smoke_test_blames_and_passes_the_others(fleet):
    policy = {"unhang_policy": {"driver": {"version": "535.261.03"}}}
    code, found, said = gate(fleet, NAMES, "--drill", "gpu003:exit:all_reduce", host_variables={"gpu002": policy})
    assert code != 0
    assert (found["gpu002"]["verdict"], found["gpu003"]["verdict"], found["group"]["verdict"]) == ("pass", "fail", "fail")
    decided = said[said.rindex("TASK [Decide]") :]
    lines = {name: decided[decided.index(f"[{name}]") :][:700] for name in NAMES}
    assert "audit: policy-driver-version" in lines["gpu002"]
    assert "alone: its process ended by itself with code 7" in lines["gpu003"]
    assert "together: its process ended by itself with code 7" in lines["gpu003"]
    assert all('"msg": "pass"' in lines[name] for name in ("gpu001", "gpu004"))
