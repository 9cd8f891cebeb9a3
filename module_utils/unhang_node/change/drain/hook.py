"""Calls a site's own hook for a scheduler that unhang does not support, and checks its answer."""

from __future__ import annotations

import os
import time

from ...base.named_tuple import NamedTuple
from ...base.parse.values import parse_json
from ...base.process import FOLDERS, ProcessResult, run_process
from .reasons import DrainAnswer, DrainRefused, reason_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence, Tuple

NOT_YET = 75  # EX_TEMPFAIL of sysexits.h
ANSWER_LIMIT_BYTES = 256 * 1024
MAX_JOBS = 10_000
MAX_TEXT = 400
TYPES: Dict[str, type] = {"drained": bool, "by": str, "reason": str, "jobs": list, "owned": bool}
JOB_FIELDS = ("id", "user", "state", "ends")
ALL_NODES = "all"


class HookCall(NamedTuple):
    """argv: the hook; timeout_s: for jobs to end; call_timeout_s: for one call; preview: only ask
    for the status."""

    argv: Sequence[str]
    step: str
    node: str
    run: str
    why: str
    timeout_s: float
    call_timeout_s: float
    poll_s: float
    beside_jobs: bool = False
    preview: bool = False


def call_hook(call: HookCall) -> Tuple[DrainAnswer, bool, str]:
    """(state of the node, whether anything was or would be changed, note for the operator). Raises
    DrainRefused, OSError, ValueError."""
    reason = reason_for(call.run, call.why)
    if call.preview:
        answer = _ask(call, "status", reason)[1]
        would = {"drain": not answer.drained, "release": answer.drained and answer.owned}.get(
            call.step, False
        )
        return answer, would, f"the hook would be called with {call.step}"
    until = time.monotonic() + call.timeout_s
    while True:
        code, answer = _ask(call, call.step, reason)
        unfinished = code == NOT_YET or (call.step == "wait" and bool(answer.jobs))
        if not unfinished or (call.step == "wait" and call.beside_jobs):
            break
        if time.monotonic() >= until:
            raise DrainRefused(
                f"{call.step} of {call.node} is not done after {call.timeout_s:g} s:"
                f" {_found(answer)}",
                answer,
            )
        time.sleep(max(0.0, min(call.poll_s, until - time.monotonic())))
    if call.step != "release" and not answer.drained:
        raise DrainRefused(
            f"{call.node} is not drained: it takes jobs, by the hook's own answer",
            answer,
        )
    if call.step == "release" and answer.drained and answer.owned:
        raise DrainRefused(
            f"{call.node} is not released: this run still drains it, by the hook's own answer",
            answer,
        )
    if answer.owned or not answer.drained:
        return answer, call.step != "wait", ""
    return (
        answer,
        False,
        (
            f"{call.node} is drained by {answer.by or 'somebody'}"
            f" ({answer.reason or 'no reason given'}): left so"
        ),
    )


def call_states(argv: Sequence[str], run: str, call_timeout_s: float) -> Dict[str, Any]:
    """{in_service: [name], out: {name: who took it out of service and why}} of all nodes, as the
    hook reports them. Raises OSError, ValueError."""
    call = HookCall(
        argv=argv,
        step="states",
        node=ALL_NODES,
        run=run,
        why="states",
        timeout_s=0,
        call_timeout_s=call_timeout_s,
        poll_s=1,
    )
    code, text = _run(call, "states", reason_for(run, "states"))
    if code:
        raise ValueError(f"{argv[0]} states ended with code {code}, not 0")
    return parse_states(text)


def parse_states(text: str) -> Dict[str, Any]:
    """Parses the JSON object that a hook prints for `states`. Raises ValueError with the fault."""
    given = _json_object(text)
    serving, out = given.get("in_service"), given.get("out")
    if (
        set(given) != {"in_service", "out"}
        or not isinstance(serving, list)
        or not isinstance(out, dict)
    ):
        raise ValueError(
            "the hook's answer must have in_service, a list, and out, an object, and has"
            f" {', '.join(sorted(map(str, given)))[:200] or 'nothing'}"
        )
    if not all(isinstance(text, str) for text in (*serving, *out.values())) or set(serving) & set(
        out
    ):
        raise ValueError(
            "the hook's answer must have names of nodes in in_service, and others with a text in"
            " out"
        )
    return {"in_service": serving, "out": {name: _line(why) for name, why in out.items()}}


