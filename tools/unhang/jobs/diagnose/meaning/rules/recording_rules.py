"""Rules over recordings of a hanging job: flight recorders, NCCL's trace of calls, its RAS."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence
from unhang.jobs.diagnose.meaning.signs import hang_signs

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]


def recorders_differ(facts: Facts) -> Iterator[Evidence]:
    """Flight recorders of ranks differ in a collective, stand in different ones, or all in one.

    Decides diagnose/rank_desync_app/recorders.
    """
    for group in (facts.flights or {}).get("groups", []):
        if group["calls"]:
            calls = "; ".join(
                f"{what}: ranks {', '.join(map(str, ranks[:8]))}"
                for what, ranks in list(group["calls"].items())[:4]
            )
            yield Evidence(
                "rank_desync_app",
                WEIGHTS["decisive"],
                f"flight recorder: collective {group['seq']} of group {group['group']} differs:"
                f" {calls}",
                (),
                "recorders-differ",
            )
        elif group["behind"]:
            behind = ", ".join(map(str, group["behind"][:16]))
            yield Evidence(
                "rank_desync_app",
                SUPPORTING + 1,
                f"flight recorder: ranks {behind} stopped before the others in group"
                f" {group['group']}",
                (),
                "recorders-behind",
            )
            yield Evidence(
                "slow_rank_or_io",
                SUPPORTING + 1,
                f"flight recorder: ranks {behind} did not get as far as the others",
                (),
                "recorders-behind",
            )
        elif group["stuck"]:
            yield Evidence(
                "watchdog_timeout_too_short",
                SUPPORTING,
                f"flight recorder: every rank is in collective {group['seq']} and none has"
                " finished it",
                (),
                "recorders-stuck",
            )


def traces_differ(facts: Facts) -> Iterator[Evidence]:
    """NCCL's trace of calls differs between ranks. A rank that is behind matters only if the job
    hung, because the log of a running job can end anywhere.

    Decides diagnose_batches/13/e37.
    """
    hangs = bool(hang_signs(facts))
    for one in facts.calls:
        places = tuple(
            {name: place[name] for name in ("file", "line", "text")}
            for place in (*one["behind"][:4], one)
        )
        if one["calls"]:
            calls = "; ".join(
                f"{what}: ranks {', '.join(ranks[:8])}"
                for what, ranks in list(one["calls"].items())[:4]
            )
            why = f"NCCL's trace: call {one['number']} differs: {calls}"
            yield Evidence(
                "rank_desync_app", STRONG + 1, why, (), "traces-differ", places=places[-1:]
            )
        elif one["behind"] and hangs:
            behind = ", ".join(
                f"{rank['rank']} (at {rank['op']} {rank['number']})" for rank in one["behind"][:8]
            )
            why = (
                f"NCCL's trace: ranks {behind} did not call {one['op']} {one['number']} in which"
                " the others wait"
            )
            for cause, weight in (
                ("rank_desync_app", SUPPORTING + 1),
                ("slow_rank_or_io", SUPPORTING + 1),
                ("watchdog_timeout_too_short", -SUPPORTING),
            ):
                yield Evidence(cause, weight, why, (), "traces-behind", places=places)


def few_ranks_are_behind(facts: Facts) -> Iterator[Evidence]:
    """NCCL's RAS counts fewer collectives on few ranks than on all others: the job waits for them.

    Decides diagnose_outputs/what_experts_read/ras-counts.
    """
    by_op: dict[str, list[Event]] = {}
    for event in facts.of("ras_count"):
        by_op.setdefault(event.fields["op"] or "", []).append(event)
    for events in by_op.values():
        behind = min(events, key=lambda event: int(event.fields["count"] or 0))
        ahead = max(events, key=lambda event: int(event.fields["count"] or 0))
        if int(behind.fields["count"] or 0) < int(ahead.fields["count"] or 0) and int(
            behind.fields["ranks"] or 0
        ) < int(ahead.fields["ranks"] or 0):
            named = [
                f"rank {one.fields['rank']} on {one.fields['host']}"
                for one in facts.of("ras_rank")[:8]
            ]
            why = (
                f"RAS: {behind.fields['ranks']} of the ranks launched fewer"
                f" collectives{': ' if named else ''}{', '.join(named)}"
            )
            for cause, weight in (
                ("slow_rank_or_io", SUPPORTING),
                ("rank_desync_app", HINTING),
                ("nccl_bug", HINTING),
            ):
                yield Evidence(
                    cause, weight, why, (behind, ahead, *facts.of("ras_rank")[:2]), "ras-behind"
                )
            return
