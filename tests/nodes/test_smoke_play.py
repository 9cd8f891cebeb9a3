"""playbooks/smoke.yml over four real nodes: the same result as with every launcher, also when nodes
or the connections to them fail."""

from __future__ import annotations

import json
import re
import subprocess

import audits
import pytest
import torch_in_nodes
from controller_process import under_way
from documented_command import as_typed
from four_nodes import NAMES
from node_launchers import DEADLINE_S, command, play, play_typed, results_of, variables_of

from unhang.core.signing import GOOD, check, public_key
from unhang_node.facts.parse.admission import parse_admission

pytestmark = torch_in_nodes.needs_torch
PLACED = "/tmp/unhang-smoke-*"


def left_over(fleet, names=NAMES):
    """Files and processes that the smoke test left on nodes."""
    left = [
        line
        for name in names
        for line in fleet.shell(name, "ps -eo args").splitlines()
        if "unhang_smoke.pyz" in line
    ]
    places = f"ls -d {PLACED} /root/.ansible_async/* 2>/dev/null || true"
    return left + [line for name in names for line in fleet.shell(name, places).splitlines()]


def test_the_playbook_experiments_and_isolates_and_names_those_that_it_could_not_ask(fleet):
    fleet.power_off("gpu004")
    for name, address in zip(NAMES[:3], (1, 2, 3), strict=True):
        second = (
            "ip link add link host0 name eth9 type macvlan mode bridge && ip address add"
            f" 10.99.0.{address}/24 dev eth9 && ip link set eth9 up"
        )
        fleet.shell(name, second, undo="ip link delete eth9")
    inventory = audits.inventory_of(
        fleet.bed, {"training": list(NAMES), "leaf_a": NAMES[:2], "leaf_b": NAMES[2:]}
    )
    code, found, output = play(
        fleet, "--phases", "all_reduce", "--drill", "gpu002:corrupt", inventory=inventory
    )
    assert code != 0
    [meant] = (fleet.work / "results").glob("*/group/hosts.json")
    assert json.loads(meant.read_text())["switches"] == {
        "gpu001": "leaf_a",
        "gpu002": "leaf_a",
        "gpu003": "leaf_b",
        "gpu004": "leaf_b",
    }
    result = found["group"]
    suspects = {row["host"]: row["why"] for row in result["suspects"]}
    assert set(suspects) == {"gpu002", "gpu004"}
    assert "the group fails with it and passes without it" in suspects["gpu002"]
    assert "connection was lost or could not be made" in suspects["gpu004"]
    tried = {row["name"]: row["verdict"] for row in result["experiments"]}
    assert tried == {"the same again": "fail", "one rank alone": "pass", "interface eth9": "fail"}
    assert result["experiments"][2]["change"] == {"GLOO_SOCKET_IFNAME": "eth9"}
    assert result["isolation"]["bad_nodes"] == ["gpu002"], result["isolation"]
    assert "the smoke test failed" in output
    assert left_over(fleet, NAMES[:3]) == []


# Stands for the users' Python on a node; the agent of the ranks starts it as: PYTHON -u
# FOLDER/unhang_smoke.pyz rank ...
WRAPPER = '#!/bin/sh\nfolder=$(dirname "$2")\n{before}\nexec {python} "$@"\n'
USERS_PYTHON = "/srv/python"


def plant_python(fleet, before):
    """The users' Python of each node, with something that happens before a rank begins. before:
    shell lines by node."""
    for name in NAMES:
        text = WRAPPER.format(before=before.get(name, ":"), python=torch_in_nodes.PYTHON)
        fleet.plant(name, USERS_PYTHON, text, mode=0o755)


def test_what_cannot_be_fetched_or_removed_and_an_agent_that_died_are_in_the_result(fleet):
    plant_python(fleet, {
        "gpu002": "mkdir $folder/held && mount -t tmpfs none $folder/held",
        "gpu003": "rm $folder/events.jsonl && mkdir $folder/events.jsonl",
        # Its rank never enters the collective, so the other ranks wait there when the agent dies.
        "gpu004": "(until grep -q '\"phase\": \"all_reduce\"' $folder/events.jsonl; do sleep 0.1; done; kill -9 $PPID) >/dev/null 2>&1 &",
    })  # fmt: skip
    fleet.undo.callback(fleet.shell, "gpu002", f"umount {PLACED}/held && rm -rf {PLACED}")
    hosts = fleet.work / "typed.json"
    variables = variables_of(fleet, "--phases", "all_reduce", "--drill", "gpu004:absent:all_reduce")
    alone = {"smoke_test_experiments": False, "smoke_test_isolate": False}
    hosts.write_text(
        audits.inventory_of(fleet.bed, {"training": list(NAMES)}, {**variables, **alone})
    )
    typed = as_typed(
        "ansible-playbook playbooks/smoke.yml -i inventory/mycluster --limit gpu001,gpu002 -e"
        " smoke_test_python=/opt/train/bin/python",
        {
            "inventory/mycluster": hosts,
            "gpu001,gpu002": ",".join(NAMES),
            "/opt/train/bin/python": USERS_PYTHON,
        },
    )
    code, found, _ = play_typed(fleet, typed)
    assert code != 0
    result = found["group"]
    [note] = result["notes"]
    assert note["host"] == "gpu002"
    assert "could not be removed from the node" in note["text"]
    assert "busy" in note["text"]
    problems = {row["host"]: row["problem"] for row in result["hosts"]}
    assert problems["gpu001"] is problems["gpu002"] is None
    assert "could not be fetched" in problems["gpu003"]
    assert "Is a directory" in problems["gpu003"]
    assert "ended without a report of its end (code -9)" in problems["gpu004"]
    assert {"gpu003", "gpu004"} == {row["host"] for row in result["suspects"]}
    assert left_over(fleet, ("gpu001", "gpu003", "gpu004")) == []
    assert any("unhang-smoke-" in line for line in left_over(fleet, ("gpu002",)))


