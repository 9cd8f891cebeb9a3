"""Rules over counts that differ between ranks: collectives, batches, calls, arrivals at a barrier, MTUs of adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs, near_end
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
_BY_HAND = "Received 2 death signal"  # torchrun on Ctrl+C
APART = 2  # batches: lines of ranks that are one apart may just have been printed in another order


def few_ranks_are_behind(facts: Facts) -> Iterator[Evidence]:
    """NCCL's RAS counts fewer collectives on few ranks than on all others: the job waits for them."""
    by_op: dict[str, list[Event]] = {}
    for event in facts.of("ras_count"):
        by_op.setdefault(event.fields["op"] or "", []).append(event)
    for events in by_op.values():
        behind = min(events, key=lambda event: int(event.fields["count"] or 0))
        ahead = max(events, key=lambda event: int(event.fields["count"] or 0))
        if int(behind.fields["count"] or 0) < int(ahead.fields["count"] or 0) and int(behind.fields["ranks"] or 0) < int(ahead.fields["ranks"] or 0):
            named = [f"rank {one.fields['rank']} on {one.fields['host']}" for one in facts.of("ras_rank")[:8]]
            why = f"RAS: {behind.fields['ranks']} of the ranks launched fewer collectives{': ' if named else ''}{', '.join(named)}"
            for cause, weight in (("slow_rank_or_io", SUPPORTING), ("rank_desync_app", HINTING), ("nccl_bug", HINTING)):
                yield Evidence(cause, weight, why, (behind, ahead, *facts.of("ras_rank")[:2]), "ras-behind")
            return


def not_all_arrived(facts: Facts) -> Iterator[Evidence]:
    """A barrier counts arrivals, and the number stays below the size. If the job continues after it, the last rank was slow."""
    waits = [event for event in facts.of("arrived_of_all") if int(event.fields["arrived"] or 0) < int(event.fields["size"] or 0) and not event.quoted]
    alike = Counter((event.file, event.fields["arrived"], event.fields["size"]) for event in waits)
    for event in reversed(waits):
        arrived, size = event.fields["arrived"], event.fields["size"]
        if alike[event.file, arrived, size] > 1:
            later = [step for step in facts.of("training_step") if step.file == event.file and step.line > event.line]
            why = f"only {arrived} of {size} had arrived for a long time{', and the job continued afterwards' if later else ''}"
            yield Evidence("slow_rank_or_io", STRONG if later else SUPPORTING, why, (event,), "not-all-arrived")
            return


def ranks_are_at_different_batches(facts: Facts) -> Iterator[Evidence]:
    """The ranks print their batches, the log ends in a hang, and the last batch numbers differ: the ranks have different numbers of batches."""
    last: dict[str, Event] = {str(event.fields["rank"]): event for event in facts.of("rank_batch") if not event.quoted}
    stopped = [*facts.of("interrupted"), *(event for event in facts.events if _BY_HAND in event.text)]
    if len(last) < 2 or not (stopped or hang_signs(facts)):
        return
    first, final = (choose(last.values(), key=lambda event: int(event.fields["batch"] or 0)) for choose in (min, max))
    if int(final.fields["batch"] or 0) - int(first.fields["batch"] or 0) >= APART:
        why = f"rank {final.fields['rank']} is at {final.fields['batch']}, rank {first.fields['rank']} at {first.fields['batch']}, and the job hangs"
        yield Evidence("rank_desync_app", STRONG, why, (first, final), "batches-apart")


def ranks_gave_up_in_different_calls(facts: Facts) -> Iterator[Evidence]:
    """torchrun's table has tracebacks of ranks that waited in collectives at different places of the program."""
    calls: dict[str, Event] = {}
    for event in facts.of("rank_ended_in"):
        calls.setdefault(f"{event.fields['code'] or ''} in {event.fields['function']}".strip(), event)
    if len({event.fields["rank"] for event in calls.values()}) > 1:
        what = "; ".join(f"rank {event.fields['rank']}: {call}" for call, event in list(calls.items())[:3])
        yield Evidence("rank_desync_app", STRONG + 1, f"ranks waited in different calls: {what}", tuple(calls.values())[:3], "ranks-in-different-calls")
        yield Evidence("watchdog_timeout_too_short", -STRONG, "the ranks waited in different calls", (), "ranks-in-different-calls")


