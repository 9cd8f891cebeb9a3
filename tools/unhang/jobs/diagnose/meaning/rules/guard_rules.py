"""Rules that speak against a cause: each keeps a sound machine from an alarm, or an answer from a
wrong error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event, names_in
from unhang.jobs.diagnose.meaning.evidence import STRONG, SUPPORTING, Evidence, weighed


def links_are_all_used(facts: Facts) -> Iterator[Evidence]:
    """Boards have more link positions than they use: if all GPUs have the same links and a
    bandwidth test completes, no link is missing.

    Keeps silent: diagnose_batches/3/260.
    """
    rows = [
        tuple(sorted(word for word in (event.fields["value"] or "").split() if word[:2] == "NV"))
        for event in facts.of("topology")
    ]
    measured = facts.of("average_bandwidth")
    if measured and len({*rows}) == 1 and rows[0] and not facts.of("xid"):
        yield Evidence(
            "nvlink_down",
            -STRONG,
            "all GPUs reach each other over equally many links, and a bandwidth test ran",
            (measured[0],),
            "links-all-used",
        )


def lock_has_a_builder(facts: Facts) -> Iterator[Evidence]:
    """Ranks wait for the lock of a build, and the stack of another shows that it builds.

    Keeps silent: diagnose_odd_ones/stacks/one-builds-an-extension-and-the-others-wait.
    """
    ranks = facts.standings.items()
    if builder := next((name for name, one in ranks if one.activity.name == "compiling"), None):
        why = f"{builder} builds, so that the lock is no dead one's"
        yield Evidence("fused_kernel_build", -STRONG, why, (), "lock-has-a-builder")


def name_was_found_later(facts: Facts) -> Iterator[Evidence]:
    """Names of hosts did not resolve at first, and ssh reached each of these hosts later: a
    launcher repeats its attempts until the hosts are there.

    Keeps silent: diagnose_documented/between_nodes_3/mpijob-launcher-retries-until-dns.
    """
    unknown = facts.has("master-name-unknown")
    found = [
        (event, later)
        for event in unknown
        for later in facts.of("ssh_reached")
        if _is_the_host(event, later)
    ]
    if unknown and {event.line for event, _ in found} == {event.line for event in unknown}:
        why = f"ssh reached {found[-1][1].fields['host']} later"
        weights = {"dns_hostname": -STRONG, "wrong_interface": -SUPPORTING}
        yield from weighed(weights, why, found[-1], "name-found-later")


def more_joined_than_the_world(facts: Facts) -> Iterator[Evidence]:
    """The store has counted more workers than the job has: those of an earlier run are among them,
    so none is missing. Where a rank was started for as many, it is the size that is wrong.

    Decides diagnose_batches/13/e27, diagnose_documented/gpu_nccl_torch_2/store-barrier-key-reused.
    """
    sizes = {one.fields["value"] for one in facts.set_to("WORLD_SIZE") if not one.quoted}
    for event in facts.said("store_count"):
        joined, size = event.fields["joined"], event.fields["size"]
        if event.number("joined") > event.number("size") > 0 and joined not in sizes:
            why = (
                f"{joined} workers have joined a store for {size}: those of an earlier run are"
                " counted too"
            )
            others = ("launch_mismatch", "slow_rank_or_io", "firewall_ports")
            weights = {"stale_store": STRONG + SUPPORTING, **dict.fromkeys(others, -STRONG)}
            yield from weighed(weights, why, (event,), "more-than-the-world")
            return


def one_machine_needs_no_network(facts: Facts) -> Iterator[Evidence]:
    """The job is launched on one node: nothing between machines can stop it.

    Decides diagnose_outputs/launchers_and_containers/one-machine-that-waits-for-another-address.
    """
    launched = facts.said("nnodes")
    if launched and {event.fields["value"] for event in launched} == {"1"}:
        why = "the job runs on one machine"
        yield Evidence("firewall_ports", -STRONG, why, (launched[0],), "one-machine")
        masters = facts.set_to("MASTER_ADDR")
        named = [event for event in masters if _is_elsewhere(event.fields["value"])]
        if named and (waits := facts.has(*names_in("no_answer"))):
            why = (
                "the job runs on one machine, and waits for another address,"
                f" {named[0].fields['value']}"
            )
            yield Evidence(
                "dns_hostname",
                STRONG,
                why,
                (launched[0], named[0], waits[0]),
                "one-machine-other-master",
            )


def _is_elsewhere(address: str | None) -> bool:
    """Whether an address is a number of another machine than the own one, as far as it shows."""
    text = (address or "").strip("\"'")
    return bool(re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", text)) and not text.startswith("127.")


def _is_the_host(unknown: Event, later: Event) -> bool:
    return (
        later.follows(unknown)
        and str(unknown.fields["host"] or "").rstrip(":") == later.fields["host"]
    )
