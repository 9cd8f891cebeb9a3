"""No command prints a line that is wider than the terminal, unless the line is one word: a path, an
id, an address."""

from __future__ import annotations

import copy
import json

import five_situations
import fleets
import pytest

from unhang.cli import main
from unhang.core.run.own_runs import mark_as_own
from unhang.core.run.run_folder import file_stem

RUN, LATER = "20261120T070000Z-0123456789", "20261121T070000Z-0123456789"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of two runs with plans, and their history."""
    folder = tmp_path_factory.mktemp("runs")
    for name, first in ((RUN, 0), (LATER, 9)):
        findings, nodes = copy.deepcopy(five_situations.fleet())
        findings["run"]["id"] = name
        findings["findings"] = findings["findings"][first:]
        fleets.write_run(folder / name, findings, nodes)
        run = {
            **json.loads((folder / name / "run.json").read_text()),
            "limit": "train,gpu[001-016]",
            "inventory": ["/srv/inventory/mycluster"],
        }
        (folder / name / "run.json").write_text(json.dumps(run))
        mark_as_own(folder / name)
        for path in (folder / name / "nodes").iterdir():
            path.unlink()
        for node in nodes:
            (folder / name / "nodes" / f"{file_stem(node['host'])}.json").write_text(
                json.dumps(node)
            )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize(
    "words",
    [
        ["report", RUN],
        ["report", RUN, "-v"],
        ["plan", RUN],
        ["remediate", RUN, "--status"],
        ["history"],
        ["history", "dev01"],
        ["history", "driver-545-23-08-p2p-deadlock"],
        ["history", "diff", RUN, LATER],
        ["history", "diff", RUN, LATER, "--run", "latest"],
        ["catalogue", "--rule", "driver-*"],
        ["explain", "driver-545-23-08-p2p-deadlock"],
        ["explain", "nccl", "2.21.5"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(runs, words, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("UNHANG_RUNS", str(runs))
    if "remediate" in words:
        main(["plan", str(runs / RUN), "-q"])
        capsys.readouterr()
    assert main(words) in (0, 1), capsys.readouterr().err
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) > 2
    wide = [line for line in shown if len(line) > width]
    unbroken = [
        line for line in wide if max(map(len, line.removesuffix("\\").split())) <= width // 2
    ]
    assert unbroken == []


def test_runs_of_a_pipe_stay_one_line_each(runs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("UNHANG_RUNS", str(runs))
    assert main(["history"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    verdicts = "CRITICAL ERROR WARNING UNREAD NOT A GPU NODE HEALTHY PARTLY READ"
    assert head.split() == f"RUN STARTED (UTC) NODES {verdicts} INVENTORY LIMIT".split()
    assert [row.split()[0] for row in rows] == [RUN, LATER]


def test_a_run_in_a_narrow_terminal_has_what_the_table_has(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("UNHANG_RUNS", str(runs))
    assert main(["history"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        f"{RUN} 2026-03-02 03:14, inventory/mycluster, limit train,gpu[001-016] 27 nodes: " in shown
    )
