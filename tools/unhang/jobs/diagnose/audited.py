"""What the audit's rules say beside a log: findings on its hosts (`--run RUN`), and of the output
of a machine's tools among the inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unhang.core.text import listed, visible
from unhang.jobs.diagnose.logs.line_prefixes import Prefix
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.looked import Printed, Read
from unhang.jobs.diagnose.matching.scanning import OF_A_TOOL, Event
from unhang.jobs.diagnose.matching.signatures import Signature
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence

_LABEL = re.compile(r"([A-Za-z][\w.-]{0,60}\d): ")
OTHER = "node_not_ready"  # the cause of findings that no other cause names
_LEVELS = {"critical": "strong", "error": "strong", "warning": "supporting", "info": "weak"}


def audit_evidence(
    path: Path,
    findings: Sequence[Any],
    hosts: Sequence[str],
    causes: Mapping[str, Mapping[str, Any]],
) -> list[Evidence]:
    """Evidence from findings on the log's hosts. Findings on other hosts are not used."""
    by_rule = {rule: cause for cause, row in causes.items() for rule in row.get("rules", ())}
    known = {_bare(host) for host in hosts}
    failed = [one for one in findings if one.verdict == "fail" and one.rule in by_rule]
    seen: dict[tuple[str, str], Evidence] = {}
    for one in failed:
        shared = [host for host in one.about() if _bare(host) in known]
        if not shared:
            continue
        cause = by_rule[one.rule]
        where = ", ".join(shared[:4])
        text = f"{where}: {one.title or one.rule}: {one.found}"[:400]
        event = Event(_signature(one.rule, text), str(path), 1, text, {}, Prefix(host=shared[0]))
        weight = WEIGHTS[_LEVELS.get(one.severity, "weak")]
        seen.setdefault(
            (cause, one.rule),
            Evidence(
                cause,
                weight,
                f"the audit found {one.rule} on {where}",
                (event,),
                f"audit:{one.rule}",
            ),
        )
    return list(seen.values())


def printed_evidence(
    ends: Mapping[str, Block],
    judged: Callable[[Sequence[str]], Printed | None],
    causes: Mapping[str, Mapping[str, Any]],
) -> tuple[list[Evidence], dict[str, Read]]:
    """Evidence from what machine's tools print, as the audit's rules judge it, with the rule's
    words; and of each file that is such output, what was judged in it."""
    by_rule = {rule: cause for cause, row in causes.items() for rule in row.get("rules", ())}
    found: list[Evidence] = []
    read: dict[str, Read] = {}
    for file, block in ends.items():
        if not OF_A_TOOL.search(block.whole()):
            continue
        lines = [line.decode("utf-8", "replace") for line in block.lines]
        for host, places in _by_host(lines).items():
            printed = judged([lines[at].removeprefix(f"{host}: ") for at in places])
            if printed is None:
                continue
            faults, read[file] = printed
            for one in faults:
                if not (cause := by_rule.get(one.rule, OTHER if one.severity != "info" else None)):
                    continue
                at = places[one.at]
                event = Event(
                    _signature(one.rule, one.found), file, block.number(at), lines[at].strip(), {},
                    Prefix(host=host or None),
                )  # fmt: skip
                words = {
                    "title": one.title, "means": one.found, "person": one.person, "owner": one.owner
                }  # fmt: skip
                id_ = f"audit:{one.rule}"  # of more GPUs no more certain than of one
                level = "weak" if id_ in {known.id for known in found} else _LEVELS[one.severity]
                who = (*one.who, *([f"host {host}"] if host else []))
                found.append(
                    Evidence(
                        cause, WEIGHTS[level], one.found, (event,), id_, one.sources, (), who, words
                    )
                )
    return found, read


def _by_host(lines: Sequence[str]) -> dict[str, list[int]]:
    """host -> indexes of its lines, where pdsh or clush put a name before most; else "" -> all."""
    hosts: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        if label := _LABEL.match(line):
            hosts.setdefault(label[1], []).append(at)
    labelled = sum(map(len, hosts.values()))
    return hosts if labelled * 3 > len(lines) * 2 else {"": [*range(len(lines))]}


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
    if not facts["hosts"]:
        return ["audit: the log names no host, so that no finding of the run counts"]
    known = [one["host"] for one in facts["audited"]]
    others = listed([visible(host, 60) for host in facts["hosts"] if host not in known], 12)
    if not known:
        return [
            f"audit: none of the log's hosts ({others}) is in the run, so that none of its findings"
            " counts"
        ]
    return [f"audit: not in the run: {others}"] if others else []


def _bare(host: str) -> str:
    """gpu001 from gpu001.cluster.example, because logs and inventories use both forms."""
    return host.split(".")[0].lower()


def _signature(rule: str, text: str) -> Signature:
    return Signature(rule, "fact", (b"audit",), "audit", text, "unhang audit", "any")
