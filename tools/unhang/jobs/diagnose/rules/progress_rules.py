"""Rules over the progress of ranks: outside of any collective, in the data loader, connected but never accepted, wrong numbers."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import rank_of
from unhang.jobs.diagnose.rules.failures import first_failure
from unhang.jobs.diagnose.weights import WEIGHTS

LATE = 16  # a sequence number after set-up and the first barriers
FEWEST_WAITING = 3
DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]


def rank_outside_collectives(facts: Facts) -> Iterator[Evidence]:
    """A rank has finished all queued collectives while another one waits in a later collective: the first is busy or stuck elsewhere."""
    waits = {one.rank: one for one in facts.timeouts if one.seq is not None}
    for event in facts.of("pg_idle"):
        rank, done = int(event.fields["rank"] or 0), int(event.fields["completed"] or 0)
        ahead = [one for one in waits.values() if (one.seq or 0) > done]
        if event.fields["enqueued"] == event.fields["completed"] and rank not in waits and ahead:
            why = f"rank {rank} had finished all that it had queued ({done}) while rank {ahead[0].rank} waited in {ahead[0].seq}"
            yield Evidence("slow_rank_or_io", STRONG, why, (event, ahead[0].event), "rank-outside-collectives")
            yield Evidence("rank_desync_app", SUPPORTING + 1, why, (event, ahead[0].event), "rank-outside-collectives")
            yield Evidence("acs_iommu", -SUPPORTING, why, (event,), "rank-outside-collectives")
            yield Evidence("driver_p2p_bug", -SUPPORTING, why, (event,), "rank-outside-collectives")
            return


def one_rank_is_silent(facts: Facts) -> Iterator[Evidence]:
    """All ranks but one waited in the same collective, long after the start, and that one has no watchdog line: it did not arrive."""
    late = [one for one in facts.timeouts if one.rank is not None and (one.seq or 0) >= LATE]
    places = {(one.group, one.op, one.seq) for one in late}
    ranks = {one.rank for one in late}
    silent = sorted({*range(facts.world_size or 0)} - ranks) if len(ranks) >= FEWEST_WAITING and (facts.world_size or 0) <= len(ranks) + 1 else []
    if len(places) == 1 and len(silent) == 1 and not _failed_itself(facts, silent[0]):
        why = f"rank {silent[0]} reported nothing while all {len(ranks)} others waited for it"
        yield Evidence("rank_desync_app", SUPPORTING, why, (late[0].event,), "one-rank-silent")
        yield Evidence("slow_rank_or_io", SUPPORTING + 0.5, why, (late[0].event,), "one-rank-silent")
        yield Evidence("watchdog_timeout_too_short", -SUPPORTING, why, (late[0].event,), "one-rank-silent")


def _failed_itself(facts: Facts, rank: int) -> bool:
    """Whether the log shows what became of the rank: it raised or crashed."""
    first = first_failure(facts)
    return first is not None and rank_of(first) in (None, rank)


def one_rank_reports_alone(facts: Facts) -> Iterator[Evidence]:
    """Only one rank waits, and the same log has lines of another rank: that one ran and did not enter the collective."""
    ranks = {one.rank for one in facts.timeouts}
    others = sorted({event.prefix.rank for event in facts.events if event.prefix.rank is not None and not event.quoted} - ranks)
    idle = facts.of("pg_idle") or facts.of("single_rank_work")  # these lines show what the other rank did
    if len(ranks) == 1 and None not in ranks and others and not idle and first_failure(facts) is None:
        one = facts.timeouts[0]
        why = f"only rank {one.rank} reports that it waits; rank {others[0]}, whose lines are in the same log, does not"
        yield Evidence("rank_desync_app", SUPPORTING, why, (one.event,), "one-rank-reports")
        yield Evidence("slow_rank_or_io", WEIGHTS["hinting"], why, (one.event,), "one-rank-reports")
        yield Evidence("watchdog_timeout_too_short", -WEIGHTS["hinting"], why, (one.event,), "one-rank-reports")


def waited_after_the_end(facts: Facts) -> Iterator[Evidence]:
    """Training had ended, and then one rank waits in a collective that the others never enter."""
    for wait in facts.timeouts[:1]:
        ended = [event for event in facts.of("healthy_end") if event.file == wait.event.file and event.line < wait.event.line and not event.quoted]
        if ended and len(facts.timeouts) == 1:
            why = "training had ended when one rank alone waits in a collective"
            yield Evidence("rank_desync_app", STRONG - 0.4, why, (ended[-1], wait.event), "waited-after-the-end")


def limit_expired_while_compiling(facts: Facts) -> Iterator[Evidence]:
    """Ranks compile kernels for minutes, and a limit of seconds in which the others wait for them expires."""
    begun = [event for event in facts.of("long_compile") if not event.quoted]
    expired = [event for event in facts.of("hang_told") if event.signature.id == "deepep-timeout" and not event.quoted]
    late = [event for event in expired if begun and event.file == begun[-1].file and event.line > begun[-1].line]
    if late:
        why = "a rank was still compiling kernels, which takes minutes, when the limit of the others expired"
        yield Evidence("watchdog_timeout_too_short", STRONG, why, (begun[-1], late[0]), "limit-while-compiling")
        yield Evidence("fused_kernel_build", SUPPORTING, why, (begun[-1],), "limit-while-compiling")
        yield Evidence("rank_desync_app", -SUPPORTING, why, (late[0],), "limit-while-compiling")


def interrupted_in_the_data_loader(facts: Facts) -> Iterator[Evidence]:
    """A hanging job was interrupted while it waited for its data loader."""
    frames, stopped = facts.of("loader_frame"), facts.of("interrupted")
    if frames and stopped and not facts.timeouts:
        why = "the job was interrupted while it waited for its data loader"
        yield Evidence("slow_rank_or_io", STRONG, why, (frames[-1], stopped[0]), "interrupted-in-loader")


def connected_but_never_accepted(facts: Facts) -> Iterator[Evidence]:
    """The store accepted some ranks; others report a connection that the store never accepted: something in between answered."""
    accepted = {event.fields["peer"] for event in facts.of("store_accepted")}
    unseen = [event for event in facts.of("store_connected") if event.fields["own"] not in accepted]
    if accepted and unseen and facts.of("store_timeout"):
        why = f"{unseen[0].fields['own']} connected, and the store of {unseen[0].fields['server']} never accepted it: something in between took the connection"
        yield Evidence("service_mesh_sidecar", STRONG - 0.4, why, (unseen[0], facts.of("store_accepted")[0]), "connected-never-accepted")
        yield Evidence("firewall_ports", SUPPORTING, why, (unseen[0],), "connected-never-accepted")


def wrong_numbers_over_peer_to_peer(facts: Facts) -> Iterator[Evidence]:
    """One GPU computes correctly, several with peer-to-peer do not: copies between GPUs are corrupted."""
    p2p = [event for event in facts.of("transport") if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")]
    wrong, works = facts.of("nan_loss"), facts.of("one_gpu_works")
    if p2p and wrong and works:
        why = "one GPU computes well, and several that copy over peer-to-peer do not"
        cause = "unsupported_p2p_geforce" if facts.of("geforce") else "acs_iommu"
        yield Evidence(cause, STRONG - 0.4, why, (wrong[0], p2p[0], works[0]), "p2p-wrong-numbers")
        yield Evidence("driver_p2p_bug", SUPPORTING, why, (p2p[0],), "p2p-wrong-numbers")
