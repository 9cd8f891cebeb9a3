"""The result document, unhang/smoke/1: the same shape for every launcher. Values in, values out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unhang.core.smoke_result import (
    SCHEMA,
    Host,
    JudgedRate,
    Phase,
    SmokeResult,
)
from unhang.core.verdict.likely_causes import kernel_clues, kernel_faults, with_likely
from unhang.core.verdict.suspect import Suspect
from unhang.smoke import bandwidth, flight_recorder
from unhang.smoke.busy import excuse_busy
from unhang.smoke.counter_rates import Rise, outstanding
from unhang.smoke.expectations import NOTHING_KNOWN, Expectations
from unhang.smoke.link_bounds import link_bound
from unhang.smoke.streams import Event, Story, Stream, stories
from unhang.smoke.suspects import find_suspects
from unhang.smoke.transports import transport_rows
from unhang_node.base.parse.values import as_list, as_map, as_maps, number_of

WORST = ("stall", "died", "cut", "error", "fail", "ok", "skip")
SHOWN_EVIDENCE = (
    "pid",
    "phase",
    "step",
    "seq",
    "done",
    "state",
    "wchan",
    "waited_s",
    "queued",
    "reason",
    "code",
    "signal",
    "stack",
    "output",
    "native_stack",
)
LOAD = ("cpus", "over_s", "runnable", "waited", "stolen")
_FRAME = re.compile(r'^  File "([^"]{1,300})", line (\d+)(?: in (\S{1,100}))?')
EXIT_CODES = {"pass": 0, "fail": 1, "error": 2}


def judge(streams: Sequence[Stream], expectations: Expectations = NOTHING_KNOWN) -> SmokeResult:
    """The result of one run from its streams: verdict, phases, collectives, suspects and the
    evidence."""
    reported = stories(streams)
    events = [event for stream in streams for event in stream.events]
    rows = bandwidth.collective_rows(events, len(reported))
    joined = transport_rows(reported, events)
    group = bandwidth.group_of(
        reported, [event for event in events if event["e"] == "transports"], joined
    )
    bound = link_bound(group.transport, events) if group else None
    judged = bandwidth.judge_bandwidth(group, rows, expectations.bandwidth, bound)
    suspects = find_suspects(streams, reported)
    slow = bandwidth.stragglers(bandwidth.paces(reported))
    suspects += [
        _straggler(reported[rank], time_us, median)
        for rank, time_us, median in slow
        if rank not in {suspect.rank for suspect in suspects}
    ]
    evidence = [row for story in reported.values() if (row := _evidence(story))]
    nodes = [row for stream in streams if (row := _node_evidence(stream))]
    rises = outstanding(nodes, expectations.counter_rates)
    faulty = {one.host for one in rises} | {
        row["host"] for row in nodes if kernel_faults(as_list(row.get("kernel_log")))
    }
    suspects = [
        dataclasses.replace(one, may_be_slow=False)
        if (one.host in faulty if one.host else faulty)
        else one
        for one in suspects
    ]
    suspects, not_proved = excuse_busy(suspects, nodes, evidence)
    if not suspects:
        suspects = [_too_slow(row, not faulty) for row in judged if row.verdict == "fail"][:8]
    slow_only = {one for one in suspects if one.blind and one.may_be_slow}
    clues = {row["host"]: clues_of(row, rises) for row in nodes}
    places = {row["rank"]: where_of(row.get("stack")) for row in evidence}
    suspects = [
        one if one in slow_only else known
        for one, known in zip(suspects, with_likely(suspects, clues, places), strict=True)
    ]
    return SmokeResult(
        schema=SCHEMA, verdict="error" if not_proved else _verdict(reported, suspects),
        not_proved=not_proved, world_size=len(reported), group=group,
        hosts=[_host(stream, reported) for stream in streams],
        phases=phase_rows(reported), collectives=rows, bandwidth=judged, suspects=suspects,
        transports=joined,
        evidence=evidence, nodes=nodes,
        unfit=sorted({story.host for story in reported.values() if story.unkillable}),
        experiments=[],
    )  # fmt: skip


def _verdict(
    reported: Mapping[int, Story], suspects: Sequence[Suspect]
) -> Literal["pass", "fail", "error"]:
    """pass, fail; error if no rank could be examined, so that nothing was proved either way."""
    if not suspects:
        return "pass" if reported and all(story.ended for story in reported.values()) else "error"
    met = any(
        (story.phases.get("rendezvous") or {}).get("status") == "ok" for story in reported.values()
    )
    everybody = {suspect.host for suspect in suspects} >= {
        story.host for story in reported.values()
    }
    return (
        "error" if not met and everybody and all(suspect.blind for suspect in suspects) else "fail"
    )


def _straggler(story: Story, time_us: float, median: float) -> Suspect:
    why = f"needs {time_us / 1e3:.1f} ms for what the median rank does in {median / 1e3:.1f} ms"
    return Suspect(
        story.host,
        story.rank,
        story.gpu,
        "pace",
        why,
        "clocks, throttling, power and other jobs there: unhang audit -i INVENTORY --host"
        f" {story.host}",
        may_be_slow=True,
    )


def _too_slow(row: JudgedRate, may_be_slow: bool) -> Suspect:
    why = (
        f"{row.op} of {row.size_bytes} bytes reaches {row.busbw_gb_s} GB/s busbw, less than"
        f" {row.low_gb_s} ({row.source})"
    )
    return Suspect(
        None,
        None,
        None,
        "bandwidth",
        why,
        "NVLink states and errors, PCIe width, NCCL's transports below: unhang audit",
        may_be_slow=may_be_slow,
    )


def phase_rows(reported: Mapping[int, Story]) -> list[Phase]:
    """In the order in which they were begun. steps: the longest ones of the rank that took
    longest."""
    names = list(dict.fromkeys(name for story in reported.values() for name in story.begun))
    rows = []
    for name in names:
        ranks: dict[str, list[int]] = {}
        for story in reported.values():
            if name in story.begun:
                ranks.setdefault(_status(story, name), []).append(story.rank)
        slowest = max(
            (story.phases.get(name) or {} for story in reported.values()),
            key=lambda end: number_of(end.get("duration_s")),
            default={},
        )
        duration = number_of(slowest.get("duration_s"))
        steps = {
            str(step)[:80]: number_of(took) for step, took in as_map(slowest.get("steps")).items()
        }
        stalled = [
            number_of((story.stall or {}).get("waited_s"))
            for story in reported.values()
            if story.last_phase == name and story.stall
        ]
        status = min(ranks, key=WORST.index)
        rows.append(Phase(name, status, round(max([duration, *stalled]), 3), ranks, steps))
    return rows


def _status(story: Story, name: str) -> str:
    end = story.phases.get(name)
    if end is not None:
        status = end.get("status")
        return status if status in WORST else "error"
    if story.stall is not None:
        return "stall"
    return "died" if story.exit is not None else "cut"


def _host(stream: Stream, reported: Mapping[int, Story]) -> Host:
    facts = [reported[rank].facts for rank in stream.ranks if reported[rank].facts]
    first: Event = facts[0] if facts else {}
    init = [
        row for rank in stream.ranks for row in as_maps(reported[rank].result("init").get("nccl"))
    ]
    libraries = as_maps(first.get("nccl")) or init[:4]
    return Host(
        stream.host, list(stream.ranks), stream.problem, stream.ended, first.get("torch"),
        first.get("cuda"), first.get("driver"), first.get("backend"), first.get("executable"),
        libraries, [reported[rank].gpu for rank in stream.ranks],
    )  # fmt: skip


def _evidence(story: Story) -> dict[str, Any] | None:
    """The last position of a rank that failed or hung."""
    seen = story.stall or story.exit
    if seen is None:
        return None
    row: dict[str, Any] = {
        name: seen[name] for name in SHOWN_EVIDENCE if seen.get(name) is not None
    }
    recording = flight_recorder.summarise(seen.get("flight_recorder"))
    return {
        "rank": story.rank,
        "host": story.host,
        **row,
        **({"flight_recorder": recording} if recording else {}),
    }


def _node_evidence(stream: Stream) -> dict[str, Any] | None:
    found = next((event for event in stream.events if event["e"] == "evidence"), None)
    warnings = [
        line
        for event in stream.events
        if event["e"] == "transports"
        for line in as_list(event.get("warnings"))
    ][:16]
    load = next((event for event in stream.events if event["e"] == "load"), {})
    if found is None and not warnings and not load:
        return None
    seen = found or {}
    shown = {
        name: seen.get(name)
        for name in ("kernel_log", "counters", "nvlink", "nvml", "peers", "counted_s")
    }
    shown["load"] = {name: load.get(name) for name in LOAD} if load else None
    return {"host": stream.host, **shown, "nccl_warnings": warnings}


def clues_of(node: Mapping[str, Any], rises: Sequence[Rise] = ()) -> list[str]:
    """Clues from one node's evidence, the strongest first. rises: counters that rose unusually,
    the worst first."""
    clues = kernel_clues(as_list(node.get("kernel_log")))
    if node.get("nvml") and "hangs" in str(node["nvml"]):
        clues.append(str(node["nvml"])[:200])
    if own := [rise.text for rise in rises if rise.host == node["host"]]:
        clues.append(own[0] + (f", and {len(own) - 1} more such counters" if len(own) > 1 else ""))
    warnings = as_list(node.get("nccl_warnings"))
    return clues + [
        f"NCCL warned {str(line).split('NCCL WARN ')[-1][:200]!r}" for line in warnings[-1:]
    ]


def where_of(stack: Any) -> str | None:
    """The function in which the main thread of a rank is, from faulthandler's dump (youngest call
    first)."""
    for part in str(stack or "").split("\n\n"):
        frames = [found for line in part.splitlines() if (found := _FRAME.match(line))]
        if any(frame[3] == "run_phase" for frame in frames):
            return f"{frames[0][3]} ({frames[0][1].rsplit('/', 1)[-1]}:{frames[0][2]})"
    return None
