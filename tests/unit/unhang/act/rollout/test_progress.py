"""The display of a running rollout: a line for each step that ended, or a screen, from the journal
only."""

from __future__ import annotations

import io
import json

import pytest
import yaml
from fakes.role_play import PROJECT
from rollout_plans import GROUPS, Recorded, planned

from unhang.act.commands.preview import preview_line
from unhang.act.commands.remediate import shown_line
from unhang.act.commands.rollout_display import following
from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.progress import Progress, elapsed
from unhang.act.rollout.steps import BEGUN, DONE, FAILED, FAILURE_LIMIT, ROLLOUT, Entry
from unhang.act.rollout.waiting import DRAIN_WAIT_S, SMOKE_S, limit_of, until_words


def at(seconds):
    return f"2026-11-20T07:{seconds // 60:02d}:{seconds % 60:02d}Z"


BEGINNING = [
    Entry(at(0), "", ROLLOUT, BEGUN, 1, {"by": "ops"}),
    Entry(at(1), "", FAILURE_LIMIT, DONE, 1, {"wave": "canary 1", "why": ""}),
]
LOCKED = [
    Entry(at(2), "a", "lock", BEGUN),
    Entry(at(14), "a", "lock", DONE, 7, {"fencing": 7, "boot_id": "a-boot"}),
]
WAITING = Entry(at(20), "a", "wait", BEGUN, 7, {"boot_id": "a-boot", "until": at(3600 - 1)})


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path)


def test_each_step_that_ended_is_a_line_with_its_time(plan):
    assert list(Progress(plan).feed([*BEGINNING, *LOCKED, WAITING])) == [
        "3 nodes in 2 waves: begins",
        "canary 1: 1 node; 0 waves done, 1 to come",
        "a: lock done, 12 s",
        "a: wait until 2026-11-20T07:59:59Z at the latest",
    ]


def test_why_a_step_failed_and_how_the_node_ended_stand_in_its_line(plan):
    refused = [
        Entry(at(2), "a", "lock", BEGUN),
        Entry(at(3), "a", "lock", FAILED, 0, {"why": "another run has it"}),
    ]
    stopped = Entry(
        at(4),
        "",
        FAILURE_LIMIT,
        FAILED,
        1,
        {"wave": "wave 1", "why": "not proved healthy among the canaries: a"},
    )
    lines = list(
        Progress(plan).feed([*BEGINNING, *refused, stopped, Entry(at(5), "", ROLLOUT, DONE, 1)])
    )[2:]
    assert lines == [
        "a: lock failed, 1 s: another run has it; deferred",
        "wave 1: nothing new is begun: not proved healthy among the canaries: a",
    ]


def test_the_screen_folds_nodes_by_step_and_state_and_says_until_when_it_waits(plan):
    progress = Progress(plan)
    list(progress.feed([*BEGINNING, *LOCKED, WAITING]))
    assert progress.screen(at(270)) == [
        "canary 1: 1 node; 0 waves done, 1 to come",
        "  wait           a  for 4 min 10 s, until 2026-11-20T07:59:59Z at the latest",
        "  to come        b,c  2 nodes",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (-5, "0 s")]
)
def test_a_time_is_reported_in_two_units_and_never_below_nothing(seconds, text):
    assert elapsed(at(100), at(100 + seconds)) == text


def test_plain_lines_tell_of_this_controller_and_not_of_an_earlier_one(tmp_path, plan):
    recorded, output = Recorded(tmp_path, plan), io.StringIO()
    recorded.begin()
    recorded.through("a")
    with following(tmp_path, plan, output) as note:
        recorded.begin()
        recorded.through("b")
        note("unhang: something else")
    lines = output.getvalue().splitlines()
    assert "unhang: something else" in lines
    assert [line for line in lines if line.startswith("unhang: a:")] == []
    assert (
        sum(
            line.startswith("unhang: b: release done") and line.endswith("; released")
            for line in lines
        )
        == 1
    )
    assert all("\x1b" not in line for line in lines)
    assert read_journal(tmp_path).torn == ()


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def test_a_terminal_has_one_screen_that_is_taken_away_at_the_end(tmp_path, plan, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    recorded, output = Recorded(tmp_path, plan), Terminal()
    with following(tmp_path, plan, output):
        recorded.begin()
        recorded.through("a")
    shown = output.getvalue()
    assert "  released       a  1 node\n" in shown
    assert "  to come        b,c  2 nodes\n" in shown
    assert shown.endswith("\x1b[3A\x1b[J")


def test_a_journal_that_cannot_be_read_is_named_once(tmp_path, plan):
    output = io.StringIO()
    with following(tmp_path, plan, output):
        (tmp_path / "journal.jsonl").write_text("nothing\n" + json.dumps({"at": "x"}) + "\n")
    assert output.getvalue().count("the journal could not be followed: line") == 1


def defaults(role):
    return yaml.safe_load((PROJECT / "roles" / role / "defaults" / "main.yml").read_text())


def test_how_long_jobs_are_waited_for_is_the_roles_own_limit():
    assert (
        defaults("drain")["drain_wait_timeout_s"],
        defaults("smoke_test")["smoke_test_deadline_s"],
    ) == (DRAIN_WAIT_S, SMOKE_S)


@pytest.mark.parametrize(
    ("step", "variables", "kinds", "seconds"),
    [
        ("wait", {}, 1, DRAIN_WAIT_S),
        ("wait", {"drain_wait_timeout_s": "60"}, 1, 60),
        ("wait", {"drain_wait_timeout_s": "{{ hours * 3600 }}"}, 1, 0),
        ("wait", {"drain_beside_jobs": "true"}, 1, 0),
        ("reboot", {}, 1, 2 * 1800 + 120),
        ("reboot_back", {"unhang_reboot_timeout_s": 60}, 1, 240),
        ("reboot", {"unhang_reboot_timeout_s": "{{ x }}"}, 1, 0),
        ("smoke_alone", {}, 3, 600),
        ("smoke_together", {"smoke_test_deadline_s": 100}, 3, 300),
        ("smoke_alone", {"unhang_smoke": False}, 1, 0),
        ("audit", {}, 1, 0),
        ("apply", {}, 1, 0),
    ],
)
def test_which_steps_have_an_end_and_when(step, variables, kinds, seconds):
    assert limit_of(step, variables, kinds) == seconds


def test_the_play_waits_for_a_reboot_as_long_as_is_said():
    tasks = PROJECT / "playbooks" / "tasks" / "rollout"
    assert "unhang_reboot_timeout_s | default(1800)" in (tasks / "reboot.yml").read_text()
    assert "timeout: 120" in (tasks / "reboot.yml").read_text()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("wait", "until T at the latest"),
        ("reboot", "back by T, or it has failed"),
        ("smoke_alone", "until T, longer if it fails"),
    ],
)
def test_until_when_is_said_as_it_is_meant(step, words):
    assert (until_words(step, "T"), until_words(step, "")) == (words, "")


