"""Rules over how ranks start and end together: ranks of one host that are late, a proxy in between, a process that was stopped, one that exited."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts, Timeout
from unhang.jobs.diagnose.matching.scanning import Event, rank_of
from unhang.jobs.diagnose.rules.failures import failed_of_root, first_failure, names_its_cause
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
FAR_OVER, NEAR = 1.5, 1.2  # factor of its limit that a collective had run when its watchdog reported it: a running watchdog checks every second or so
LEAST_OVER_MS = 5_000
OF_GRPC = ("failed to connect to all addresses", "waiting for channel")  # the other messages of the fact are of programs that use no proxy
SWEPT = {"0", "-15", "15", "143", "-9", "9", "137", "-6", "134"}  # ended by the launcher, by a person, by the kernel, or by a watchdog


def local_ranks_were_late(facts: Facts) -> Iterator[Evidence]:
    """Too few ranks had joined in time, and all ranks of the job print that they start in this log of one host: they were late, and no network is between
    them."""
    short, members = facts.of("clients_joined"), facts.of("member")
    wanted = max((int(event.fields["nranks"] or 0) for event in members), default=0)
    if short and wanted and len({event.fields["rank"] for event in members}) >= wanted:
        why = f"all {wanted} ranks print that they start, and only {short[0].fields['joined']} had joined in time: the others were late"
        yield Evidence("slow_rank_or_io", STRONG - 0.5, why, (short[0], members[-1]), "local-ranks-late")
        yield Evidence("watchdog_timeout_too_short", SUPPORTING, why, (short[0],), "local-ranks-late")
        yield Evidence("firewall_ports", -SUPPORTING, why, (short[0],), "local-ranks-late")


def store_of_this_host_is_silent(facts: Facts) -> Iterator[Evidence]:
    """A rank contacts the store on its own host: no firewall and no other network is between the two."""
    asked = facts.of("local_store_silent")
    if asked and facts.of("clients_joined"):
        why = "the store that does not answer is on the same host, so no firewall is between; a rank of another host contacts its own store"
        yield Evidence("firewall_ports", 1 - STRONG, why, (asked[0],), "store-of-this-host")
        yield Evidence("launch_mismatch", HINTING, why, (asked[0],), "store-of-this-host")
        yield Evidence("dns_hostname", HINTING, why, (asked[0],), "store-of-this-host")


def proxy_and_nobody_met(facts: Facts) -> Iterator[Evidence]:
    """Proxy variables are set, which gRPC follows, and the processes of the job do not find each other. gRPC connects to the proxy, not to its target, so its
    failed connection says nothing about the network between nodes.
    """
    spared = any(not event.quoted for event in facts.of("proxy_spared"))
    noticed = [event for event in (*facts.of("proxy_noticed"), *(() if spared else facts.of("proxy_set"))) if not event.quoted]
    refused = [event for event in facts.of("rpc_unanswered") if any(text in event.text for text in OF_GRPC) and not event.quoted]
    unmet = [*facts.of("tasks_not_met"), *refused]
    if noticed and unmet:
        why = "a proxy is set, which gRPC uses, and the processes did not meet"
        yield Evidence("proxy_env", STRONG, why, (noticed[0], unmet[0]), "proxy-and-unmet")
        if refused:
            yield Evidence("firewall_ports", -SUPPORTING, why, (noticed[0],), "proxy-and-unmet")


def process_stood_still(facts: Facts) -> Iterator[Evidence]:
    """The watchdog of one rank reports long after its limit, the others in time: that process, or its host, did not run meanwhile."""
    oldest = _oldest_by_rank(facts)
    still = [one for one in oldest if one.ran_ms >= FAR_OVER * one.timeout_ms and one.ran_ms - one.timeout_ms >= LEAST_OVER_MS]
    in_time = [one for one in oldest if one.ran_ms <= NEAR * one.timeout_ms]
    if len(still) == 1 and len(in_time) >= 2 and len(in_time) + 1 == len(oldest) and all((still[0].seq or 0) <= (one.seq or 0) for one in in_time):
        over = (still[0].ran_ms - still[0].timeout_ms) // 1000
        why = f"the watchdog of rank {still[0].rank} reported {over} s late, those of {len(in_time)} others in time: that process did not run meanwhile"
        events = (still[0].event, in_time[0].event)
        yield Evidence("slow_rank_or_io", STRONG + 0.5, why, events, "process-stood-still")
        yield Evidence("rank_desync_app", -STRONG + 1, why, events, "process-stood-still")


def _oldest_by_rank(facts: Facts) -> list[Timeout]:
    """The first line of each rank's watchdog; limits of zero are not used."""
    kept: dict[int, Timeout] = {}
    for one in facts.timeouts:
        if one.rank is not None and one.timeout_ms > 0:
            kept.setdefault(one.rank, one)
    return list(kept.values())


def one_rank_did_not_come_to_gloo(facts: Facts) -> Iterator[Evidence]:
    """Ranks timed out in a Gloo collective, and one that the log names did not: it was not in the collective."""
    waits = [event for event in facts.of("gloo_wait") if not event.quoted]
    waiting = {rank_of(event) for event in waits} - {None}
    absent = sorted({int(event.fields["rank"] or 0) for event in facts.of("failed_rank")} - waiting)
    if len(waiting) >= 2 and len(absent) == 1:
        why = f"{len(waiting)} ranks ran out of time in a collective of Gloo, and rank {absent[0]} was not in it"
        yield Evidence("slow_rank_or_io", SUPPORTING + 0.5, why, tuple(waits[:2]), "rank-not-in-gloo")


def every_rank_refused_alike(facts: Facts) -> Iterator[Evidence]:
    """DDP refuses the same use of parameters on several ranks: they make the same calls, and the program's use of DDP is at fault."""
    refused = [event for event in facts.of("ready_twice") if not event.quoted]
    ranks = {rank_of(event) for event in refused} - {None}
    if len(ranks) >= 2:
        yield Evidence("rank_desync_app", -STRONG, f"{len(ranks)} ranks fail in the same way: they make the same calls", tuple(refused[:2]), "refused-alike")


def rank_left_in_silence(facts: Facts) -> Iterator[Evidence]:
    """The launcher names the process that ended first, it printed no reason, and other ranks found a connection to a rank closed."""
    failed = failed_of_root(facts)
    if failed is None or failed.exit.fields["code"] in SWEPT or facts.timeouts or first_failure(facts) or any(map(names_its_cause, facts.events)):
        return
    peers_gone = [event for event in facts.of("peer_gone") if not event.quoted and rank_of(event) != failed.rank]
    if peers_gone and not _spoke(facts, failed.rank):
        why = f"rank {failed.rank} ended first, with exit code {failed.exit.fields['code']} and without output; others found its connections closed"
        yield Evidence("rank_failed", STRONG, why, (failed.exit, peers_gone[0]), "left-in-silence")


def _spoke(facts: Facts, rank: int) -> bool:
    """Whether the log has an error of this rank."""
    spoken: list[Event] = [event for event in facts.events if event.signature.kind == "error" and not event.quoted]
    return any(rank_of(event) == rank for event in spoken)
