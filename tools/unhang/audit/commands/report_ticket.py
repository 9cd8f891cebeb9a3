"""`unhang report RUN --host gpu007 -o ticket`: one node for its vendor, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.audit.commands.filters import Filters, filtered
from unhang.audit.history.lost_gpus import lost_gpus, sections_of
from unhang.audit.report.smoke_results import SmokeResult, read_smoke_tests
from unhang.audit.report.ticket import (
    Block,
    render_ticket,
    ticket_blocks,
    ticket_findings,
)
from unhang.core.commands.deliver import deliver
from unhang.core.errors import UserError
from unhang.core.project import program_as_typed
from unhang.core.run import run_folder
from unhang.core.run.actions import host_option
from unhang.core.run.run_input import node_paths
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import visible


class TicketOptions(Filters, frozen=True):
    """Which node; out: the ticket's file; smoke: files of results."""

    out: str | None
    smoke: list[str]


def write_ticket(folder: Path, findings: Mapping[str, Any], options: TicketOptions) -> int:
    """1, as of every report with findings. Raises UserError, also for a node without a fault that a
    vendor could repair."""
    (host,) = _one_node(folder, findings, options)
    tests = read_smoke_tests(folder, [Path(one) for one in options.smoke]).results
    if not (
        ticket_findings(findings, host)
        or any(suspect.host == host for test in tests for suspect in test.suspects)
    ):
        raise UserError(_nothing_for_a_vendor(folder, findings, host))
    deliver(render_ticket(_blocks(folder, findings, host, tests)), options.out or "-")
    return 1


def keep_ticket(folder: Path, findings: Mapping[str, Any], host: str) -> Path:
    """Writes the ticket of a node beside its findings, in Markdown, and returns its path. Raises
    UserError, OSError."""
    tests = read_smoke_tests(folder, []).results
    text = render_ticket(_blocks(folder, findings, host, tests))
    ticket = folder / f"ticket-{run_folder.file_stem(host)}.md"
    run_folder.write_atomically(ticket, text)
    return ticket


def _blocks(
    folder: Path,
    findings: Mapping[str, Any],
    host: str,
    tests: Sequence[SmokeResult],
) -> list[Block]:
    path = node_paths(folder, [host]).get(host)
    sections = sections_of(path) if path else {}
    tried = [*_tried(folder, host), *_resets(sections)]
    lost = lost_gpus(folder, host, sections)
    return list(ticket_blocks(findings, host, sections, tests, tried, lost))


def _resets(sections: Mapping[str, Any]) -> Iterator[str]:
    """A line for each reset of a GPU, and each boot for one, that unhang has ordered."""
    for row in (sections.get("faults") or {}).get("resets") or ():
        which = visible(row.get("uuid") or row.get("pci_address") or "a GPU", 120)
        faults = ", ".join(visible(one, 120) for one in row.get("because") or ())
        hours = round((row.get("age_s") or 0) / 3600, 1)
        yield (
            f"{visible(row.get('verb') or '?', 40)}: {which}, {hours:g} hours before this reading,"
            f" for {faults}"
        )


def _nothing_for_a_vendor(folder: Path, findings: Mapping[str, Any], host: str) -> str:
    nothing = f"no fault of {visible(host, 200)} is known that its vendor repairs"
    typed = f"{program_as_typed()} report {run_folder.as_typed(folder)}"
    typed += f" {host_option(visible(host, 200))}"
    if host in findings["node_verdicts"]["unread"]:
        return f"{nothing}: the node was not read; why, and what to do: {typed}"
    return f"{nothing}; what was found on it: {typed} -v"


def _one_node(folder: Path, findings: Mapping[str, Any], options: TicketOptions) -> list[str]:
    given = (
        [
            host
            for hosts in filtered(folder, findings, options)["node_verdicts"].values()
            for host in hosts
        ]
        if options.host
        else []
    )
    if len(given) != 1:
        raise UserError(
            f"--format ticket needs one node with --host, not {len(given)}; write one ticket for"
            " each node"
        )
    return given


def _tried(folder: Path, host: str) -> Iterator[str]:
    """A line about the repair of this node in this run, from the rollout's proof."""
    path = folder / f"remediation-{run_folder.file_stem(host)}.json"
    try:
        done = parse_strictly(read_bounded(path, run_folder.LONGEST_DOCUMENT))
    except (OSError, NotStrict):
        return
    if not isinstance(done, dict) or not isinstance(done.get("healthy"), bool):
        return
    roles, reasons = (
        [str(one) for one in found if one] if isinstance(found := done.get(name), list) else []
        for name in ("roles", "reasons")
    )
    played = f"roles {', '.join(roles)}; " if roles else ""
    outcome = (
        "the node is healthy afterwards"
        if done["healthy"]
        else f"the node is not healthy afterwards: {'; '.join(reasons)}"
    )
    yield f"repair by unhang: {visible(without_secrets(f'{played}{outcome}'), 600)}"
