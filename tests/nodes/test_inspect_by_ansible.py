"""`unhang inspect` over booted nodes by Ansible: a gloo job over two of them hangs, and one look
names the rank and its node."""

from __future__ import annotations

import json

import audits
import pytest
import torch_in_nodes
from four_nodes import NAMES

pytestmark = torch_in_nodes.needs_torch
JOB = audits.PROJECT / "tests" / "bench" / "inspect_job.py"
SPY = f"{torch_in_nodes.ENVIRONMENT}/bin/py-spy"


def start_rank(fleet, rank):
    """A rank of two, on the node of that number."""
    name = NAMES[rank]
    fleet.plant(name, "/srv/inspect_job.py", JOB.read_text())
    ranks = {
        "RANK": rank,
        "LOCAL_RANK": 0,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": fleet.nodes[NAMES[0]].address,
        "MASTER_PORT": 29517,
    }
    settings = {
        **ranks,
        "GLOO_SOCKET_IFNAME": "host0",
        "OMP_NUM_THREADS": 1,
        "INSPECT_JOB_FOLDER": "/srv",
    }
    given = " ".join(f'"--setenv={key}={value}"' for key, value in settings.items())
    output = "-p StandardOutput=file:/srv/job.log -p StandardError=file:/srv/job.log"
    start = (
        f"systemd-run --unit=job {output} {given} {torch_in_nodes.PYTHON} /srv/inspect_job.py never"
        " 1 gloo"
    )
    fleet.shell(
        name, start, undo="systemctl stop job; systemctl reset-failed job; rm -f /srv/job.log"
    )


def inspect(fleet, *arguments):
    """(code, document, errors) of a look over all nodes."""
    inventory = fleet.work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": list(NAMES)}))
    command = [
        str(audits.PROGRAMS / "unhang"),
        "inspect",
        "-i",
        str(inventory),
        "--py-spy",
        SPY,
        "-o",
        "json",
        *arguments,
    ]
    done = audits.run(fleet.bed, command, audits.environment_of(fleet.bed, fleet.work), fleet.work)
    return done.code, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_one_look_over_the_inventory_names_the_rank_and_its_node(fleet):
    """gpu003 has no rank, and gpu004 is off."""
    fleet.power_off("gpu004")
    for rank in (0, 1):
        start_rank(fleet, rank)
    audits.wait_until(
        lambda: "happens" in fleet.shell("gpu001", "cat /srv/job.log"), "the job trains"
    )
    audits.wait_until(
        lambda: inspect(fleet, "--limit", "gpu[001-002]")[1].get("state") == "hung",
        "the job is found hung",
    )
    code, found, errors = inspect(fleet, "--slow")
    assert code == 1, errors
    assert [(suspect["host"], suspect["rank"]) for suspect in found["suspects"]] == [("gpu002", 1)]
    assert "it sleeps in happen" in found["suspects"][0]["why"]
    # without NCCL nobody counts, so the verdict of the two looks stays
    pace = found["pace"]
    assert pace["looks"] and (pace["answered"], pace["moved"]) == (0, False)
    assert [(row["host"], row["cores"] is None) for row in pace["ranks"]] == [
        ("gpu001", False),
        ("gpu002", False),
    ]
    problems = {row["host"]: row["problem"] for row in found["hosts"]}
    assert problems["gpu001"] is None and problems["gpu002"] is None
    assert "no process with RANK" in problems["gpu003"]
    assert "no answer" in problems["gpu004"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--limit", "gpu009"], "gpu009"), (["--pid", "1"], "differ from node to node")],
)
def test_mistakes_are_told_in_one_line(fleet, arguments, words):
    code, found, errors = inspect(fleet, *arguments)
    assert (code, found) == (2, {})
    assert words in errors and "Traceback" not in errors
