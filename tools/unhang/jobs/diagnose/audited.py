"""What the audit's rules say beside a log: findings on its hosts (`--run RUN`), and of the output
of a machine's tools among the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unhang.core.text import listed, visible
from unhang.jobs.diagnose.logs.line_prefixes import Prefix
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.looked import Printed, Read
from unhang.jobs.diagnose.matching.scanning import OF_A_TOOL, Event
from unhang.jobs.diagnose.matching.signatures import Signature, load_causes
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence

OTHER = "node_not_ready"  # the cause of findings that no other cause names
_LEVELS = {"critical": "strong", "error": "strong", "warning": "supporting", "info": "weak"}


def _causes_of_rules() -> dict[str, str]:
    return {rule: id_ for id_, row in load_causes().items() for rule in row.get("rules", ())}


def audit_evidence(
    path: Path,
    findings: Sequence[Any],
    hosts: Sequence[str],
) -> list[Evidence]:
    """Evidence from findings on the log's hosts. Findings on other hosts are not used."""
    by_rule = _causes_of_rules()
    known = {_bare(host) for host in hosts}
    seen: dict[str, Evidence] = {}
    for one in findings:
        shared = [host for host in one.about() if _bare(host) in known]
        if not shared or one.verdict != "fail" or one.rule not in by_rule:
            continue
        cause = by_rule[one.rule]
        where = ", ".join(shared[:4])
        text = f"{where}: {one.title or one.rule}: {one.found}"[:400]
        event = Event(_signature(one.rule, text), str(path), 1, text, {}, Prefix(host=shared[0]))
        seen.setdefault(
            one.rule,
            Evidence(
                cause,
                WEIGHTS[_LEVELS[one.severity]],
                f"the audit found {one.rule} on {where}",
                (event,),
                f"audit:{one.rule}",
            ),
        )
    return list(seen.values())


def printed_evidence(
    ends: Mapping[str, Block],
    judged: Callable[[Mapping[str, Sequence[str]]], Printed],
) -> tuple[list[Evidence], Mapping[str, Read]]:
    """Evidence from what machine's tools print, as the audit's rules judge it, with the rule's
    words; and of each file that is such output, what was judged in it."""
    by_rule = _causes_of_rules()
    lines = {
        file: [line.decode("utf-8", "replace") for line in block.lines]
        for file, block in ends.items()
        if OF_A_TOOL.search(block.whole())
    }
    faults, read = judged(lines)
    found: list[Evidence] = []
    at_line: dict[tuple[str, str, int], str] = {}  # what differs there has the same cause
    for one in faults:
        other = OTHER if one.severity != "info" or one.places[1:] else None
        if not (cause := by_rule.get(one.rule, at_line.get(one.places[0], other))):
            continue
        at_line.setdefault(one.places[0], cause)
        signature = _signature(one.rule, one.found)
        events = tuple(
            Event(
                signature, file, ends[file].number(at), lines[file][at].strip(), {},
                Prefix(host=host or None),
            )
            for host, file, at in one.places
        )  # fmt: skip
        words = {"title": one.title, "means": one.found, "person": one.person, "owner": one.owner}
        id_ = f"audit:{one.rule}"  # of more GPUs no more certain than of one
        level = "weak" if id_ in {known.id for known in found} else _LEVELS[one.severity]
        found.append(
            Evidence(cause, WEIGHTS[level], one.found, events, id_, one.sources, (), one.who, words)
        )
    return found, read


def audited_hosts(
    run: Path, findings: Sequence[Any], hosts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """{host, findings: [rule]} of those hosts of the log that the run has."""
    known = {_bare(unquote(path.stem)) for path in (run / "nodes").glob("*.json")}
    by_host: dict[str, set[str]] = {}
    for one in findings:
        for host in one.about() if one.verdict == "fail" else ():
            by_host.setdefault(_bare(host), set()).add(one.rule)
    for host in hosts:
        if _bare(host) in known | by_host.keys():
            yield {"host": host, "findings": sorted(by_host.get(_bare(host), ()))}


def not_audited(facts: Mapping[str, Any]) -> list[str]:
    """A line for people about hosts of the log that the run of --run does not have, whose findings
    cannot be evidence; [] without such, or without --run."""
    if "audited" not in facts:
        return []
    known = [one["host"] for one in facts["audited"]]
    if not known:
        return ["audit: the log names no host of the run, so that none of its findings counts"]
    others = listed([visible(host, 60) for host in facts["hosts"] if host not in known], 12)
    return [f"audit: not in the run: {others}"] if others else []


def _bare(host: str) -> str:
    """gpu001 from gpu001.cluster.example, because logs and inventories use both forms."""
    return host.split(".")[0].lower()


def _signature(rule: str, text: str) -> Signature:
    return Signature(rule, "fact", (b"audit",), "audit", text, "unhang audit", "any")
