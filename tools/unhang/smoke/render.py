"""The result as a table for people and as JUnit for CI. Text from nodes is cleaned first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.smoke_result import JudgedRate, Phase, SmokeResult
from unhang.core.text import ascii_only, counted, listed, visible, wrapped
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspect import Suspect, render_suspects
from unhang_node.base.parse.values import as_map

MOST_COUNTERS = 5
LONG_STEP_S = 1.0
_ERRORS = re.compile(
    r"error|replays|recovery|discard|dropped|symbol|crc|link_downed|retries|seq_err|timeout_err",
    re.IGNORECASE,
)


def render_table(result: SmokeResult, width: int = 100, plain: bool = False) -> str:
    """Verdict and suspects last, where a terminal leaves the eye."""
    parts = (
        _bandwidth,
        _transports,
        _stands,
        _counters,
        _experiments,
        _isolation,
        _notes,
    )
    lines = _phases(result)
    for part in parts:
        if found := part(result):
            lines += ["", *found]
    lines = [piece for line in lines for piece in wrapped(line, width, 2)]
    lines += render_suspects(result.suspects)
    open_ = result.not_proved
    lines += ["", f"verdict: {f'not proved: {visible(open_, 400)}' if open_ else result.verdict}"]
    if result.command:
        lines += [f"to repeat: {visible(result.command, 4000)}"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return ascii_only(text) if plain else text


def _phases(result: SmokeResult) -> list[str]:
    hosts = listed([visible(row.host) for row in result.hosts], 8)
    torch, backend = next(((row.torch, row.backend) for row in result.hosts if row.torch), ("", ""))
    lines = [
        (
            f"{counted(result.world_size, 'rank')} on {hosts}; torch {visible(torch or '?')},"
            f" {visible(backend or '?')}"
        ),
        "",
    ]
    meeting = result.rendezvous
    if meeting:
        lines.insert(
            1,
            f"rendezvous at {visible(meeting.address)}:{meeting.port}: {visible(meeting.why)}",
        )
    lines.append(f"{'phase':<16}{'status':<8}{'seconds':>9}  ranks")
    for row in result.phases:
        others = "; ".join(
            f"{status}: {fold_ranks(ranks)}"
            for status, ranks in row.ranks.items()
            if status != "ok"
        ) or _longest_steps(row)
        lines.append(f"{visible(row.name, 15):<16}{row.status:<8}{row.duration_s:>9.2f}  {others}")
    return lines


def _longest_steps(phase: Phase) -> str:
    """The longest steps of a long phase."""
    return visible(
        ", ".join(
            f"{name} {seconds:.1f}"
            for name, seconds in list(phase.steps.items())[:3]
            if seconds >= LONG_STEP_S
        ),
        120,
    )


def _bandwidth(result: SmokeResult) -> list[str]:
    rows = [row for row in result.collectives if row.measures == "bandwidth"]
    if not rows:
        return []
    judged = {(row.op, row.size_bytes): row for row in result.bandwidth}
    lines = [
        f"{'operation':<14}{'size (B)':>11}{'time (us)':>11}{'algbw':>8}{'busbw':>8}  (GB/s)"
        f"{'  expected' * bool(judged)}"
    ]
    for row in rows:
        wanted = judged.get((row.op, row.size_bytes))
        text = f"{_range(wanted)}{wanted.verdict} ({visible(wanted.source)})" if wanted else ""
        lines.append(
            f"{visible(row.op, 14):<14}{row.size_bytes:>11}{row.time_us:>11.2f}"
            f"{row.algbw_gb_s:>8.2f}{row.busbw_gb_s:>8.2f}  {text}"
        )
    if result.world_size == 1:
        lines.append("one rank sends nothing: bandwidth between GPUs takes two")
    return lines


def _range(judged: JudgedRate) -> str:
    return "" if judged.low_gb_s is None else f"{judged.low_gb_s:g} to {judged.high_gb_s:g}, "


def _transports(result: SmokeResult) -> list[str]:
    folded: dict[str, list[str]] = {}
    for row in result.transports:
        folded.setdefault(visible(row.label, 200), []).append(f"{row.sender}>{row.receiver}")
    return [f"via {way}: {listed(pairs, 12)}" for way, pairs in folded.items()]


def _stands(result: SmokeResult) -> list[str]:
    """The last position of each rank, if a rank failed or hung."""
    lines = []
    for row in result.evidence[:64]:
        ended = (
            f"ended by {row['signal']}"
            if row.get("signal")
            else f"exit code {row['code']}"
            if "code" in row
            else f"state {row.get('state')}"
        )
        recorded = row.get("flight_recorder") or {}
        more = (
            f", recorder: enqueued {recorded['last_enqueued']}, completed"
            f" {recorded['last_completed']}"
            if "last_enqueued" in recorded
            else ""
        )
        lines.append(
            visible(
                f"  rank {row['rank']} on {row['host']}: {row.get('phase')} / {row.get('step')},"
                f" collective {row.get('seq')}, {ended}{more}"
            )
        )
    return ["where they were:", *lines] if lines else []


def _counters(result: SmokeResult) -> list[str]:
    """Error counters that rose meanwhile. Most do on any healthy machine too; unusual rises are
    part of the evidence against a suspect."""
    lines = []
    for row in result.nodes[:64]:
        moved = {
            name: count
            for kind in ("nvlink", "counters")
            for name, count in _counts(row.get(kind))
            if _ERRORS.search(name)
        }
        worst = sorted(moved, key=lambda name: (-moved[name], name))
        if moved:
            rises = listed([f"{name} +{moved[name]}" for name in worst], MOST_COUNTERS)
            lines.append(visible(f"  {row['host']}: {rises}", 600))
    head = "error counters that rose meanwhile (most rise on healthy machines too):"
    return [head, *lines] if lines else []


def _counts(reported: Any) -> list[tuple[str, int]]:
    """Counters that a node reported. Other values are skipped, because a node may answer
    anything."""
    return [(str(name), count) for name, count in as_map(reported).items() if type(count) is int]


def _experiments(result: SmokeResult) -> list[str]:
    lines = [
        f"  {visible(row.name)}: {'cured' if row.cured else 'no change'} ({row.verdict},"
        f" {row.duration_s:.0f} s)"
        for row in result.experiments
    ]
    return ["experiments (evidence for the cause, no fix):", *lines] if lines else []


def _isolation(result: SmokeResult) -> list[str]:
    found = result.isolation
    return [f"isolation, {found.rounds} rounds: {visible(found.answer)}"] if found else []


def _notes(result: SmokeResult) -> list[str]:
    return [f"note: {visible(row.host)}: {visible(row.text, 600)}" for row in result.notes]


def render_junit(result: SmokeResult) -> str:
    """One test case per phase; a suspect of no phase is a test case of its own. Suspects are the
    text of the failure."""
    phases = {row.name for row in result.phases}
    cases = [
        _phase_case(row, [one for one in result.suspects if one.phase == row.name])
        for row in result.phases
    ]
    cases += [
        Case("unhang.smoke", f"{one.phase} {one.host or ''}".strip(), Outcome("error", one.why))
        for one in result.suspects
        if one.phase not in phases
    ]
    return render_suite("unhang smoke", cases)


def _phase_case(row: Phase, blamed: Sequence[Suspect]) -> Case:
    outcome = None
    if row.status == "skip":
        outcome = Outcome("skipped", "the phase was skipped")
    elif blamed or row.status != "ok":
        reasons = [f"{_who(one)}: {one.why}; next: {one.next}" for one in blamed]
        is_blind = bool(blamed) and all(one.blind for one in blamed)
        outcome = Outcome(
            "error" if is_blind else "failure",
            "; ".join(_who(one) for one in blamed) or row.status,
            reasons,
        )
    return Case("unhang.smoke", row.name, outcome, duration_s=row.duration_s)


def _who(suspect: Suspect) -> str:
    return f"{suspect.host or 'the group'}" + (
        f" rank {suspect.rank}" if suspect.rank is not None else ""
    )
