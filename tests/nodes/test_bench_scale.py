"""`make bench-scale` in small: every program over real sshd processes and recorded answers, with
dead nodes, and its rows."""

from __future__ import annotations

import subprocess
import sys

import audits
import pytest
from testbed.tree import ready_tree


@pytest.fixture(scope="module")
def rows():
    """The cells of each row."""
    ready_tree(audits.PROJECT / ".cache" / "testbed")
    options = [
        "--nodes",
        "6",
        "--few",
        "4",
        "--simulated",
        "40",
        "--dead",
        "0",
        "50",
        "--no-pyinfra",
    ]
    bench = [sys.executable, str(audits.PROJECT / "tests" / "bench" / "bench_scale.py"), *options]
    done = subprocess.run(bench, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "fit: " in done.stdout
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()
        if line.startswith("| `")
    ]


def test_each_way_reads_the_living_nodes(rows):
    read = {(row[0], int(row[1]), int(row[2])): int(row[7]) for row in rows if row[7]}
    assert {
        key: answered for key, answered in read.items() if not key[2] and "sends" not in key[0]
    } == {
        ("`unhang audit --via clush`", 6, 0): 6,
        ("`unhang audit --via clush`", 4, 0): 4,
        ("`unhang audit --via ansible`", 4, 0): 4,
    }
    # a machine that is busy may miss the connect deadline
    assert all(answered <= count - dead for (_, count, dead), answered in read.items())
    assert {dead for _, _, dead in read} == {0, 2, 3}


def test_what_it_is_measured_against_has_rows_of_the_same_nodes(rows):
    for name in ("`clush -b true`", "`ansible -m setup`"):
        assert {(row[1], row[2]) for row in rows if row[0] == name} >= {("4", "0"), ("4", "2")}
    assert {row[2] for row in rows if row[0] == "`unhang audit --via files -i`"} == {"20"}
    assert all(float(row[3]) > 0 and float(row[6]) > 0 for row in rows)
