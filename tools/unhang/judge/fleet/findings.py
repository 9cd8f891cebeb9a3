"""Writes findings.json atomically: totals, and one entry for each verdict that a person must see,
most severe first."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.run.private_file import open_private
from unhang.core.run.run_input import natural
from unhang.judge.rules.groups import GroupJudged
from unhang.judge.rules.node_rules import Judged
from unhang.judge.rules.rules import SEVERITIES, Rule

VERDICTS = ("fail", "pass", "unknown", "skip", "waived")
MOST_WRITTEN = 1024
_LISTED = ("fail", "unknown", "waived")
_SEVERITY = {severity: place for place, severity in enumerate(SEVERITIES)}


@dataclass(frozen=True, eq=False)
class Entry:
    """One finding before it is written. host None: group scope, then `judged` names the
    hosts."""

    rule: Rule
    verdict: str
    host: str | None
    judged: Judged | GroupJudged
    texts: dict[str, str]
    where: dict[str, Any]
    waiver: dict[str, Any] | None = None

    @property
    def severity(self) -> str:
        """Its rule's, or that of the row of a table that it is about."""
        return self.judged.severity or self.rule.severity

    def part(self, name: str) -> Any:
        """A part of its rule's row with the texts of this finding, without those that are empty."""
        found = self.rule.row.get(name)
        for field, text in self.texts.items():
            of, *path = field.split(".")
            if of == name and path:
                found = _with_text(found, path, text)
        return found


def _with_text(part: Any, path: list[str], text: str) -> dict[str, Any]:
    name, *more = path
    inside = _with_text(part[name], more, text) if more else text
    return {key: value for key, value in {**part, name: inside}.items() if value}


def finding(entry: Entry) -> dict[str, Any]:
    """The object of findings-1 for one entry."""
    return {**_before_host(entry), "host": entry.host, "where": entry.where, **_after_where(entry)}


def _before_host(entry: Entry) -> dict[str, Any]:
    rule = entry.rule
    head = {
        "rule": rule.id,
        "title": rule.row["title"],
        "severity": entry.severity,
        "owner": rule.row.get("owner", DEFAULT_OWNER),
    }
    return {**head, "scope": rule.scope, "verdict": entry.verdict}


def _after_where(entry: Entry) -> dict[str, Any]:
    judged, row = entry.judged, entry.rule.row
    found = {
        "expected": entry.texts.get("expected", ""),
        "found": entry.texts.get("found", ""),
        "evidence": [{"path": path, "value": value} for path, value in judged.evidence],
        "missing": [
            {"path": path, "status": status, "reason": reason}
            for path, status, reason in judged.missing
        ],
        "remedy": entry.part("remedy"),
        "workaround": entry.part("workaround"),
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
    hosts: dict[str, list[Any]] = {}

    def key(one: Entry) -> tuple[Any, ...]:
        host = one.host or ""
        order = hosts.get(host)
        if order is None:
            order = hosts[host] = natural(host)
        return (
            _SEVERITY[one.severity],
            _LISTED.index(one.verdict),
            one.rule.id,
            order,
            str(one.where.get("path", "")),
        )

    return sorted(entries, key=key)


def write_findings(
    path: Path, head: dict[str, Any], entries: list[Entry], is_named: bool = False
) -> None:
    """A findings document, streamed: memory does not grow with the file. Raises OSError with the
    file's name; the old file is then unchanged.

    is_named: the user named the file, so it has the mode that his umask gives; in a run folder it
    is private from its creation, as every document there.
    """
    temporary = path.parent / f".findings-{secrets.token_hex(6)}.tmp"
    try:
        with (
            temporary.open("xb")
            if is_named
            else os.fdopen(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as target
        ):
            for piece in _pieces(head, entries):
                target.write(piece)
        temporary.replace(path)
    except OSError as problem:
        # the error of a full disk contains no file name
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _pieces(head: dict[str, Any], entries: list[Entry]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    # the text before and after host and place, which equal nodes share
    written: dict[Any, tuple[bytes, bytes]] = {}
    yield encoder.encode(head)[:-1] + b',"findings":['
    for number, entry in enumerate(entries):
        # of objects that the entries keep
        key = (entry.rule.id, entry.verdict, id(entry.judged), id(entry.texts), id(entry.waiver))
        around = written.get(key)
        if around is None:
            if len(written) >= MOST_WRITTEN:
                written.clear()
            around = written[key] = (
                encoder.encode(_before_host(entry))[:-1] + b',"host":',
                b"," + encoder.encode(_after_where(entry))[1:],
            )
        begin, end = around
        yield b"".join(
            (
                b",\n" if number else b"\n",
                begin,
                encoder.encode(entry.host),
                b',"where":',
                encoder.encode(entry.where),
                end,
            )
        )
    yield b"\n]}\n"
