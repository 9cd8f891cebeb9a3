"""What became of the watcher's verdicts."""

from __future__ import annotations

import argparse
import json
import stat
from pathlib import Path

import pytest

from unhang.core.errors import UserError
from unhang.jobs.commands import watch
from unhang.jobs.watch.record import (
    FAILED,
    RIGHT,
    UNKNOWN,
    UNSEEN,
    WELL,
    WRONG,
    Record,
    keep,
    read_records,
    render_sum,
    summed,
)

PAGE = Path(__file__).resolve().parents[5] / "docs" / "inspect.md"


def watched(*moments, how, act=None, job="slurm 7", host="gpu01"):
    """A watch of moments (t, seconds since the last progress, or a verdict's headline)."""
    record = Record(job, host, began=1000.0)
    for moment in moments:
        if isinstance(moment, str):
            record.hung(moment)
            if act is not None:
                record.would_end(act)
        else:
            record.sampled(*moment)
    record.ended(how)
    return record


STANDS = [(0, 0), (60, 0), (120, 60), "hung: rank 3", (180, 120)]


@pytest.mark.parametrize(
    ("moments", "how", "became"),
    [
        (STANDS, FAILED, RIGHT),
        (STANDS, WELL, WRONG),
        (STANDS, UNSEEN, UNKNOWN),
        # it went on for more than a minute, and failed hours later for another reason
        ([*STANDS, (182, 0), (240, 0), (244, 0), (9000, 0)], FAILED, WRONG),
        # its watchdog writes to the log and ends it: no work
        ([*STANDS, (182, 0), (184, 0), (190, 0)], FAILED, RIGHT),
        # one line in the log, then nothing until somebody cancels it
        ([*STANDS, (182, 0), (300, 118), (900, 700)], FAILED, RIGHT),
    ],
)
def test_a_verdict_is_judged_by_what_the_job_did_then(moments, how, became):
    (verdict,) = watched(*moments, how=how).verdicts
    assert verdict.became == became


def test_a_job_that_the_watcher_ended_proves_nothing_and_one_in_shadow_does():
    assert watched(*STANDS, how=FAILED, act=True).verdicts[0].became == UNKNOWN
    assert watched(*STANDS, how=FAILED, act=False).verdicts[0].became == RIGHT


def test_would_have_ended_is_news_once_for_a_verdict():
    record = Record("pid 1", "n")
    assert record.would_end(False) is False  # no verdict yet
    record.hung("hung: rank 3")
    assert (record.would_end(False), record.would_end(False)) == (True, False)
    record.hung("hung: rank 4")
    assert record.would_end(False) is True


def test_the_file_is_the_user_s_own_and_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "state" / "unhang" / "watched.jsonl"
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    for how in (FAILED, WELL):
        assert keep(watched(*STANDS, how=how, act=False), environ) == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as more:
        more.write('{"schema":"unhang/watched/1","job":3}\nrubbish\n')
    rows, strange = read_records([path])
    assert ([row["verdicts"][0]["became"] for row in rows], strange) == ([RIGHT, WRONG], 2)
    assert rows[0]["seconds"] == 180


def test_a_record_that_cannot_be_kept_is_a_line_and_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    problem = keep(
        watched(*STANDS, how=WELL), {"UNHANG_WATCHED": str(tmp_path / "file" / "watched.jsonl")}
    )
    assert problem.startswith("this watch is not in the record ")


def rows_of(*records):
    return [json.loads(record.line()) for record in records]


def test_the_sum_counts_a_job_of_several_nodes_once_and_its_wrong_verdict_too():
    long = [(0, 0), (7200, 60), "hung: rank 3", (7230, 90)]
    found = summed(
        rows_of(
            watched(*long, how=WELL, act=False, host="gpu01"),
            watched(*long, how=WELL, act=False, host="gpu02"),
            watched((0, 0), (7200, 0), how=WELL, job="slurm 8"),
            watched(*STANDS, how=FAILED, job="pid 41"),
        )
    )
    assert (found["watches"], found["jobs"], found["job_hours"]) == (4, 3, 4.1)
    assert found["verdicts"] == {WRONG: 1, RIGHT: 1}
    assert found["would"] == {WRONG: 1}
    assert found["alarms"] == pytest.approx(1000 / 4.06, abs=0.2)
    assert f"\n$ unhang watch --record\n{render_sum(found, 0)}```\n" in PAGE.read_text()
    assert render_sum(found, 2).splitlines()[-1] == "2 lines not read: no watch's record"


def test_less_than_an_hour_has_no_rate_and_a_headline_with_controls_has_none():
    found = summed(rows_of(watched(*STANDS[:3], "hung: \x1b[2J", how=WELL)))
    assert found["alarms"] is None
    text = render_sum(found, 0)
    assert "less than one job-hour was watched" in text
    assert "\x1b" not in text


def parsed(*words):
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    return parser.parse_args(words)


def test_the_command_shows_the_sum_of_files_and_says_when_there_is_none(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("UNHANG_WATCHED", str(tmp_path / "none"))
    with pytest.raises(UserError, match="there is no record of earlier watches"):
        watch.run(parsed("--record"))
    for name in ("a", "b"):
        keep(watched(*STANDS, how=FAILED, host=name), {"UNHANG_WATCHED": str(tmp_path / name)})
    assert watch.run(parsed("--record", str(tmp_path / "a"), str(tmp_path / "b"))) == 0
    assert "verdicts of a hang: 1: 1 right, 0 wrong" in capsys.readouterr().out


def test_acting_is_asked_for_beside_what_it_acts_on():
    with pytest.raises(UserError, match="--act needs --on-hang terminate"):
        watch.run(parsed("--pid", "1", "--act"))
