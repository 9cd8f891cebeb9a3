"""Two fleets of eight nodes, five of them with a fault each: the first screen has one block a node, with the fault and a command to type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from changed_nodes import PLATFORMS, changed

from unhang.base.strict_yaml import load_yaml
from unhang.show.report.screen import render_screen

MUTATIONS = load_yaml(Path(__file__).resolve().parents[1] / "fixtures" / "incidents" / "mutations.yml")[0]["nodes"]
# The fault of each node, gpu001 first -> what its block must name.
FLEETS = {
    "h200_infiniband": {
        "GPU gone from PCI too": "gpu-count-not-the-boards",
        "fabric manager dead after completed": "fabric-manager-died",
        "four of eight InfiniBand ports polling": "rdma-rail-down",
        "row remap pending": "gpu-row-remap-pending",
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


@pytest.mark.parametrize("platform", FLEETS)
def test_each_fault_has_one_block_that_names_its_node_the_fault_and_a_command(platform, tmp_path):
    faults, rows = FLEETS[platform], {row["name"]: row for row in MUTATIONS[platform]}
    for number, name in enumerate([*faults, None, None, None], start=1):
        change = {key: value for key, value in rows[name].items() if key not in ("name", "severity")} if name else {}
        document = changed(PLATFORMS[platform](), change)
        document["sections"]["node"]["hostname"] = f"gpu{number:03d}"
        (tmp_path / f"gpu{number:03d}.json").write_text(json.dumps(document), encoding="utf-8")
    argv = [sys.executable, "-P", "-m", "unhang", "judge", str(tmp_path), "-o", "json"]
    judged = subprocess.run(argv, env={**os.environ, "UNHANG_RUNS": str(tmp_path / "runs")}, text=True, stdout=subprocess.PIPE, check=False)
    screen = render_screen(json.loads(judged.stdout), 100)
    blocks = re.split(r"^(?=[A-Z]{4,} )", screen.partition("\n\n")[2], flags=re.MULTILINE)
    loud = [block for block in blocks if block.startswith(("CRITICAL", "ERROR", "WARNING"))]
    named = {re.search(r"gpu\d{3}", block).group(): block for block in loud}
    assert len(loud) == len(named) == len(faults), screen
    for number, rule in enumerate(faults.values(), start=1):
        block = named[f"gpu{number:03d}"]
        assert rule in block.partition("  do ")[0], block
        assert re.search(r"^  run +\S+", block, re.MULTILINE), block
    assert screen.count("keep jobs off now") == 1
