"""The run folder of somebody else: whatever stands in a field of it, a report and a plan show it as
text, and end in a known way."""

from __future__ import annotations

import copy
import json
import os

import fleets
import pytest
from rollout_plans import HOSTS, planned

from unhang import cli
from unhang.act.commands import undo
from unhang.act.rollout.undo import undo_plan
from unhang.core.errors import UserError
from unhang.core.run.own_runs import is_own, mark_as_own, own_inventories

HOSTILE = "\x1b[31mmark\r\nunhang: healthy \u202e"
COMMANDS = (("report",), ("report", "-v"), ("plan",))


def of_somebody_else():
    """findings.json of three nodes, with a failure, one without a verdict and one of a group."""
    found = fleets.finding(
        "xid-fatal", "gpu007", "critical", "t", "e", "f", owner="vendor",
        where={"index": 0, "name": "n"}, remedy={"person": "look"},
        evidence=[{"path": "a.b", "value": "v"}],
    )  # fmt: skip
    unread = fleets.finding(
        "a-rule",
        "gpu008",
        "error",
        "t",
        "e",
        "f",
        verdict="unknown",
        missing=[{"path": "gpus", "status": "error", "reason": "r"}],
    )
    group = fleets.finding(
        "nodes-differ",
        None,
        "warning",
        "t",
        "e",
        "f",
        hosts=["gpu007", "gpu009"],
        scope="group",
        group="all",
    )
    return fleets.document([found, unread, group], {"ok": 2, "failed": 1})


def places(value, at=()):
    """The path to each text or number of a document; of a list that to its first."""
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for number in range(min(len(value), 1)):
            yield from places(value[number], (*at, number))
    else:
        yield at


PLACES = sorted(set(places(of_somebody_else())), key=str)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where a fault would be written
    nodes = [
        fleets.node("gpu007", ["all"], fleets.sections("d", 2, "a", "b", "c")),
        fleets.node("gpu008", ["all"], None, "failed", "why"),
    ]
    return fleets.write_run(tmp_path / "run", of_somebody_else(), nodes)


@pytest.mark.parametrize("value", [HOSTILE, None, ["x"]], ids=["text", "null", "list"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_each_field_is_shown_as_text_or_refused(run, capsys, place, value):
    document = copy.deepcopy(of_somebody_else())
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    (run / "findings.json").write_text(json.dumps(document))
    for command in COMMANDS:
        code = cli.main([*command, str(run)])
        out, errors = capsys.readouterr()
        assert code in (0, 1, 2)
        assert "a fault of unhang itself" not in errors, (command, errors)
        assert (out + errors).replace("\n", "").isprintable(), command
        assert not [
            line for line in (out + errors).splitlines() if line.startswith("unhang: healthy")
        ], command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("plan", name) for name in ("rule", "severity", "verdict")),
        *(
            ("report", name)
            for name in ("rule", "severity", "verdict", "title", "expected", "found")
        ),
    ],
)
def test_a_finding_without_what_is_read_is_refused_with_what_to_do(run, capsys, command, name):
    document = of_somebody_else()
    del document["findings"][0][name]
    refused(run, capsys, command, document)


@pytest.mark.parametrize("command", ["report", "plan"])
@pytest.mark.parametrize("name", ["severity", "verdict"])
def test_a_severity_or_verdict_that_no_judge_gives_is_refused(run, capsys, command, name):
    document = of_somebody_else()
    document["findings"][0][name] = "dire"
    assert f"'dire' - at `$.findings[0].{name}`" in refused(run, capsys, command, document)


@pytest.mark.parametrize("command", ["report", "plan"])
def test_nodes_under_a_verdict_that_no_judge_gives_are_refused(run, capsys, command):
    document = of_somebody_else()
    document["node_verdicts"]["dire"] = ["gpu007"]
    assert "`dire` - at `$.node_verdicts`" in refused(run, capsys, command, document)


def refused(run, capsys, command, document):
    """What is printed about a document that cannot be shown."""
    (run / "findings.json").write_text(json.dumps(document))
    assert cli.main([command, str(run)]) == 2
    errors = capsys.readouterr().err
    assert f"{run / 'findings.json'} is not what the judge writes: " in errors
    assert "next: unhang judge" in errors and errors.replace("\n", "").isprintable()
    return errors


def test_a_rollout_takes_the_inventory_of_a_run_that_was_made_here_alone(run, tmp_path):
    program = tmp_path / "hosts.sh"
    program.write_text("#!/bin/sh\n")
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**document, "inventory": [str(program)]}))
    with pytest.raises(UserError, match="give it as --inventory"):
        own_inventories(run)
    mark_as_own(run)
    assert own_inventories(run) == [str(program)]


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_undo_of_a_run_is_made_here_if_the_run_was(tmp_path, is_ours):
    folder = tmp_path / "20261120T070000Z-0123456789"
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps(
            {
                "schema": "unhang/run/1",
                "id": folder.name,
                "hosts": list(HOSTS),
                "inventory": ["/srv/hosts"],
            }
        )
    )
    plan = planned(folder)
    if is_ours:
        mark_as_own(folder)
    place, _ = undo._write(folder, 1, undo_plan(plan, HOSTS, 1, "2026-11-20T07:00:00Z"))
    assert is_own(place) is is_ours


def test_an_undo_made_under_an_open_umask_is_found_again(tmp_path):
    folder = tmp_path / "20261120T070000Z-0123456789"
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps(
            {"schema": "unhang/run/1", "id": folder.name, "hosts": list(HOSTS), "inventory": []}
        )
    )
    plan = undo_plan(planned(folder), HOSTS, 1, "2026-11-20T07:00:00Z")
    before = os.umask(0o000)
    try:
        place, _ = undo._write(folder, 1, plan)
    finally:
        os.umask(before)
    assert undo._undo_folder(folder, 1) == place
