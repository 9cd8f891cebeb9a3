"""The first screen and the plan of a fleet of 24 nodes with six different faults."""

from __future__ import annotations

import json
import re

import faulty_fleet
import pytest

from unhang.audit.report.screen import LINES, render_screen
from unhang.cli import main
from unhang.core.run.own_runs import mark_as_own
from unhang.judge.triage.run_judging import judge_folder

WIDTH = 80


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = faulty_fleet.write_fleet(tmp_path_factory.mktemp("fleet") / "run")
    judge_folder(folder, [], None, "2026-11-20")
    mark_as_own(folder)
    return folder


@pytest.fixture(scope="module")
def causes(run):
    return json.loads((run / "findings.json").read_text())["causes"]


@pytest.fixture(scope="module")
def screen(run):
    return render_screen(json.loads((run / "findings.json").read_text()), WIDTH, run="runs/latest")


def test_every_error_is_on_the_screen_before_any_warning(screen, causes):
    lines = screen.splitlines()
    assert len(lines) <= LINES
    grave = [one for one in causes if one["severity"] in ("critical", "error")]
    assert len({one["rule"] for one in grave}) == 5
    places = [
        next(place for place, line in enumerate(lines) if re.match(rf"[A-Z]+ .*{host}", line))
        for host in ("13", "07", "03", "09", "05-06")
    ]
    assert places == sorted(places)
    assert not any(line.startswith("WARNING") for line in lines[: places[-1]])


def test_a_dead_port_comes_before_a_power_limit_on_two_nodes(causes):
    rules = [one["rule"] for one in causes]
    assert rules.index("rdma-rail-down") < rules.index("gpu-power-limit-far-below-default")


def test_what_to_do_is_whole_or_not_on_the_screen(screen, causes):
    done = re.findall(r"^  do +(.*(?:\n {10}.*)*)", screen, re.MULTILINE)
    said = {
        " ".join(one["remedy"]["person"][0].split()) for one in causes if one["remedy"]["person"]
    }
    assert done  # what was found comes first where the screen is full
    for text in done:
        bare = re.sub(r" \(and \d+ more alike\)$", "", " ".join(text.split()))
        bare = re.sub(r"^role \w+; ", "", bare)
        assert any(one == bare or one.startswith(bare + ". Sources disagree") for one in said), bare


def test_the_plan_says_what_a_person_does_and_how_a_critical_node_is_drained(run, capsys):
    assert main(["plan", str(run)]) == 0
    shown = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
    work = shown[shown.index("FOR A PERSON") :]
    assert (
        "; unhang report --host HOST -o ticket writes the vendor's ticket (gpu-needs-replacement)"
        " scontrol update nodename=gpu13 state=drain reason='unhang: gpu-needs-replacement'" in work
    )
    ranked = [work.index(one) for one in ("gpu-needs-repl", "rdma-rail-down", "pcie-width-below")]
    assert ranked == sorted(ranked)
    assert "group-rdma-ports-differs" not in work  # the port's own finding explains it
