"""findings.json: totals, and one entry per verdict that a person should see, most severe first, written whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unhang.judge.groups import GroupJudged
from unhang.judge.node_rules import Judged
from unhang.judge.rules import SEVERITIES, Rule
from unhang.judge.run_input import natural

VERDICTS = ("fail", "pass", "unknown", "skip", "waived")
_LISTED = ("fail", "unknown", "waived")


@dataclass(frozen=True, eq=False)
class Entry:
    """One finding before it is written. host None: group or fleet scope, then `judged` names the hosts."""

    rule: Rule
    verdict: str
    host: str | None
    judged: Judged | GroupJudged
    words: dict[str, str]
    where: dict[str, Any]
    waiver: dict[str, Any] | None = None


def finding(entry: Entry) -> dict[str, Any]:
    """The object of findings-1 for one entry."""
    rule, judged, row = entry.rule, entry.judged, entry.rule.row
    remedy = dict(row["remedy"])
    if "person" in remedy:
        remedy["person"] = entry.words.get("remedy.person", remedy["person"])
    workaround = row.get("workaround")
    if workaround is not None:
        workaround = {**workaround, "what": entry.words.get("workaround.what", workaround["what"])}
    found = {
        "rule": rule.id,
        "title": row["title"],
        "severity": rule.severity,
        "scope": rule.scope,
        "verdict": entry.verdict,
        "host": entry.host,
        "where": entry.where,
        "expected": entry.words.get("expected", ""),
        "found": entry.words.get("found", ""),
        "evidence": [{"path": path, "value": value} for path, value in judged.evidence],
        "missing": [{"path": path, "status": status, "reason": reason} for path, status, reason in judged.missing],
        "remedy": remedy,
        "workaround": workaround,
        "confidence": row["confidence"],
        "situations": row.get("situations", []),
        "sources": row["sources"],
    }
    if isinstance(judged, GroupJudged):
        found |= {"hosts": sorted(judged.hosts, key=natural), "group": judged.group}
        if judged.comparison is not None:
            found["comparison"] = judged.comparison
    if entry.waiver is not None:
        found["waiver"] = {key: entry.waiver.get(key) for key in ("reason", "by", "until")}
    return found


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Most severe first; fail, unknown, waived; then rule and host."""
    return sorted(
        entries,
        key=lambda one: (SEVERITIES.index(one.rule.severity), _LISTED.index(one.verdict), one.rule.id, natural(one.host or ""), str(one.where.get("path", ""))),
    )


def write_findings(path: Path, head: dict[str, Any], entries: list[Entry]) -> None:
    """A findings document, streamed: memory does not grow with the file. Raises OSError; then the old file stands."""
    temporary = path.parent / f".findings-{secrets.token_hex(6)}.tmp"
    try:
        with temporary.open("xb") as target:
            for piece in _pieces(head, entries):
                target.write(piece)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _pieces(head: dict[str, Any], entries: list[Entry]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    yield encoder.encode(head)[:-1] + b',"findings":['
    for number, entry in enumerate(entries):
        yield (b",\n" if number else b"\n") + encoder.encode(finding(entry))
    yield b"\n]}\n"