def adapters_of_unlike_mtu(facts: Facts) -> Iterator[Evidence]:
    """Queue pairs of one adapter's number have another packet size on another host, or a failed job's ports have different ones."""
    by_device: dict[str, dict[str, Event]] = {}
    for event in facts.of("qp_mtu"):
        by_device.setdefault(event.fields["device"] or "", {}).setdefault(event.fields["mtu"] or "", event)
    for sizes in by_device.values():
        if len(sizes) > 1 and len({event.prefix.host for event in sizes.values()}) > 1:
            why = f"queue pairs of adapters on different hosts are set up with MTU codes {' and '.join(sorted(sizes))}"
            yield Evidence("mtu_mismatch", STRONG, why, tuple(sizes.values())[:2], "unlike-qp-mtu")
            yield Evidence("ib_misconfig", -SUPPORTING, why, tuple(sizes.values())[:1], "unlike-qp-mtu")
            break
    ports = {event.fields["mtu"]: event for event in facts.of("active_mtu")}
    failed = [event for event in facts.events if "ib_misconfig" in event.signature.for_ and event.signature.kind == "error" and not event.quoted]
    signs = failed + hang_signs(facts)
    if len(ports) > 1 and signs:
        why = f"ports are active with MTU {' and '.join(sorted(map(str, ports)))}, and the network fails or the job hangs"
        yield Evidence("mtu_mismatch", SUPPORTING + 1, why, (*list(ports.values())[:2], signs[0]), "unlike-active-mtu")


def parameter_servers_wait_for_nodes(facts: Facts) -> Iterator[Evidence]:
    """The scheduler of parameter servers got requests to join and assigned no number: not all nodes reach it."""
    asked = facts.of("pslite_scheduler")
    if asked and not facts.of("pslite_joined") and near_end(facts, asked[-1]):
        why = "the scheduler waits for nodes that cannot reach it"
        yield Evidence("firewall_ports", SUPPORTING, why, (asked[-1],), "scheduler-waits")
        yield Evidence("launch_mismatch", HINTING, why, (asked[-1],), "scheduler-waits")


def amazon_plugin_is_not_used(facts: Facts) -> Iterator[Evidence]:
    """Amazon's plugin is installed or named, and NCCL uses sockets."""
    installed, sockets = facts.of("amazon_network"), facts.of("network_socket")
    if installed and sockets and not facts.has("net-plugin-no-provider"):
        why = "Amazon's network plugin is installed, and NCCL uses sockets"
        yield Evidence("net_plugin_not_loaded", STRONG, why, (installed[0], sockets[0]), "amazon-plugin-unused")
        yield Evidence("ib_misconfig", -SUPPORTING, why, (), "amazon-plugin-unused")


def two_hosts_have_one_node_rank(facts: Facts) -> Iterator[Evidence]:
    """At the prompts of two hosts a person starts nodes of one job with the same number."""
    nodes = max((int(event.fields["value"] or 0) for event in facts.of("nnodes")), default=0)
    by_rank: dict[str, dict[str, Event]] = {}
    for event in facts.of("node_launched") if nodes > 1 else ():
        by_rank.setdefault(event.fields["rank"] or "", {}).setdefault(event.fields["host"] or event.fields["host2"] or "", event)
    for rank, by_host in by_rank.items():
        if len(by_host) > 1 and len(by_rank) == 1:
            why = f"{' and '.join(sorted(by_host)[:2])} are both started as node {rank}"
            yield Evidence("launch_mismatch", STRONG + 1, why, tuple(by_host.values())[:2], "one-node-rank-twice")
            return


def store_counts_more_than_the_world(facts: Facts) -> Iterator[Evidence]:
    """More workers have come to the store than the job has: the store still holds the counter of an earlier run."""
    for event in facts.of("store_count"):
        size, joined = int(event.fields["size"] or 0), int(event.fields["joined"] or 0)
        if joined > size and not event.quoted:
            why = f"{joined} workers are counted in a world of {size}"
            yield Evidence("stale_store", STRONG + 1, why, (event,), "more-workers-than-ranks")
            return


def each_task_starts_a_launcher(facts: Facts) -> Iterator[Evidence]:
    """Slurm starts several tasks on a node, and each is a launcher that starts several ranks there: all but one find the port taken."""
    several = [event for event in facts.of("tasks_of_node") if int(event.fields["count"] or event.fields["last"] or 0) > 1]
    launchers = [event for event in facts.of("launch_shape") if int(event.fields["per_node"] or 0) > 1]
    taken = [event for event in facts.events if "port_in_use" in event.signature.for_ and not event.quoted]
    if several and launchers and taken:
        why = "each of several tasks on a node starts a launcher for the whole node, which needs one task per node"
        yield Evidence("launch_mismatch", STRONG + 1, why, (several[0], launchers[0]), "launcher-in-each-task")
        yield Evidence("port_in_use", -SUPPORTING, why, (several[0],), "launcher-in-each-task")
