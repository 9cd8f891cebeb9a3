"""One node for the vendor's desk: what it is, what failed, by which limit, with the lines that show
it, and what was tried. Nothing of other nodes, and nothing that others than the vendor act on.
Values in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from unhang.audit.report import phrases
from unhang.audit.report.folding import item_label
from unhang.audit.report.phrases import VENDOR
from unhang.audit.report.smoke_results import SmokeResult
from unhang.core.run.findings import hosts_of
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import value_at
from unhang.core.text import visible

MOST_EVIDENCE = 20
LONGEST = 2000  # characters of a value
GPU_COLUMNS = {
    "GPU": "index", "model": "model", "UUID": "uuid", "serial": "serial",
    "board": "board_part_number", "slot (PCI address)": "pci_address", "VBIOS": "vbios",
    "InfoROM": "inforom",
}  # fmt: skip
ADAPTER_COLUMNS = {
    "adapter": "name",
    "board": "board",
    "slot (PCI address)": "pci_address",
    "firmware": "firmware",
}
LOST = "GPUs that do not answer now, as an earlier run read them:"
SERIAL = "unhang does not read it; on the node, as root: dmidecode -s system-serial-number"
SLOTS = (  # no fact of a node has the number that is printed on the chassis
    "The slot's number on the chassis is not read; the PCI address is what is known of it. On the"
    " node, dmidecode -t slot names the slot of an address, and nvidia-smi -q the module id of an"
    " SXM GPU."
)


class Block(NamedTuple):
    """A part of the ticket. level: of a heading, 0 for none; rows: of a table, the first is its
    head; lines: verbatim."""

    text: str = ""
    level: int = 0
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()


def ticket_findings(findings: Mapping[str, Any], host: str) -> list[Mapping[str, Any]]:
    """The failures of this node alone that the vendor acts on, the worst first."""
    failed = (
        one
        for one in findings["findings"]
        if one["verdict"] == "fail" and one.get("scope") == "node" and one.get("owner") == VENDOR
    )
    return [one for one in failed if hosts_of(one) == (host,)]


def ticket_blocks(
    findings: Mapping[str, Any],
    host: str,
    sections: Mapping[str, Any],
    tests: Sequence[SmokeResult],
    tried: Sequence[str],
    lost: Sequence[tuple[Any, str]] = (),
) -> Iterator[Block]:
    """sections: facts of the node; tests: smoke tests in which it took part; tried: what was done
    to it, a line each; lost: (GPU that does not answer now, the earlier run that read it)."""
    run = findings["run"]
    yield Block(f"Hardware fault of {visible(host, 200)}", 1)
    yield Block(
        f"Read on {visible(run.get('started') or '?', 40)} (run {visible(run['id'], 80)}); judged"
        f" by {findings['catalogue']['rules']} cited rules."
    )
    yield Block("The machine", 2)
    yield Block(rows=[("what", "value"), *_machine(sections)])
    for columns, devices in (
        (GPU_COLUMNS, value_at(sections, ("gpus", "devices"))),
        (ADAPTER_COLUMNS, value_at(sections, ("network", "rdma"))),
    ):
        if devices:
            yield Block(
                rows=[
                    tuple(columns),
                    *([_text(row.get(key)) for key in columns.values()] for row in devices),
                ]
            )
    if lost:
        yield Block(LOST)
        yield Block(
            rows=[
                (*GPU_COLUMNS, "read by"),
                *(
                    [*(_text(gpu.get(key)) for key in GPU_COLUMNS.values()), _text(run)]
                    for gpu, run in lost
                ),
            ]
        )
    if value_at(sections, ("gpus", "devices")) or value_at(sections, ("network", "rdma")):
        yield Block(SLOTS)
    failed = ticket_findings(findings, host)
    yield Block("What failed", 2)
    for one in failed:
        place = item_label(one.get("where"))
        yield Block(
            f"{visible(one['title'], 300)}{f': {visible(place, 120)}' if place else ''}"
            f" ({one['severity']})",
            3,
        )
        texts = [(name, _text(one[name])) for name in ("rule", "expected", "found")]
        yield Block(rows=[("test", "value"), *texts, ("do", phrases.action(one))])
        evidence = [
            f"{path} = {value}" for path, value in phrases.evidence(one, most=MOST_EVIDENCE)
        ]
        yield Block(lines=evidence)
    if not failed:
        yield Block(f"Nothing that a vendor acts on was found on {visible(host, 200)}.")
    yield Block("What was tried", 2)
    shown = [*_tests(tests, host), *tried]
    yield (
        Block(rows=[("what", "result"), *(line.partition(": ")[::2] for line in shown)])
        if shown
        else Block("Nothing by unhang.")
    )


def _machine(sections: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    named = {
        "vendor": ("node", "dmi", "vendor"), "product": ("node", "dmi", "product"),
        "board": ("node", "dmi", "board"), "BIOS": ("node", "dmi", "bios_version"),
        "driver": ("driver", "loaded", "version"), "fabric manager": ("fabric_manager", "version"),
        "kernel": ("kernel", "release"),
    }  # fmt: skip
    for name, path in named.items():
        value = value_at(sections, path)
        if value is not None:
            yield name, _text(value)
    yield "serial", SERIAL


def _tests(tests: Sequence[SmokeResult], host: str) -> Iterator[str]:
    """A test of several nodes names none of the others."""
    for test in (one for one in tests if host in [member.host for member in one.hosts]):
        why = "; ".join(f"{one.phase}, {one.why}" for one in test.suspects if one.host == host)
        size = "the node alone" if len(test.hosts) == 1 else f"{len(test.hosts)} nodes together"
        yield (
            f"smoke test of {size}:"
            f" {test.verdict}{f', {visible(without_secrets(why), 600)}' if why else ''}"
        )


def _text(value: object) -> str:
    return "not read" if value is None else visible(without_secrets(str(value)), 400)


def render_ticket(blocks: Sequence[Block]) -> str:
    """Markdown, as an issue tracker takes it."""
    parts = []
    for block in blocks:
        if block.rows:
            head, *rows = [[_escaped(cell) for cell in row] for row in block.rows]
            parts.append(
                "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
            )
        elif block.lines:
            parts.append(
                "\n".join(f"    {visible(without_secrets(line), LONGEST)}" for line in block.lines)
            )
        elif block.text:
            parts.append(f"{'#' * block.level} {_escaped(block.text)}".strip())
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """Without what a terminal, Markdown, or HTML in it, would read as more."""
    return _without_markdown(visible(without_secrets(text), LONGEST).replace("\\", "\\\\"))


def _without_markdown(text: str) -> str:
    """A text with the signs escaped that Markdown, or HTML in it, would read as more."""
    for sign, plain in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("|", "\\|"),
        ("`", "'"),
        ("[", "\\["),
        ("*", "\\*"),
        ("_", "\\_"),
    ):
        text = text.replace(sign, plain)
    return text
