"""Rules over several statements of people: what works and what does not, taken together, tells causes apart that one sentence leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
_NO_SPACE = "No space left on device"
_AFTER_CUDA_10 = ("30", "40", "50")
_OLDER_CARDS = ("20", "30")  # GeForce cards without peer-to-peer over PCIe that never claimed to have it


def work_is_longer_than_the_limit(facts: Facts) -> Iterator[Evidence]:
    """Somebody names a limit of time, and work that takes minutes or hours, that is short enough with less data, or whose bar stands at the usual limit."""
    limits = _plain(facts, "limit_told")
    work = [event for name in ("long_work_told", "small_data_works", "bar_at_limit") for event in _plain(facts, name)]
    if limits and work:
        why = "a part of the work takes longer than the limit that somebody names"
        yield Evidence("watchdog_timeout_too_short", STRONG + HINTING, why, (limits[0], work[0]), "work-longer-than-told-limit")
        yield Evidence("slow_rank_or_io", HINTING, why, (work[0],), "work-longer-than-told-limit")


def no_space_although_disks_have_space(facts: Facts) -> Iterator[Evidence]:
    """A write found no space, the disks have space: what is full is a file system in memory."""
    full, space = [event for event in facts.events if _NO_SPACE in event.text and not event.quoted], _plain(facts, "disk_has_space")
    if full and space:
        why = "there is no space left, and the disks have space, so /dev/shm is what is full"
        yield Evidence("shm_too_small", STRONG + SUPPORTING, why, (full[0], space[0]), "no-space-but-disks-have")


def container_is_what_differs(facts: Facts) -> Iterator[Evidence]:
    """The job hangs or fails in a container and works outside, or with fewer processes or without loader workers: its shared memory is the usual difference."""
    outside = [event for event in facts.events if event.signature.id == "outside-container-works-reported" and not event.quoted]
    inside, less = [*_plain(facts, "container_fails"), *_plain(facts, "container")], [*_plain(facts, "no_workers_works"), *_plain(facts, "fewer_works")]
    if outside and (signs := hang_signs(facts)) and not facts.of("no_gpu"):
        yield Evidence("shm_too_small", SUPPORTING, "it works outside the container and hangs inside", (outside[0], signs[0]), "container-differs")
    if inside and less:
        why = "in a container it works with fewer processes, so what they share is too small"
        yield Evidence("shm_too_small", SUPPORTING + HINTING, why, (inside[0], less[0]), "container-with-fewer-processes")


def machine_is_what_differs(facts: Facts) -> Iterator[Evidence]:
    """The same job works on another machine, so neither the program nor its releases are at fault."""
    works = _plain(facts, "other_machine_works")
    if works:
        why = "the same job works on another machine"
        for cause in ("rank_desync_app", "nccl_bug", "watchdog_timeout_too_short"):
            yield Evidence(cause, -SUPPORTING, why, (works[0],), "other-machine-works")
        yield Evidence("xid_hardware", HINTING, why, (works[0],), "other-machine-works")


def updated_and_tools_fail(facts: Facts) -> Iterator[Evidence]:
    """Packages were updated, and since then nvidia-smi or new containers fail: libraries and module of the driver differ."""
    updated, fails = _plain(facts, "system_updated"), _plain(facts, "smi_fails")
    if updated and fails:
        why = "packages were updated, and nvidia-smi or new programs do not work since"
        yield Evidence("version_mismatch_driver_library", STRONG, why, (updated[0], fails[0]), "updated-and-tools-fail")


def part_of_one_rank_and_hang(facts: Facts) -> Iterator[Evidence]:
    """A part of the program runs on one rank only, and the job hangs or times out."""
    alone, signs = _plain(facts, "only_one_rank"), hang_signs(facts)
    if alone and signs:
        why = "a part of the program runs on one rank only, and the job hangs"
        yield Evidence("rank_desync_app", SUPPORTING, why, (alone[0], signs[0]), "one-ranks-part-and-hang")


def older_cards_without_peer_access(facts: Facts) -> Iterator[Evidence]:
    """Without peer-to-peer it works, on consumer cards that have none over PCIe."""
    helped = [event for event in facts.of("p2p_disable_helps") if not event.quoted]
    cards = [event for event in facts.of("geforce") if (event.fields["value"] or "").startswith(_OLDER_CARDS)]
    if helped and cards and not (facts.of("p2p_disable_no_help") or facts.of("bad_driver")):
        why = f"the job works without peer-to-peer, on GeForce RTX {cards[0].fields['value']}"
        yield Evidence("unsupported_p2p_geforce", SUPPORTING + HINTING, why, (helped[0], cards[0]), "p2p-off-on-consumer-cards")


def card_is_newer_than_cuda(facts: Facts) -> Iterator[Evidence]:
    """A person names a GPU and a CUDA release that was made before it."""
    cuda, cards = _plain(facts, "old_cuda_named"), [event for event in facts.of("geforce") if (event.fields["value"] or "").startswith(_AFTER_CUDA_10)]
    if cuda and cards:
        why = f"CUDA {cuda[0].fields['value']} has no code for an RTX {cards[0].fields['value']}"
        yield Evidence("gpu_not_in_build", STRONG, why, (cuda[0], cards[0]), "card-newer-than-cuda")


def _plain(facts: Facts, name: str) -> Sequence[Event]:
    return [event for event in facts.of(name) if not event.quoted]
