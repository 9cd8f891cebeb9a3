"""Rules over links of GPUs: PCIe links with fewer lanes or a lower speed, and faults of the GPU that follow from an NVLink."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, HINTING = WEIGHTS["strong"], WEIGHTS["hinting"]
_WIDTH, _GENERATION = "pcie.link.width", "pcie.link.gen"
_LOAD = "utilization.gpu"
_BUSY = 90  # per cent
_NOT_IDLE = 8.0  # GT/s: the speed of PCIe 3; a link that saves power has 2.5 or 5
_RECOVERY, _AFTER_OTHERS = "xid-memory-event", "154"


def link_has_fewer_lanes(facts: Facts) -> Iterator[Evidence]:
    """A GPU uses fewer lanes than it and its slot have. Only a lower speed means an idle GPU that saves power."""
    rows = [(int(event.fields["now"] or 0), int(event.fields["max"] or 0), event) for event in facts.of("link_width")]
    rows += [(int(event.fields["width"] or 0), int(event.fields["max"] or 0), event) for event in facts.of("link_limited")]
    rows += [row for event in facts.of("link_query") for row in _lanes(event)]
    narrow = [row for row in rows if 0 < row[0] < row[1]]
    if narrow:
        now, most, event = min(narrow, key=lambda row: row[0])
        yield Evidence("pcie_link_degraded", STRONG, f"a link uses {now} lanes of {most}", (event,), "fewer-lanes")


def busy_gpu_has_a_slow_link(facts: Facts) -> Iterator[Evidence]:
    """The link of a GPU has a lower generation than it can have, and the GPU is at work: then it does not save power."""
    for event in facts.of("link_query"):
        for row in _rows(event):
            now, most, load = (_number(row.get(name)) for name in (f"{_GENERATION}.current", f"{_GENERATION}.max", _LOAD))
            if 0 < now < most and load >= _BUSY:
                why = f"the link of a GPU at {load} % load has PCIe generation {now}, and it can have {most}"
                yield Evidence("pcie_link_degraded", STRONG, why, (event,), "slow-link-at-work")
                return


def link_is_slower_than_the_card(facts: Facts) -> Iterator[Evidence]:
    """The kernel finds a switch or slot of an older generation above a card. Many machines are built so; it matters if the job is slow."""
    limited = [
        event for event in facts.of("link_limited") if not event.quoted and _NOT_IDLE <= float(event.fields["speed"] or 0) < float(event.fields["most"] or 0)
    ]
    if limited:
        slow = facts.of("slow_told")
        why = f"a card for {limited[0].fields['most']} GT/s is behind a link of {limited[0].fields['speed']} GT/s"
        yield Evidence("pcie_link_degraded", STRONG if slow else HINTING, why, (*limited[:2], *slow[:1]), "slower-than-the-card")


def recovery_follows_a_link_error(facts: Facts) -> Iterator[Evidence]:
    """The driver asks for a reset of the GPU after an error of its NVLink: the link is the cause, and the request its effect."""
    links = [event for event in facts.of("xid") if event.signature.id == "xid-nvlink" and not event.quoted]
    asked = [event for event in facts.of("xid") if event.signature.id == _RECOVERY and not event.quoted]
    if links and asked and all(event.fields["code"] == _AFTER_OTHERS for event in asked) and (links[0].file, links[0].line) < (asked[0].file, asked[0].line):
        yield Evidence("xid_hardware", -STRONG, "the driver asks for a reset because of the link", (links[0], asked[0]), "recovery-after-link-error")


def _lanes(event: Event) -> Iterator[tuple[int, int, Event]]:
    """(current lanes, maximum lanes, line) of each row; if the maximum was not queried, it is that of the widest GPU."""
    rows = _rows(event)
    widest = max((_number(row.get(f"{_WIDTH}.current")) for row in rows), default=0)
    for row in rows:
        yield _number(row.get(f"{_WIDTH}.current")), _number(row.get(f"{_WIDTH}.max", str(widest))), event


def _rows(event: Event) -> list[dict[str, str]]:
    """The rows of a query, each as name of the column: value."""
    names = [name.split("[")[0].strip() for name in (event.fields["names"] or "").split(",")]
    rows = [[cell.strip() for cell in line.split(",")] for line in (event.fields["rows"] or "").splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def _number(cell: str | None) -> int:
    """16 for "16" and 100 for "100 %"; 0 for what is no number."""
    digits = (cell or "").removesuffix("%").strip()
    return int(digits) if digits.isdigit() else 0