@pytest.fixture
def held(fleet):
    """The playbook whose ranks wait on all nodes until the file /run/go is there."""
    plant_python(fleet, dict.fromkeys(NAMES, "while [ ! -e /run/go ]; do sleep 0.1; done"))
    for name in NAMES:
        fleet.undo.callback(fleet.shell, name, "rm -f /run/go")
    quick = {"ansible_ssh_extra_args": "-o ServerAliveInterval=2 -o ServerAliveCountMax=2"}
    inventory = audits.inventory_of(fleet.bed, {"training": list(NAMES)}, variables=quick)
    argv = command(
        fleet,
        "--phases",
        "all_reduce",
        "--step-timeout",
        "200",
        inventory=inventory,
        extra={"smoke_test_python": USERS_PYTHON},
    )
    environment = audits.environment_of(fleet.bed, fleet.work)
    with (
        (fleet.work / "output").open("w") as output,
        under_way(argv, environment, output) as process,
    ):
        audits.wait_until(
            lambda: all(asked(fleet, name) for name in NAMES),
            "the ranks are started and waited for on all nodes",
        )
        yield process


def asked(fleet, name):
    """Whether a rank waits on the node, and the controller for it: the controller's check on the
    node is a Python that reads its program from stdin."""
    lines = fleet.shell(name, "ps -eo args").splitlines()
    return any(USERS_PYTHON in line and "rank" in line for line in lines) and any(
        line.endswith("python3 -I -") for line in lines
    )


def test_it_passes_and_leaves_nothing_whatever_becomes_of_the_connections(fleet, held):
    sessions = fleet.shell(
        "gpu002", "ps -eo pid,args | awk '/sshd: root@/ && !/awk/ {print $1}'"
    ).split()
    assert sessions
    fleet.shell("gpu002", f"kill -9 {' '.join(sessions)}")
    port = fleet.bed.run(["ip", "-o", "link", "show", "master", "testbed"]).stdout
    [dead] = [
        word.split("@")[0]
        for line in port.splitlines()
        for word in line.split()
        if word.startswith("vb-gpu003")
    ]
    assert fleet.bed.run(["ip", "link", "set", dead, "down"]).returncode == 0
    before = set(
        fleet.shell("gpu003", "ps -eo pid,args | awk '/sshd: root@/ && !/awk/ {print $1}'").split()
    )
    # The controller has given up the dead connection when it tries to open a new one, which is not
    # answered.
    audits.wait_until(
        lambda: "gpu003" not in connected(fleet), "the connection to gpu003 is given up"
    )
    assert fleet.bed.run(["ip", "link", "set", dead, "up"]).returncode == 0
    audits.wait_until(
        lambda: set(fleet.shell("gpu003", "pgrep -f 'sshd: root@' || true").split()) - before,
        "gpu003 is asked again",
    )
    assert held.poll() is None
    for name in NAMES:
        fleet.shell(name, "touch /run/go")
    assert held.wait(timeout=DEADLINE_S) == 0, (fleet.work / "output").read_text()[-3000:]
    result = results_of(fleet)["group"]
    assert (result["verdict"], result["launcher"], result["world_size"], result["notes"]) == (
        "pass",
        "ansible",
        4,
        [],
    )
    assert result["rendezvous"]["interface"] == "host0"
    assert result["command"].startswith("ansible-playbook playbooks/smoke.yml -i ")
    assert [row["ended"] for row in result["hosts"]] == [True] * 4
    assert left_over(fleet) == []


def connected(fleet):
    """Names of nodes to which the controller has an open TCP connection."""
    rows = [
        line.split() for line in fleet.bed.run(["cat", "/proc/net/tcp"]).stdout.splitlines()[1:]
    ]
    remote = {row[2] for row in rows if row[3] == "01" and row[2].endswith(":0016")}
    return {
        name
        for name, node in fleet.nodes.items()
        if ":".join((hex_of(node.address), "0016")) in remote
    }


