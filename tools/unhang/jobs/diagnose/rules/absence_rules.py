"""Rules over missing output: a rank that answers no signal, one that waits alone, ranks that belong to different jobs."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event, rank_of
from unhang.jobs.diagnose.rules.failures import failed_of_root, first_failure, killed_first
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]


def rank_answers_no_signal(facts: Facts) -> Iterator[Evidence]:
    """A watchdog that times out asks all ranks for their state, and every live process answers, even a sleeping one: a rank without an answer has ended."""
    waiting = {one.rank for one in facts.timeouts}
    answered = {int(event.fields["rank"] or 0) for event in facts.of("pg_idle") if not event.quoted}
    if None in waiting or not waiting & answered or len(facts.hosts) > 1 or first_failure(facts) or killed_first(facts):
        return
    gone = sorted({*range(facts.world_size or 0)} - answered - {rank for rank in waiting if rank is not None})
    if gone or len(waiting | answered) == 1:
        who = f"rank {gone[0]}" if gone else "every other rank"
        why = f"{who} did not answer the watchdog of rank {facts.timeouts[0].rank}, which asks all ranks for their state: its process had ended"
        events = (facts.timeouts[0].event, facts.of("pg_idle")[0])
        yield Evidence("rank_desync_app", STRONG - 0.5, why, events, "no-answer-to-signal")
        yield Evidence("rank_failed", SUPPORTING, why, events, "no-answer-to-signal")
        yield Evidence("slow_rank_or_io", -SUPPORTING, why, events[:1], "no-answer-to-signal")
        yield Evidence("watchdog_timeout_too_short", -SUPPORTING, why, events[:1], "no-answer-to-signal")


def ranks_tell_of_different_worlds(facts: Facts) -> Iterator[Evidence]:
    """Processes that wait for each other have different world sizes."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    by_world: dict[str | None, Event] = {}
    for event in facts.of("rank_of_world"):
        by_world.setdefault(event.fields["world"], event)
    if waits and len(by_world) > 1 and len({event.fields["rank"] for event in by_world.values()}) > 1:
        why = f"processes of one job have different world sizes: {' and '.join(sorted(map(str, by_world))[:3])}"
        yield Evidence("launch_mismatch", STRONG, why, (*by_world.values(), waits[0])[:3], "worlds-differ")
        yield Evidence("firewall_ports", -SUPPORTING, why, (waits[0],), "worlds-differ")


def one_rank_waits_and_the_launcher_ends_the_others(facts: Facts) -> Iterator[Evidence]:
    """The launcher's report names the waiting rank as the first to fail, and no other rank had waited as long: a rank was missing from the collective."""
    ranks, roots = {one.rank for one in facts.timeouts}, [event for event in facts.of("root_cause") if not event.quoted]
    heard = {event.prefix.rank for event in facts.events if not event.quoted} - {None}
    if len(ranks) != 1 or None in ranks or not roots or heard - ranks or first_failure(facts) or facts.of("single_rank_work"):
        return
    why = f"only rank {facts.timeouts[0].rank} waited that long; no other rank that the launcher started waited in this collective"
    yield Evidence("rank_desync_app", SUPPORTING, why, (facts.timeouts[0].event, roots[0]), "one-rank-reports")
    yield Evidence("slow_rank_or_io", WEIGHTS["hinting"], why, (facts.timeouts[0].event,), "one-rank-reports")
    yield Evidence("watchdog_timeout_too_short", -WEIGHTS["hinting"], why, (facts.timeouts[0].event,), "one-rank-reports")


def nobody_sends(facts: Facts) -> Iterator[Evidence]:
    """All waiting ranks wait to receive, or all wait to send: each began with the same half of an exchange."""
    ranks, ops = {one.rank for one in facts.timeouts} - {None}, {one.op for one in facts.timeouts}
    if len(ranks) > 1 and len(ops) == 1 and ops <= {"RECV", "SEND"} and len(ranks) == facts.world_size:
        what = "receive, and none sends" if ops == {"RECV"} else "send, and none receives"
        events = tuple(one.event for one in facts.timeouts[:2])
        yield Evidence("rank_desync_app", STRONG, f"all {len(ranks)} ranks wait to {what}", events, "all-receive")
        yield Evidence("watchdog_timeout_too_short", -SUPPORTING, f"all {len(ranks)} ranks wait to {what}", events[:1], "all-receive")


def one_rank_waits_alone_in_gloo(facts: Facts) -> Iterator[Evidence]:
    """The launcher names a rank that timed out in a Gloo collective, and nothing failed on another rank: another rank was missing from the collective."""
    waits = [event for event in facts.of("gloo_wait") if not event.quoted]
    failed = failed_of_root(facts)
    others = [event for event in facts.events if event.signature.kind == "error" and not event.quoted and rank_of(event) not in (None, failed and failed.rank)]
    if failed and not others and {rank_of(event) for event in waits} == {failed.rank}:
        why = f"only rank {failed.rank} ran out of time in a collective of Gloo, and nothing failed on another rank"
        yield Evidence("slow_rank_or_io", SUPPORTING + 0.5, why, (waits[0], failed.exit), "waits-alone-in-gloo")
        yield Evidence("rank_desync_app", SUPPORTING, why, (waits[0],), "waits-alone-in-gloo")