def test_a_reboot_is_said_with_its_deadline_in_lines_and_on_the_screen(plan):
    progress = Progress(plan)
    begun = Entry(at(20), "a", "reboot", BEGUN, 7, {"boot_id": "a-boot", "until": at(3600 - 1)})
    assert (
        list(progress.feed([*BEGINNING, *LOCKED, begun]))[-1]
        == "a: reboot back by 2026-11-20T07:59:59Z, or it has failed"
    )
    assert (
        progress.screen(at(270))[1]
        == "  reboot         a  for 4 min 10 s, back by 2026-11-20T07:59:59Z, or it has failed"
    )


def test_a_conductor_writes_down_until_when_it_waits(tmp_path, plan):
    recorded = Recorded(tmp_path, plan)
    recorded.begin()
    recorded.through("a", until="lock")
    assert "until" not in read_journal(tmp_path).entries[-1].evidence
    recorded.begin()
    assert recorded.ask("a", "lock", GROUPS, "9", 60) is not None
    begun = read_journal(tmp_path).entries[-1]
    assert elapsed(begun.at, begun.evidence["until"]) in ("59 s", "1 min 0 s", "1 min 1 s")


def test_of_ansibles_output_only_failures_are_told_beside_the_journal():
    assert (
        shown_line(
            'fatal: [a]: FAILED! => {"changed": false, "msg": "a deferred: the journal has no change of it"}'
        )
        == "unhang: a: deferred: the journal has no change of it"
    )
    assert (
        shown_line(r'fatal: [a]: UNREACHABLE! => {"msg": "no route to \"a\""}')
        == 'unhang: a: no route to "a"'
    )
    assert shown_line(r'fatal: [a]: FAILED! => {"msg": "no \q JSON"}') == r"unhang: a: no \q JSON"
    full = (
        r'{"msg": "non-zero return code", "rc": 2, "stderr": "unhang: No space left on device at'
        r' \"runs\"", "stdout": ""}'
    )
    assert (
        shown_line(f"fatal: [a -> localhost]: FAILED! => {full}")
        == 'unhang: a -> localhost: unhang: No space left on device at "runs"'
    )
    silent = '{"msg": "non-zero return code", "rc": 2, "stderr": ""}'
    assert shown_line(f"fatal: [a]: FAILED! => {silent}") == "unhang: a: non-zero return code"
    assert shown_line("rollout: a: lock done") == shown_line("TASK [Audit] ****") == ""


def test_a_preview_reports_a_reason_once_whichever_node_and_task_it_comes_from(capsys):
    report = preview_line(verbose=False)
    for host, text in [
        ("a", "expected x, found y; next: ssh a"),
        ("b", "expected x, found y; next: ssh b"),
        ("a", "expected z"),
        ("b", "no route"),
    ]:
        report(f'fatal: [{host}]: FAILED! => {{"msg": "{text}"}}')
        report(f'fatal: [{host}]: FAILED! => {{"msg": "{host} is not proved healthy: {text}"}}')
    assert capsys.readouterr().err.splitlines() == [
        "unhang: a: expected x, found y; next: ssh a",
        "unhang: a: expected z",
        "unhang: b: no route",
    ]
    preview_line(verbose=True)("TASK [Audit] ****")
    assert capsys.readouterr().err == "TASK [Audit] ****\n"