def _found(answer: DrainAnswer) -> str:
    jobs = ", ".join(str(row["id"]) for row in answer.jobs or ())
    return f"jobs {jobs} are there; no job was touched" if jobs else "the hook says not yet"


def _ask(call: HookCall, step: str, reason: str) -> Tuple[int, DrainAnswer]:
    code, text = _run(call, step, reason)
    return code, parse_answer(text)


def _run(call: HookCall, step: str, reason: str) -> Tuple[int, str]:
    if not call.argv or call.node.startswith("-") or not call.node.isprintable() or not call.node:
        raise ValueError("drain_command names no program, or the node has no name")
    argv = [*call.argv, step, call.node, call.run, reason]
    path = f"{FOLDERS}:{os.environ.get('PATH', '')}".rstrip(":")
    result = run_process(
        argv, call.call_timeout_s, limit_bytes=ANSWER_LIMIT_BYTES, variables={"PATH": path}
    )
    return _code_of(result, argv, call.call_timeout_s), result.stdout


def _code_of(result: ProcessResult, argv: Sequence[str], timeout_s: float) -> int:
    """The hook's exit code, 0 or NOT_YET. Raises OSError, and ValueError for any other code."""
    if result.is_missing:
        raise FileNotFoundError(
            2,
            f"no program {argv[0]} for the hook: drain_command names it, drain_command_host where"
            " it is",
            argv[0],
        )
    if result.timed_out:
        raise ValueError(f"{argv[0]} {argv[-4]}: no answer within {timeout_s:g} s")
    if result.code not in (0, NOT_YET) or result.is_cut:
        found = (
            "an answer beyond the limit"
            if result.is_cut
            else f"code {result.code}: {result.last_words or 'it printed nothing'}"
        )
        raise ValueError(
            f"{argv[0]} {argv[-4]} must end with code 0 or {NOT_YET}, and gave {found}"
        )
    return result.code or 0


def parse_answer(text: str) -> DrainAnswer:
    """Parses the JSON object that a hook prints. Raises ValueError with the fault."""
    given = _json_object(text)
    if set(given) != set(TYPES):
        found = ", ".join(sorted(map(str, given)))[:200]
        raise ValueError(
            f"the hook's answer must have {', '.join(TYPES)}, and has {found or 'nothing'}"
        )
    wrong = [
        f"{name}: {type(given[name]).__name__}"
        for name, kind in TYPES.items()
        if type(given[name]) is not kind
    ]
    if wrong or len(given["jobs"]) > MAX_JOBS:
        raise ValueError(
            f"the hook's answer must have truth values, texts and a list of at most {MAX_JOBS}"
            f" jobs, and has {', '.join(wrong) or 'more jobs'}"
        )
    jobs = [_job(row) for row in given["jobs"]]
    return DrainAnswer(
        drained=given["drained"],
        by=_line(given["by"]),
        reason=_line(given["reason"]),
        jobs=jobs,
        owned=given["owned"],
    )


def _json_object(text: str) -> Dict[str, Any]:
    try:
        given = parse_json(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f"the hook must print one JSON object, and printed {text.strip()[:80]!r}")
    return given


def _job(row: Any) -> Dict[str, Any]:
    if (
        not isinstance(row, dict)
        or not all(isinstance(value, str) for value in row.values())
        or not row.get("id")
    ):
        raise ValueError(
            "the hook's answer must have jobs as objects of texts with an id, and has"
            f" {str(row)[:80]}"
        )
    return {name: _line(row.get(name, "")) for name in JOB_FIELDS}


def _line(text: str) -> str:
    """One printable line."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[
        :MAX_TEXT
    ]
