"""The result as a table for people and as JUnit for CI. Text from nodes is cleaned first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.text import ascii_only, counted, visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspect import render_suspects

MOST_COUNTERS = 5
LONG_STEP_S = 1.0
_ERRORS = re.compile(
    r"error|replays|recovery|discard|dropped|symbol|crc|link_downed|retries|seq_err|timeout_err",
    re.IGNORECASE,
)


def render_table(result: Mapping[str, Any], width: int = 100, plain: bool = False) -> str:
    """Verdict and suspects last, where a terminal leaves the eye."""
    parts = (
        _bandwidth,
        _cross_check,
        _transports,
        _builds,
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
    lines += render_suspects(result)
    not_proved = result.get("not_proved")
    verdict = f"not proved: {visible(not_proved, 400)}" if not_proved else result["verdict"]
    lines += ["", f"verdict: {verdict}"]
    if result.get("command"):
        lines += [f"to repeat: {visible(result['command'], 4000)}"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return ascii_only(text) if plain else text


def _phases(result: Mapping[str, Any]) -> list[str]:
    hosts = ", ".join(visible(row["host"]) for row in result["hosts"][:8]) + (
        f" and {len(result['hosts']) - 8} more" if len(result["hosts"]) > 8 else ""
    )
    first: Mapping[str, Any] = next((row for row in result["hosts"] if row.get("torch")), {})
    lines = [
        (
            f"{counted(result['world_size'], 'rank')} on {hosts}; torch"
            f" {visible(first.get('torch') or '?')}, {visible(first.get('backend') or '?')}"
        ),
        "",
    ]
    meeting = result.get("rendezvous")
    if meeting:
        lines.insert(
            1,
            f"rendezvous at {visible(meeting['address'])}:{meeting['port']}:"
            f" {visible(meeting['why'])}",
        )
    lines.append(f"{'phase':<16}{'status':<8}{'seconds':>9}  ranks")
    for row in result["phases"]:
        others = "; ".join(
            f"{status}: {fold_ranks(ranks)}"
            for status, ranks in row["ranks"].items()
            if status != "ok"
        ) or _longest_steps(row)
        lines.append(
            f"{visible(row['name'], 15):<16}{row['status']:<8}{row['duration_s']:>9.2f}  {others}"
        )
    return lines


def _longest_steps(phase: Mapping[str, Any]) -> str:
    """The longest steps of a long phase."""
    steps = phase.get("steps") or {}
    return visible(
        ", ".join(
            f"{name} {seconds:.1f}"
            for name, seconds in list(steps.items())[:3]
            if seconds >= LONG_STEP_S
        ),
        120,
    )


def _bandwidth(result: Mapping[str, Any]) -> list[str]:
    rows = [row for row in result["collectives"] if row["measures"] == "bandwidth"]
    if not rows:
        return []
    judged = {(row["op"], row["size_bytes"]): row for row in result["bandwidth"]}
    lines = [
        f"{'operation':<16}{'size (B)':>12}{'time (us)':>12}{'algbw (GB/s)':>14}{'busbw (GB/s)':>14}"  # noqa: E501
        "  expected"
    ]
    for row in rows:
        wanted = judged.get((row["op"], row["size_bytes"]))
        text = (
            f"{_range(wanted)}{wanted['verdict']} ({visible(wanted['source'])})" if wanted else ""
        )
        lines.append(
            f"{visible(row['op'], 15):<16}{row['size_bytes']:>12}{row['time_us']:>12.2f}{row['algbw_gb_s']:>14.2f}{row['busbw_gb_s']:>14.2f}"  # noqa: E501
            f"  {text}"
        )
    if result["world_size"] == 1:
        lines.append("one rank sends nothing: bandwidth between GPUs takes two")
    return lines


def _range(judged: Mapping[str, Any]) -> str:
    return (
        f"{judged['low_gb_s']:g} to {judged['high_gb_s']:g}, "
        if judged["low_gb_s"] is not None
        else ""
    )


def _cross_check(result: Mapping[str, Any]) -> list[str]:
    form = "nccl-tests: {op} of {size_bytes} bytes {nccl_tests_gb_s} GB/s, ours {ratio:.3f} of it"
    return [form.format(**row) for row in result.get("cross_check") or ()]


def _transports(result: Mapping[str, Any]) -> list[str]:
    folded: dict[str, list[str]] = {}
    for row in result["transports"]:
        folded.setdefault(visible(row["label"], 200), []).append(f"{row['from']}>{row['to']}")
    return [
        f"via {way}: {', '.join(pairs[:12])}"
        + (f" and {len(pairs) - 12} more" if len(pairs) > 12 else "")
        for way, pairs in folded.items()
    ]


def _builds(result: Mapping[str, Any]) -> list[str]:
    return [
        visible(f"C++ extension on {row['host']}: built in {row['seconds']:.1f} s", 300)
        for row in result.get("builds") or ()
    ]


def _stands(result: Mapping[str, Any]) -> list[str]:
    """The last position of each rank, if a rank failed or hung."""
    lines = []
    for row in result["evidence"][:64]:
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
    return ["where they stood:", *lines] if lines else []


def _counters(result: Mapping[str, Any]) -> list[str]:
    """Error counters that rose meanwhile. Most do on any healthy machine too; unusual rises are
    part of the evidence against a suspect."""
    lines = []
    for row in result["nodes"][:64]:
        moved = {
            name: count
            for kind in ("nvlink", "counters")
            for name, count in _counts(row.get(kind))
            if _ERRORS.search(name)
        }
        worst = sorted(moved, key=lambda name: (-moved[name], name))[:MOST_COUNTERS]
        more = f" and {len(moved) - len(worst)} more" if len(moved) > len(worst) else ""
        if moved:
            rises = ", ".join(f"{name} +{moved[name]}" for name in worst)
            lines.append(visible(f"  {row['host']}: {rises}{more}", 600))
    head = "error counters that rose meanwhile (most rise on healthy machines too):"
    return [head, *lines] if lines else []


def _counts(reported: Any) -> list[tuple[str, int]]:
    """Counters that a node reported. Other values are skipped, because a node may answer
    anything."""
    return (
        [(str(name), count) for name, count in reported.items() if type(count) is int]
        if isinstance(reported, dict)
        else []
    )


def _experiments(result: Mapping[str, Any]) -> list[str]:
    lines = [
        f"  {visible(row['name'])}: {'cured' if row['cured'] else 'no change'} ({row['verdict']},"
        f" {row['duration_s']:.0f} s)"
        for row in result["experiments"]
    ]
    return ["experiments (evidence for the cause, no fix):", *lines] if lines else []


def _isolation(result: Mapping[str, Any]) -> list[str]:
    found = result.get("isolation")
    return [f"isolation, {found['rounds']} rounds: {visible(found['answer'])}"] if found else []


def _notes(result: Mapping[str, Any]) -> list[str]:
    return [
        f"note: {visible(row['host'])}: {visible(row['text'], 600)}"
        for row in result.get("notes") or ()
    ]


def render_junit(result: Mapping[str, Any]) -> str:
    """One test case per phase; a suspect of no phase is a test case of its own. Suspects are the
    text of the failure."""
    phases = {row["name"] for row in result["phases"]}
    cases = [
        _phase_case(row, [one for one in result["suspects"] if one["phase"] == row["name"]])
        for row in result["phases"]
    ]
    others = [one for one in result["suspects"] if one["phase"] not in phases]
    cases += [
        Case(
            "unhang.smoke",
            f"{one['phase']} {one['host'] or ''}".strip(),
            Outcome("error", one["why"]),
        )
        for one in others
    ]
    return render_suite("unhang smoke", cases)


def _phase_case(row: Mapping[str, Any], blamed: Sequence[Mapping[str, Any]]) -> Case:
    outcome = None
    if row["status"] == "skip":
        outcome = Outcome("skipped", "the phase was skipped")
    elif blamed or row["status"] != "ok":
        reasons = [f"{_who(one)}: {one['why']}; next: {one['next']}" for one in blamed]
        is_blind = bool(blamed) and all(one.get("blind") for one in blamed)
        outcome = Outcome(
            "error" if is_blind else "failure",
            "; ".join(_who(one) for one in blamed) or row["status"],
            reasons,
        )
    return Case("unhang.smoke", row["name"], outcome, duration_s=row["duration_s"])


def _who(suspect: Mapping[str, Any]) -> str:
    return f"{suspect['host'] or 'the group'}" + (
        f" rank {suspect['rank']}" if suspect["rank"] is not None else ""
    )
