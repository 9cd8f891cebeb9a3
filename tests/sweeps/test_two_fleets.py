"""Fleets of eight nodes, five of them with a fault each: the first screen has one block a node,
with the fault and a command to type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from changed_nodes import PLATFORMS, changed

from unhang.audit.report.screen import render_screen
from unhang.core.strict_yaml import load_yaml

MUTATIONS = load_yaml(
    Path(__file__).resolve().parents[1] / "fixtures" / "incidents" / "mutations.yml"
)[0]["nodes"]
# The fault of each node, gpu001 first -> what its block must name.
FLEETS = {
    "h200_infiniband": {
        "GPU gone from PCI too": "gpu-count-not-the-boards",
        "fabric manager dead after completed": "fabric-manager-died",
        "four of eight InfiniBand ports polling": "rdma-rail-down",
        "row remap pending": "gpu-needs-reset",
        "library mismatch": "driver-library-mismatch",
    },
    "a100_roce": {
        "a rail down": "rdma-rail-down",
        "GPU lost": "gpu-gives-no-handle",
        "fabric manager not running": "fabric-manager-not-running",
        "memlock 64 KiB": "memlock-too-low-for-rdma",
        "Xid 94": "xid-serious",
    },
}
READ_ONLY = {"facts": {"limits.filesystems[0].read_only": True}}
NOT_STARTED = {
    "fabric_manager.running": False,
    "fabric_manager.started_s": None,
    "interconnect.fabric_state": "in_progress",
}
OTHER_MANAGER = {
    "facts": {
        "fabric_manager.version": "580.95.05",
        **NOT_STARTED,
        "gpus.devices[*].fabric.state": "in_progress",
    }
}
UPGRADES = {
    "facts": {
        "packages.unattended_upgrades.enabled": True,
        "packages.unattended_upgrades.covers_driver": True,
    }
}
# {node: (the name of a mutation, or its changes; what its block must name first; what it must tell
# to do)}, as a reader of the first screen was given them.
READ_BY_A_PERSON = {
    "one": {
        "gpu002": ("Xid 79", "gpu-needs-reboot", "role gpu_reset"),
        "gpu003": (OTHER_MANAGER, "fabric-manager-version-differs", "unhang remediate"),
        "gpu005": (
            "one InfiniBand port down",
            "rdma-rail-down",
            "scontrol update nodename=gpu005 state=drain",
        ),
        "gpu006": (
            {"settings": {"NCCL_SOCKET_IFNAME": "eth0"}},
            "nccl-interface-does-not-exist",
            "take NCCL_SOCKET_IFNAME out of /etc/nccl.conf",
        ),
        "gpu008": (UPGRADES, "packages-unattended-driver-upgrade", "role package_hold"),
    },
    "two": {
        "gpu001": (
            "row remap failed",
            "gpu-needs-replacement",
            "scontrol update nodename=gpu001 state=drain",
        ),
        "gpu002": (
            READ_ONLY,
            "filesystem-read-only",
            "scontrol update nodename=gpu002 state=drain",
        ),
        "gpu004": (
            "memlock hard 64 KiB",
            "memlock-too-low-for-rdma",
            "role host_tuning with limits.memlock_bytes: -1",
        ),
        "gpu005": ("application clocks locked", "gpu-clocks-locked", "nvidia-smi -i 5 -rgc"),
        "gpu007": (
            "one card fewer",
            "rdma-card-missing-beside-gpus",
            "scontrol update nodename=gpu007 state=drain",
        ),
    },
}


def screen_of(folder, documents):
    """The first screen of {node: document}."""
    for name, document in documents.items():
        document["sections"]["node"]["hostname"] = name
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    argv = [sys.executable, "-P", "-m", "unhang", "judge", str(folder), "-o", "json"]
    judged = subprocess.run(
        argv,
        env={**os.environ, "UNHANG_RUNS": str(folder / "runs")},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )
    return render_screen(json.loads(judged.stdout), 100)


def change_of(row):
    return {key: value for key, value in row.items() if key not in ("name", "severity")}


def blocks_of(screen):
    return re.split(r"^(?=[A-Z]{4,} )", screen.partition("\n\n")[2], flags=re.MULTILINE)


@pytest.mark.parametrize("fleet", READ_BY_A_PERSON)
def test_a_reader_of_the_first_screen_has_one_block_a_node_with_its_cause_and_what_to_do(
    fleet, tmp_path
):
    faults, rows = (
        READ_BY_A_PERSON[fleet],
        {row["name"]: row for row in MUTATIONS["h200_infiniband"]},
    )
    healthy = PLATFORMS["h200_infiniband"]()
    fewer = {"facts": {"network.rdma": healthy["sections"]["network"]["rdma"][:7]}}
    changes = {
        name: fewer
        if fault == "one card fewer"
        else rows[fault]
        if isinstance(fault, str)
        else fault
        for name, (fault, _, _) in faults.items()
    }
    nodes = {
        name: changed(healthy, change_of(changes.get(name, {})))
        for name in (f"gpu{number:03d}" for number in range(1, 9))
    }
    screen = screen_of(tmp_path, nodes)
    loud = [
        block for block in blocks_of(screen) if block.startswith(("CRITICAL", "ERROR", "WARNING"))
    ]
    assert {re.search(r"gpu\d{3}", block).group() for block in loud} == set(faults)
    assert len(loud) == len(faults) and "  also" not in screen, screen
    for name, (_, rule, action) in faults.items():
        (block,) = [block for block in loud if f" {name}: " in block]
        assert f"[{rule}]" in block.partition("  do ")[0], block
        # what was found is there before what to do, where the screen has no room for both
        assert "\n  do " not in block or action in " ".join(block.split()), block


@pytest.mark.parametrize("platform", FLEETS)
def test_each_fault_has_one_block_that_names_its_node_the_fault_and_a_command(platform, tmp_path):
    faults, rows = FLEETS[platform], {row["name"]: row for row in MUTATIONS[platform]}
    names = enumerate([*faults, None, None, None], start=1)
    screen = screen_of(
        tmp_path,
        {
            f"gpu{number:03d}": changed(
                PLATFORMS[platform](), change_of(rows[name]) if name else {}
            )
            for number, name in names
        },
    )
    blocks = blocks_of(screen)
    loud = [block for block in blocks if block.startswith(("CRITICAL", "ERROR", "WARNING"))]
    named = {re.search(r"gpu\d{3}", block).group(): block for block in loud}
    assert len(loud) == len(named) == len(faults), screen
    for number, rule in enumerate(faults.values(), start=1):
        block = named[f"gpu{number:03d}"]
        assert rule in block.partition("  do ")[0], block
        assert re.search(r"^  (?:found|run) +\S+", block, re.MULTILINE), block
    assert screen.count("keep jobs off now") == 1
