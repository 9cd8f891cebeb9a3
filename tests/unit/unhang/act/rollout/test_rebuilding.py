"""A journal that was lost: journal.lock and the nodes say that the rollout has begun, and the
journal is rebuilt from what the nodes have kept."""

from __future__ import annotations

import pytest
from rollout_plans import GROUPS, HOSTS, Recorded, planned

from unhang.act.rollout.journal import JOURNAL, controllers_of_a_lost_journal, read_journal
from unhang.act.rollout.rebuilding import Kept
from unhang.act.rollout.status import exit_code, status_of
from unhang.act.rollout.status_table import render_status
from unhang.cli import main
from unhang.core.schemas.check import check_schema

RUN = "20261120T070000Z-0123456789"
FINISHED = {"id": "s1", "run": RUN, "status": "finished"}
BACK = {**FINISHED, "status": "rolled_back"}
OTHER = {**FINISHED, "run": "another"}


@pytest.fixture
def lost(tmp_path):
    """A rollout that has begun, and whose journal is gone."""
    found = Recorded(tmp_path, planned(tmp_path))
    found.begin()
    (tmp_path / JOURNAL).unlink()
    return found


def rebuilt(lost, **kept):
    """The next controller, after the nodes were asked."""
    found = Recorded(lost.folder, lost.plan)
    found.begin()
    assert found.standing().is_lost
    found.rebuild(
        {
            host: kept.get(host, Kept(f"{host}-boot"))
            for host in HOSTS
            if kept.get(host, True) is not None
        }
    )
    assert not found.standing().is_lost
    return found


def status(folder, plan):
    found = status_of(plan, read_journal(folder), lost=controllers_of_a_lost_journal(folder))
    assert list(check_schema(found, "rollout-status-1")) == []
    return found


def test_a_rollout_that_has_not_begun_has_lost_no_journal(tmp_path):
    plan = planned(tmp_path)
    assert controllers_of_a_lost_journal(tmp_path) == 0
    assert "not begun" in render_status(status(tmp_path, plan))


@pytest.mark.parametrize("content", [None, b""])
def test_the_status_says_that_the_journal_was_lost_and_calls_no_node_untouched(lost, content):
    if content is not None:
        (lost.folder / JOURNAL).write_bytes(content)
    text = render_status(status(lost.folder, lost.plan))
    assert "it has begun, and what it did is known to its nodes alone" in text
    assert (
        "the journal of this rollout was lost: journal.lock beside it says that this rollout has"
        " begun" in text
    )
    assert "not touched" not in text
    assert "not begun" not in text
    assert exit_code(status(lost.folder, lost.plan)) == 1


def test_an_undo_of_a_rollout_whose_journal_was_lost_says_how_to_get_there(lost, capsys):
    (lost.folder / "run.json").write_text(
        '{"schema": "unhang/run/1", "id": "r", "started": "2026-11-20T07:00:00Z", "hosts": []}'
    )
    assert main(["remediate", str(lost.folder), "--undo"]) == 2
    told = capsys.readouterr().err
    assert " was lost: " in told
    assert f"remediate --end {lost.folder}" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "state"),
    [
        (Kept("a-boot2", [OTHER]), "to come"),
        (Kept("a-boot2", [FINISHED]), "released"),
        (Kept("a-boot2", [BACK]), "kept"),
        (Kept("a-boot2", [FINISHED], True), "unfinished"),
        (Kept("a-boot2", [FINISHED], lock=RUN), "unfinished"),
        (Kept("a-boot2", [BACK], True), "unfinished"),
        (None, "unfinished"),
    ],
    ids=["untouched", "released", "kept", "changed", "locked", "rolled back", "silent"],
)
def test_a_node_is_what_it_has_kept(lost, kept, state):
    assert rebuilt(lost, a=kept).standing().node("a").state == state


def test_a_node_that_was_changed_and_not_proved_goes_through_its_change_and_its_proof_again(lost):
    found = rebuilt(lost, a=Kept("a-boot", [FINISHED], True))
    assert found.ask("a", "lock", GROUPS, "0").token == 0
    again = Recorded(lost.folder, lost.plan)
    again.begin()
    again.through("a")
    assert again.standing().node("a").state == "released"


def test_a_node_that_was_rolled_back_is_audited_again_and_kept(lost):
    rebuilt(lost, a=Kept("a-boot", [BACK], True))
    again = Recorded(lost.folder, lost.plan)
    again.begin()
    again.through("a", until="audit_back")
    node = again.standing().node("a")
    assert (node.begun, node.boots, "roll_back" in node.done) == ("audit_back", (), False)
    assert (
        node.failure
        == "apply: the journal of this rollout was lost, and this is what the node has kept: it was"
        " rolled back"
    )


def test_a_controller_that_dies_before_it_has_asked_the_nodes_leaves_that_to_the_next(lost):
    again = Recorded(lost.folder, lost.plan)
    again.begin()
    assert "not touched" not in render_status(status(lost.folder, lost.plan))
    assert rebuilt(lost, a=Kept("a-boot2", [FINISHED])).standing().node("a").state == "released"


def test_what_was_rebuilt_is_said_in_the_status(lost):
    rebuilt(lost, a=Kept("a-boot2", [FINISHED]))
    assert (
        "lost       the journal of this rollout was lost; by what the nodes have kept: 1 released"
        in render_status(status(lost.folder, lost.plan))
    )
