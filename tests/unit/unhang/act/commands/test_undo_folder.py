"""The folder of an undo lies in the run that it undoes: a link there is refused, and a run in which
others could make one after it was looked at."""

from __future__ import annotations

import argparse
import os

import pytest

from unhang.act.commands.undo import planned_undo
from unhang.act.rollout.journal import begin
from unhang.core.errors import UserError

GIVEN = {"rule": None, "severity": None, "host": None, "group": None, "through": False}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_the_place_of_an_undo_is_refused_and_nothing_is_written_behind_it(
    tmp_path, is_there
):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    (run / "run.json").write_text("{}")
    begin(run, "2026-11-20T07:00:00Z", {})
    if is_there:
        elsewhere.mkdir()
    (run / "undo").symlink_to(elsewhere)
    with pytest.raises(
        UserError,
        match=(
            r"/undo is a symbolic link, not a folder of this run; nothing was read or"
            r" written"
        ),
    ):
        planned_undo(str(run), argparse.Namespace(**GIVEN))
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("place", ["run", "run/undo"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_where_others_may_write_a_link_could_come_after_the_look_so_nothing_is_written(
    tmp_path, place, mode
):
    (tmp_path / "run" / "undo").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    begin(tmp_path / "run", "2026-11-20T07:00:00Z", {})
    (tmp_path / place).chmod(mode)
    with pytest.raises(
        UserError,
        match=(
            rf"{tmp_path / place} is not a folder that only you or root can write: others may put"
            r" a link"
        ),
    ):
        planned_undo(
            str(tmp_path / "run"),
            argparse.Namespace(**GIVEN),
        )
    assert list((tmp_path / "run" / "undo").iterdir()) == []
    (tmp_path / place).chmod(0o755)  # what the message says to type
    # this run has no findings; the folder is no longer the reason
    with pytest.raises(UserError, match="what the judge found is not at"):
        planned_undo(
            str(tmp_path / "run"),
            argparse.Namespace(**GIVEN),
        )


def test_a_run_of_another_user_is_not_undone(tmp_path, monkeypatch):
    (tmp_path / "run.json").write_text("{}")
    begin(tmp_path, "2026-11-20T07:00:00Z", {})
    tmp_path.chmod(0o755)
    user = os.geteuid() + 1
    os.chown(tmp_path, 4321, -1) if os.geteuid() == 0 else None
    monkeypatch.setattr("unhang.core.run.private_file.os.geteuid", lambda: user)
    with pytest.raises(UserError, match="others may put a link in it"):
        planned_undo(str(tmp_path), argparse.Namespace(**GIVEN))
