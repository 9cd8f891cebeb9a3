"""A site's own hook, really run: its arguments, its exit codes, and invalid answers."""

from __future__ import annotations

import json

import pytest

from unhang_node.change.drain.hook import (
    HookCall,
    call_hook,
    call_states,
    parse_answer,
    parse_states,
)
from unhang_node.change.drain.reasons import DrainRefused

GOOD = {"drained": True, "by": "site", "reason": "unhang r1: driver", "jobs": [], "owned": True}


@pytest.fixture
def hook(tmp_path):
    """hook(step, body, **options): the answer of a shell script; calls() what it was called
    with."""
    log = tmp_path / "calls"

    def run(step, body, **options):
        script = tmp_path / "hook"
        script.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {log}; echo >> {log}\n{body}\n')
        script.chmod(0o755)
        given = {"timeout_s": 0, "call_timeout_s": 60, "poll_s": 0.01, **options}
        return call_hook(
            HookCall([str(script), "--site=a"], step, "gpu001", "r1", "driver", **given)
        )

    run.calls = lambda: log.read_text().splitlines()
    return run


def say(**changes):
    return f"cat <<'X'\n{json.dumps({**GOOD, **changes})}\nX"


def test_a_hook_gets_step_node_run_and_reason_and_its_answer_is_taken(hook):
    assert hook("drain", say()) == ((True, "site", "unhang r1: driver", [], True, ""), True, "")
    assert hook.calls() == ["--site=a|drain|gpu001|r1|unhang r1: driver|"]


def test_a_hook_that_is_not_done_is_called_again_until_it_is(hook, tmp_path):
    body = f'[ "$(wc -l < {tmp_path}/calls)" -ge 3 ] && code=0 || code=75\n{say()}\nexit $code'
    assert hook("wait", body, timeout_s=200)[0].drained
    assert [line.split("|")[1] for line in hook.calls()] == ["wait"] * 3


def test_jobs_that_are_left_are_named(hook):
    jobs = [{"id": "7", "user": "alice", "state": "RUNNING"}]
    with pytest.raises(DrainRefused, match="jobs 7 are there; no job was touched") as refused:
        hook("wait", say(jobs=jobs))
    assert refused.value.answer.jobs == [
        {"id": "7", "user": "alice", "state": "RUNNING", "ends": ""}
    ]
    assert hook("wait", say(jobs=jobs), beside_jobs=True)[0].jobs


def test_a_hook_that_contradicts_itself_is_refused(hook):
    with pytest.raises(DrainRefused, match="is not drained: it takes jobs"):
        hook("drain", say(drained=False, owned=False))
    with pytest.raises(DrainRefused, match="is not released: this run still drains it"):
        hook("release", say())


def test_what_somebody_else_drained_is_reported_as_left(hook):
    answer, changed, note = hook("release", say(owned=False, by="alice", reason="bad DIMM"))
    assert (answer.owned, changed, note) == (
        False,
        False,
        "gpu001 is drained by alice (bad DIMM): left so",
    )


def test_a_preview_asks_for_the_status_alone(hook):
    answer, changed, note = hook("drain", say(drained=False, owned=False), preview=True)
    assert (answer.drained, changed, note) == (False, True, "the hook would be called with drain")
    assert [line.split("|")[1] for line in hook.calls()] == ["status"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo no such node >&2; exit 1", "gave code 1: no such node"),
        ("sleep 100", "no answer within"),
        ("kill -9 $$", "code -9"),
    ],
)
def test_a_hook_that_fails_is_named_with_its_last_words(hook, body, message):
    with pytest.raises(ValueError, match=message):
        hook("drain", body, call_timeout_s=1 if "sleep" in body else 60)


def test_a_hook_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="drain_command names it"):
        call_hook(HookCall(["/nowhere/hook"], "drain", "gpu001", "r1", "x", 0, 5, 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done",
        "[]",
        "[" * 100000,
        '{"drained": true}',
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "drained": "yes"}),
        json.dumps({**GOOD, "drained": 1}),
        json.dumps({**GOOD, "jobs": None}),
        json.dumps({**GOOD, "jobs": ["7"]}),
        json.dumps({**GOOD, "jobs": [{"user": "alice"}]}),
        json.dumps({**GOOD, "jobs": [{"id": 7}]}),
        json.dumps(GOOD) * 2,
    ],
)
def test_an_answer_of_another_form_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^the hook") as refused:
        parse_answer(text)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_what_a_hook_says_reaches_no_terminal_as_it_is():
    answer = parse_answer(json.dumps({**GOOD, "by": "a\x1b[2J\nb", "reason": "r" * 5000}))
    assert answer.by == "a [2J b"
    assert len(answer.reason) == 400


def test_a_hook_that_prints_without_end_is_given_up(hook):
    with pytest.raises(ValueError, match="beyond the limit"):
        hook("drain", "head -c 2000000 /dev/zero")


def test_all_nodes_are_listed_by_one_call(tmp_path):
    script, log = tmp_path / "hook", tmp_path / "calls"
    answer = json.dumps({"in_service": ["gpu001"], "out": {"gpu002": "alice (a\nb)"}})
    script.write_text(f"#!/bin/sh\nprintf '%s|' \"$@\" > {log}\ncat <<'X'\n{answer}\nX\n")
    script.chmod(0o755)
    assert call_states([str(script)], "r1", 60) == {
        "in_service": ["gpu001"],
        "out": {"gpu002": "alice (a b)"},
    }
    assert log.read_text() == "states|all|r1|unhang r1: states|"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"in_service": []}', '{"in_service": {}, "out": {}}',
    '{"in_service": [1], "out": {}}', '{"in_service": ["a"], "out": {"a": "x"}}',
     '{"in_service": [], "out": {"a": null}}', '{"in_service": [], "out": {}, "more": 1}'],
)  # fmt: skip
def test_a_list_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match=r"^the hook"):
        parse_states(text)
