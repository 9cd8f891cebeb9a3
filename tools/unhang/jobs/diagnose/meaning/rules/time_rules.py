"""Rules over what happens again and again, or stops early: links that are lost, errors of
NVSwitches, ranks whose records differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.events import BOOT
from unhang.jobs.diagnose.meaning.evidence import STRONG, SUPPORTING, WEAK, Evidence
from unhang.jobs.diagnose.meaning.signs import hang_signs

LOSSES, LOSSES_WITHIN_S = 3, 86_400.0
# The guide of the fabric manager calls the interrupt one to ignore.
_CORRECTED = re.compile(r"Single bit|Minion Link DLREQ interrupt")
_PLACES = (("pci", "bus"), ("port", "link"))  # as the driver and the fabric manager name them
_CONTAINERS = re.compile(r"veth|docker|br-|cali|cni|virbr|tap|lxc|flannel")


def port_loses_its_link(facts: Facts) -> Iterator[Evidence]:
    """A port of a network adapter lost its link several times in a day without a boot between. Once
    is a boot, a cable or a person; several ports at once are their switch, and still reported.

    Decides diagnose_odd_ones/times/four-losses-in-an-hour,
    diagnose_odd_ones/times/other-driver-loses-its-link.
    """
    ports: dict[tuple[str, str], list[Event]] = {}
    for event in facts.said("link_lost"):
        names = (event.fields.get(name) for name in ("interface", "port", "pci"))
        port = next(filter(None, names), None)
        if port and not _CONTAINERS.match(port):
            ports.setdefault((event.file, port), []).append(event)
    for (file, port), lost in ports.items():
        boots = [
            one.line for one in facts.of("kernel_version") if one.file == file and BOOT in one.text
        ]
        if len(often := _most_in_a_day(lost, boots)) >= LOSSES:
            why = f"{port} lost its link {len(often)} times"
            yield Evidence("ib_misconfig", STRONG, why, tuple(often[:3]), "port-loses-its-link")


def _most_in_a_day(events: Sequence[Event], boots: Iterable[int]) -> list[Event]:
    """The most events within a day and between two boots; without times, between two boots."""
    best: list[Event] = []
    for last in events:
        since = max((line for line in boots if line < last.line), default=0)
        run = [one for one in events if since < one.line <= last.line and _within(one, last)]
        best = max(best, run, key=len)
    return best


def _within(one: Event, last: Event) -> bool:
    apart_s = last.prefix.time.since(one.prefix.time) if last.prefix.time else None
    return apart_s is None or abs(apart_s) <= LOSSES_WITHIN_S


def switch_reports_an_error(facts: Facts) -> Iterator[Evidence]:
    """An NVSwitch's error, as the driver or the fabric manager logs it, by the table of SXids; a
    single bit that was corrected is a remark. Fatal ones of the driver have rows of their own.

    Decides diagnose_odd_ones/times/switch-error-of-fabric-manager,
    diagnose_odd_ones/times/fatal-switch-error-of-fabric-manager.
    """
    seen: dict[tuple, Event] = {}
    for event in facts.of("sxid"):
        pci, port = (event.fields[one] or event.fields[other] for one, other in _PLACES)
        seen.setdefault((event.fields["code"], pci, port), event)
    for (code, pci, port), event in seen.items():
        row = table("sxids").get(str(code), {})
        is_corrected = bool(_CORRECTED.match(row.get("name", ""))) or row.get("group") == "other"
        name = f" ({row['name']}, {row['group']})" if row else ""
        why = f"SXid {code}{name} of the NVSwitch at PCI {pci}{f', port {port}' if port else ''}"
        weight = WEAK if is_corrected else SUPPORTING
        if event.fields["severity"] == "fatal":
            weight = STRONG
        id_ = "sxid-corrected" if is_corrected else "sxid"
        yield Evidence("nvlink_down", weight, why, (event,), id_, who=(f"NVSwitch {pci}",))


def rank_differs_by_its_records(facts: Facts) -> Iterator[Evidence]:
    """In a log of a hanging job, the lines that its ranks repeat show one that went silent, fell
    behind or is stuck.

    Decides diagnose_odd_ones/times/rank-that-went-silent-before-the-others.
    """
    for one in facts.counts if hang_signs(facts) else ():
        if one.who:
            yield Evidence(
                "slow_rank_or_io", SUPPORTING, f"{one.who}: {one.why}", (), "records-differ",
                places=(evidence_of(one.line),), who=(one.who,),
            )  # fmt: skip
