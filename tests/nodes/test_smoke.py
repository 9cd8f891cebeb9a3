"""The smoke test over four real nodes by ssh, without an inventory: gloo under real torch, planned
and real faults, and no process or file left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import audits
import hardware
import pytest
import torch_in_nodes
from descendant_processes import launched
from four_nodes import NAMES
from node_launchers import ssh_config
from smoke_launches import DEADLINE_S, SMALL, left_over, nothing_left, smoke, smoke_argv

pytestmark = torch_in_nodes.needs_torch


def test_a_node_that_corrupts_is_named_by_the_ranks_and_by_isolation(fleet):
    done = smoke(
        fleet,
        *SMALL,
        "--phases",
        "broadcast,all_reduce,all_gather",
        "--drill",
        "gpu003:corrupt",
        "--no-experiments",
    )
    assert done.code == 1
    assert done.suspects("host", "rank")[0] == ("gpu003", 2)
    assert "arrived wrong" in done.result["suspects"][0]["why"]
    assert done.result["isolation"]["bad_nodes"] == ["gpu003"], done.result["isolation"]
    nothing_left(fleet)


def test_a_node_whose_ranks_die_is_named_and_isolated(fleet):
    done = smoke(
        fleet,
        *SMALL,
        "--phases",
        "all_reduce",
        "--drill",
        "gpu002:exit:all_reduce",
        "--no-experiments",
    )
    assert done.suspects("host", "rank", "phase")[0] == ("gpu002", 1, "all_reduce")
    assert done.result["isolation"]["bad_nodes"] == ["gpu002"]
    assert done.result["isolation"]["rounds"] <= 3


def test_a_fault_between_two_switches_of_the_inventory_is_named_as_such(fleet):
    across = [f"{one}+{other}:exit" for one in NAMES[:2] for other in NAMES[2:]]
    inventory = fleet.work / "hosts.json"
    inventory.write_text(
        audits.inventory_of(
            fleet.bed, {"training": list(NAMES), "leaf_a": NAMES[:2], "leaf_b": NAMES[2:]}
        )
    )
    options = [word for drill in across for word in ("--drill", drill)]
    done = smoke(
        fleet,
        *SMALL,
        "--phases",
        "all_reduce",
        *options,
        "--no-experiments",
        "--inventory",
        inventory,
    )
    assert done.result["isolation"]["answer"] == "only across switch leaf_a and leaf_b"
    assert "fails only across switch leaf_a and leaf_b" in [
        row["why"] for row in done.result["suspects"]
    ]
    nothing_left(fleet)


def test_a_node_whose_ranks_never_enter_is_named(fleet):
    options = (
        "--max-size",
        "64K",
        "--step-timeout",
        "10",
        "--phases",
        "all_reduce",
        "--no-experiments",
        "--no-isolate",
    )
    done = smoke(fleet, *options, "--drill", "gpu002:absent:all_reduce")
    assert done.suspects("host", "rank", "phase") == [("gpu002", 1, "all_reduce")]
    assert "never entered collective" in done.result["suspects"][0]["why"]


def test_a_slow_node_is_named_and_isolated(fleet):
    done = smoke(fleet, *SMALL, "--phases", "pace", "--drill", "gpu004:slow", "--no-experiments")
    assert done.suspects("host", "phase") == [("gpu004", "pace")]
    isolation = done.result["isolation"] or {}
    # a busy machine proves nothing about speed, and so isolates nobody
    is_busy = "the machine is busy" in (done.result.get("not_proved") or "")
    assert isolation.get("bad_nodes") == (None if is_busy else ["gpu004"]), isolation


def test_an_unreachable_and_an_unknown_node_are_named_and_the_others_pass(fleet):
    fleet.power_off("gpu004")
    done = smoke(fleet, *SMALL, "--phases", "all_reduce", without=("gpu002",))
    assert done.code == 1
    assert sorted(done.suspects("host", "phase")) == [("gpu002", "launch"), ("gpu004", "launch")]
    why = dict(done.suspects("host", "why"))
    assert "its host key is not in known_hosts" in why["gpu002"]
    assert "cannot be reached" in why["gpu004"]
    assert {row["status"] for row in done.result["phases"]} == {"ok"}
    assert done.result["world_size"] == 2


def test_a_changed_host_key_is_refused(fleet):
    config = ssh_config(fleet.bed, fleet.work)
    known = fleet.work / "known_hosts"
    keys = {name: node.host_key for name, node in fleet.nodes.items()}
    known.write_text(known.read_text().replace(keys["gpu003"], keys["gpu001"]))
    done = smoke(fleet, *SMALL, "--phases", "all_reduce", config=config)
    assert done.suspects("host", "phase") == [("gpu003", "launch")]
    assert "its host key is not the one" in done.result["suspects"][0]["why"]


def test_a_node_without_torch_is_named(fleet):
    python = "/srv/python"
    for name in NAMES:
        target = "/usr/bin/python3" if name == "gpu002" else torch_in_nodes.PYTHON
        fleet.plant(name, python, f'#!/bin/sh\nexec {target} "$@"\n', mode=0o755)
    done = smoke(
        fleet,
        *SMALL,
        "--phases",
        "all_reduce",
        "--no-experiments",
        "--no-isolate",
        "--python",
        python,
    )
    assert done.suspects("host", "phase")[0] == ("gpu002", "environment")
    assert "torch is not installed in" in done.result["suspects"][0]["why"]


def test_another_torch_on_a_node_is_named_before_the_first_collective(fleet):
    ask = 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])'
    place = fleet.shell("gpu003", f"{torch_in_nodes.PYTHON} -c '{ask}'").strip()
    theirs = "/srv/their-torch/torch"
    other = "s/__version__ = .*/__version__ = '2.12.9+other'/"
    laid = f"mkdir -p {theirs} && ln -s {place}/* {theirs}/ && rm {theirs}/version.py"
    fleet.shell(
        "gpu003",
        f'{laid} && sed "{other}" {place}/version.py > {theirs}/version.py',
        undo="rm -rf /srv/their-torch",
    )
    for name in NAMES:
        before = "export PYTHONPATH=/srv/their-torch" if name == "gpu003" else ":"
        fleet.plant(
            name,
            "/srv/python",
            f'#!/bin/sh\n{before}\nexec {torch_in_nodes.PYTHON} "$@"\n',
            mode=0o755,
        )
    done = smoke(fleet, *SMALL, "--phases", "all_reduce", "--python", "/srv/python")
    assert done.suspects("host", "phase") == [("gpu003", "consistency")]
    assert done.result["suspects"][0]["why"].startswith("torch is 2.12.9+other here, most have ")
    assert "init" not in [row["name"] for row in done.result["phases"]]
    assert (done.result["experiments"], done.result["isolation"]) == ([], None)


def test_other_gpus_than_the_peers_and_a_name_that_nobody_knows_are_left_out_and_three_nodes_go_on(
    fleet,
):
    fleet.equip("gpu002", hardware.consumer_gpus("NVIDIA GeForce RTX 3090", 4, "535.154.05"))
    done = smoke(fleet, *SMALL, "--hosts", "gpu009", "--phases", "all_reduce,all_gather")
    why = dict(done.suspects("host", "why"))
    assert sorted(why) == ["gpu002", "gpu009"]
    assert why["gpu002"].startswith(
        "its peers have 8 × NVIDIA H200, it has 4 × NVIDIA GeForce RTX 3090"
    )
    assert "its name does not resolve" in why["gpu009"]
    assert done.result["world_size"] == 3
    assert {row["status"] for row in done.result["phases"]} == {"ok"}


def test_a_port_in_use_on_the_meetings_host_is_reported_with_the_port(fleet):
    hold = "import socket,time; s=socket.socket(); s.bind(('',23456)); s.listen(); time.sleep(600)"
    fleet.shell(
        "gpu001",
        f'nohup python3 -c "{hold}" >/dev/null 2>&1 & echo $! > /run/holder',
        undo="kill $(cat /run/holder); rm /run/holder",
    )
    audits.wait_until(lambda: "23456" in fleet.shell("gpu001", "ss -ltn"), "the port is taken")
    done = smoke(fleet, *SMALL, "--phases", "all_reduce", "--port", "23456", "--no-isolate")
    assert done.suspects("host", "phase") == [("gpu001", "rendezvous")]
    assert done.result["suspects"][0]["why"].startswith("port 23456 is in use")
    assert "--port" in done.result["suspects"][0]["next"]


@pytest.fixture
def busy(fleet):
    """A smoke test whose ranks wait inside a collective for one that never comes."""
    command = fleet.bed.inside(
        smoke_argv(
            fleet,
            *SMALL,
            "--phases",
            "all_reduce",
            "--drill",
            "gpu001:absent:all_reduce",
            "--no-experiments",
            "--no-isolate",
        ),
        audits.PROJECT,
    )
    environment = audits.environment_of(fleet.bed, fleet.work)
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if line.strip() == "unhang: phase all_reduce":
            break
    # The first rank in the phase announces it, and the others may still be one phase earlier: the
    # page of memory of each rank shows its phase.
    boards = "cat /tmp/unhang-smoke-*/board-* 2>/dev/null || true"
    audits.wait_until(
        lambda: all("all_reduce\n" in fleet.shell(name, boards) for name in NAMES),
        "all are in all_reduce",
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


def rank_on(fleet, name):
    """pid of the rank on a node."""
    rows = [line.split() for line in left_over(fleet, name)]
    return next(row[0] for row in rows if "rank" in row)


def test_a_rank_stopped_from_outside_is_named_with_its_host_in_time(fleet, busy):
    fleet.shell("gpu003", f"kill -STOP {rank_on(fleet, 'gpu003')}")
    began = time.monotonic()
    output, _ = busy.communicate(timeout=DEADLINE_S)
    took_s = time.monotonic() - began
    suspects = json.loads(output)["suspects"]
    assert [(suspect["host"], suspect["rank"], suspect["phase"]) for suspect in suspects] == [
        ("gpu003", 2, "all_reduce")
    ], suspects
    [suspect] = suspects
    assert "stopped" in suspect["why"]
    assert took_s < 30
    nothing_left(fleet)


def test_an_agent_that_is_killed_is_named_and_the_others_answer(fleet, busy):
    [agent] = [line.split()[0] for line in left_over(fleet, "gpu002") if " node " in line]
    # no agent is left there to do it
    fleet.shell("gpu002", f"kill -9 {agent}", undo="rm -rf /tmp/unhang-smoke-*")
    output, _ = busy.communicate(timeout=DEADLINE_S)
    result = json.loads(output)
    assert result["suspects"][0]["host"] == "gpu002"
    assert "the agent was ended by a signal" in result["suspects"][0]["why"]
    assert {row["host"]: row["ended"] for row in result["hosts"]} == {
        "gpu001": True,
        "gpu002": False,
        "gpu003": True,
        "gpu004": True,
    }
    audits.wait_until(
        lambda: not any(left_over(fleet, name) for name in NAMES),
        "the payload's processes are gone",
    )


def test_a_node_that_loses_power_in_the_middle_is_named_and_the_others_answer(fleet, busy):
    fleet.power_off("gpu002")
    output, _ = busy.communicate(timeout=DEADLINE_S)
    result = json.loads(output)
    assert result["suspects"][0]["host"] == "gpu002"
    assert "connection was lost" in result["suspects"][0]["why"]
    assert {row["host"]: row["ended"] for row in result["hosts"]} == {
        "gpu001": True,
        "gpu002": False,
        "gpu003": True,
        "gpu004": True,
    }
    nothing_left(fleet, ("gpu001", "gpu003", "gpu004"))


def test_a_killed_launcher_leaves_nothing_on_the_nodes(fleet, busy):
    assert all(left_over(fleet, name) for name in NAMES)
    fleet.shell("gpu004", f"kill -STOP {rank_on(fleet, 'gpu004')}")
    for pid in launched(busy.pid):
        os.kill(pid, signal.SIGKILL)
    busy.wait(timeout=DEADLINE_S)
    nothing_left(fleet)