def hex_of(address):
    """An address as /proc/net/tcp writes it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def gate(
    fleet, names, *options, reference=None, python=None, host_variables=None, key=None, **more
):
    """playbooks/preprovision.yml, with the last node as the reference."""
    inventory = audits.inventory_of(
        fleet.bed, {"training": list(names)}, host_variables=host_variables
    )
    extra = {
        "preprovision_reference": reference or names[-1],
        "smoke_test_experiments": False,
        **({"smoke_test_python": python} if python else {}),
    }
    extra |= {**({"preprovision_key": str(key)} if key else {}), **more}
    code, found, output = play(
        fleet,
        "--phases",
        "all_reduce",
        *options,
        playbook="playbooks/preprovision.yml",
        inventory=inventory,
        extra=extra,
    )
    return code, found, decided(output, names), output


def decided(output, names):
    """{node: the gate's answer about it}."""
    report = (
        output[output.rindex("TASK [Report what was decided]") :]
        if "TASK [Report what was decided]" in output
        else ""
    )
    return {
        name: next(
            (line.strip().strip('",') for line in report.splitlines() if f": {name}" in line), ""
        )
        for name in names
    }


def test_the_gate_passes_good_nodes_and_fails_what_the_policy_refuses_or_the_smoke_test_blames(
    fleet,
):
    policy = {"unhang_policy": {"driver": {"version": "535.261.03"}}}
    key = fleet.work / "gate_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    code, found, lines, output = gate(
        fleet,
        NAMES,
        "--drill",
        "gpu003:exit:all_reduce",
        host_variables={"gpu002": policy},
        key=key,
    )
    assert code == 2
    assert (found["gpu002"]["verdict"], found["gpu003"]["verdict"], found["group"]["verdict"]) == (
        "pass",
        "fail",
        "pass",
    )
    assert [row["host"] for row in found["group"]["hosts"]] == ["gpu004", "gpu001", "gpu002"]
    assert lines["gpu001"] == "pass: gpu001"
    assert lines["gpu004"] == "pass: gpu004"
    assert lines["gpu002"].startswith("fail: gpu002: audit: policy-driver-version")
    assert "alone: its process ended by itself with code 7" in lines["gpu003"]
    assert left_over(fleet) == []
    run = audits.PROJECT / "runs" / re.findall(r"next: unhang \w+ runs/(\S+)", output)[-1]
    records = {
        path.name: parse_admission(path.read_text()) for path in (run / "admission").iterdir()
    }
    assert sorted(records) == ["gpu001", "gpu004"]
    found = records["gpu001"]["record"]
    assert (found["host"], found["results"]["together"]["hosts"], found["limits"]["reference"]) == (
        "gpu001",
        ["gpu004", "gpu001", "gpu002"],
        "gpu004",
    )
    assert check(records["gpu001"]["line"], records["gpu001"]["signature"], public_key(key)) == GOOD


def test_the_gate_neither_fails_nor_passes_what_it_could_not_look_at(fleet):
    fleet.power_off("gpu003")
    for name in ("gpu001", "gpu002", "gpu004"):
        target = "/usr/bin/python3" if name == "gpu002" else torch_in_nodes.PYTHON
        fleet.plant(name, USERS_PYTHON, f'#!/bin/sh\nexec {target} "$@"\n', mode=0o755)
    code, found, lines, _ = gate(fleet, NAMES, python=USERS_PYTHON)
    assert code == 4
    assert found["group"]["verdict"] == "pass"
    assert (lines["gpu001"], lines["gpu004"]) == ("pass: gpu001", "pass: gpu004")
    assert lines["gpu002"].startswith("not proved: gpu002: alone: torch is not installed in")
    assert lines["gpu003"].startswith("not proved: gpu003: audit: node-unreachable")


def test_a_reference_that_is_bad_proves_nobody_and_one_that_is_not_there_is_wrong_use(fleet):
    hosts = fleet.work / "typed.json"
    options = ("--phases", "all_reduce", "--drill", "gpu002:exit:all_reduce")
    hosts.write_text(
        audits.inventory_of(
            fleet.bed,
            {"training": NAMES[:2]},
            {**variables_of(fleet, *options), "smoke_test_experiments": False},
        )
    )
    typed = as_typed(
        "ansible-playbook playbooks/preprovision.yml -i inventory/mycluster --limit"
        " gpu017,gpu018,gpu001 -e preprovision_reference=gpu001",
        {
            "inventory/mycluster": hosts,
            "gpu017,gpu018,gpu001": "gpu001,gpu002",
            "reference=gpu001": "reference=gpu002",
        },
    )
    code, found, output = play_typed(fleet, typed)
    lines = decided(output, NAMES)
    assert code == 2
    assert sorted(found) == ["gpu001", "gpu002"]
    assert lines["gpu002"].startswith(
        "fail: gpu002: alone: its process ended by itself with code 7"
    )
    assert lines["gpu001"].startswith("not proved: gpu001: the reference gpu002 is not good itself")
    code, _, _, output = gate(fleet, NAMES[:1], reference="gpu009")
    assert code == 2
    assert "gpu009 is none of gpu001" in " ".join(output.split())
