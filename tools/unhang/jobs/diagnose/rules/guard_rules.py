"""Rules that speak against a cause: each keeps a sound machine from an alarm, or an answer from a wrong error."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]


def links_are_all_used(facts: Facts) -> Iterator[Evidence]:
    """Boards have more link positions than they use: if all GPUs have the same links and a bandwidth test completes, no link is missing. Keeps 3/260 silent."""
    rows = [tuple(sorted(word for word in (event.fields["value"] or "").split() if word[:2] == "NV")) for event in facts.of("topology")]
    measured = facts.of("average_bandwidth")
    if measured and rows and rows[0] and len(set(rows)) == 1 and not facts.of("xid"):
        yield Evidence("nvlink_down", -STRONG, "all GPUs reach each other over equally many links, and a bandwidth test ran", (measured[0],), "links-all-used")


def duplicate_gpu_is_mig(facts: Facts) -> Iterator[Evidence]:
    """Ranks on two MIG instances of one GPU: to NCCL they seem to use the same GPU. Keeps a documented symptom from a wrong error."""
    duplicate = [event for event in facts.events if event.signature.id == "nccl-duplicate-gpu" and not event.quoted]
    if duplicate and facts.of("mig"):
        why = "the ranks are on MIG instances of one GPU, which NCCL does not join"
        yield Evidence("mig_unsupported", DECISIVE, why, (facts.of("mig")[0], duplicate[0]), "duplicate-and-mig")
        yield Evidence("rank_device_mapping", -STRONG, why, (facts.of("mig")[0],), "duplicate-and-mig")


def name_was_found_later(facts: Facts) -> Iterator[Evidence]:
    """Names of hosts did not resolve at first, and ssh reached each of these hosts later: a launcher repeats its attempts until the hosts are there. Keeps a
    documented start of MPIJob silent.
    """
    unknown = [event for event in facts.events if event.signature.id == "master-name-unknown" and not event.quoted]
    found = [(event, later) for event in unknown for later in facts.of("ssh_reached") if _is_the_host(event, later)]
    if unknown and {event.line for event, _ in found} == {event.line for event in unknown}:
        why = f"ssh reached {found[-1][1].fields['host']} later"
        yield Evidence("dns_hostname", -STRONG, why, found[-1], "name-found-later")
        yield Evidence("wrong_interface", -SUPPORTING, why, found[-1], "name-found-later")


def _is_the_host(unknown: Event, later: Event) -> bool:
    return later.file == unknown.file and later.line > unknown.line and str(unknown.fields["host"] or "").rstrip(":") == later.fields["host"]
