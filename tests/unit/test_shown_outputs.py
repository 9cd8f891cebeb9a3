"""Outputs that a page shows: those that a slow test compares with a file, and what a command prints
of recorded evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang import cli

PROJECT = Path(__file__).resolve().parents[2]


def test_the_page_shows_the_inventory_of_slurm_as_it_is():
    graph = (PROJECT / "tests" / "fixtures" / "slurm_graph.txt").read_text(encoding="utf-8")
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    shown = page.partition("nodes.unhang_slurm.yml --graph\n")[2].partition("```")[0]
    first, last = shown.split("[…]\n")
    assert first and graph.startswith(first)
    assert last and graph.endswith(last)


@pytest.mark.parametrize(
    ("page", "log"),
    [
        ("README.md", "diagnose_real/eval-on-rank0-too-long.txt"),
        ("docs/diagnose.md", "diagnose/wrong_interface/docker-bridge-multi.log"),
    ],
)
def test_the_page_shows_what_diagnose_prints_of_a_recorded_log(page, log, capsys, monkeypatch):
    path = PROJECT / "tests" / "fixtures" / log
    monkeypatch.chdir(path.parent)
    assert cli.main(["diagnose", path.name]) == 1
    assert f"$ unhang diagnose {path.name}\n{capsys.readouterr().out}```" in (
        PROJECT / page
    ).read_text(encoding="utf-8")


def test_the_page_shows_what_inspect_prints_of_a_recorded_job(capsys):
    evidence = (
        PROJECT
        / "tests"
        / "fixtures"
        / "inspect"
        / "two_gpus"
        / "evidence"
        / "loader-RAS-and-stacks.json"
    )
    assert cli.main(["inspect", "--evidence", str(evidence)]) == 1
    printed = capsys.readouterr().out
    shown = (
        (PROJECT / "docs" / "inspect.md")
        .read_text(encoding="utf-8")
        .partition("    $ unhang inspect\n")[2]
        .partition("\n| you have")[0]
    )
    assert (
        "\n".join(line.removeprefix("    ") for line in shown.splitlines()).strip()
        == printed.strip()
    )
