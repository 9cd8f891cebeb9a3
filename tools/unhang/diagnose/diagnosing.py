"""The whole way from names of files to the diagnosis document (`unhang/diagnosis/1`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from unhang.diagnose.asking import what_to_run_next
from unhang.diagnose.conclusion import conclude, describe_conclusion
from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts, describe, evidence_of, gather_facts
from unhang.diagnose.flight import Flight, compare_flights, read_dump
from unhang.diagnose.naming import who_is_meant
from unhang.diagnose.priors import usual_of
from unhang.diagnose.ranking import Cause, certainty_of, is_decided, is_trouble, lines_of, rank_causes
from unhang.diagnose.reading import LARGEST_DUMP, Input, find_inputs, open_input, read_blocks
from unhang.diagnose.scanning import Scan, Sieve, scan_blocks
from unhang.diagnose.signatures import Signature, load_causes, load_signatures
from unhang.diagnose.timeouts import how_to_raise
from unhang.diagnose.wording import Wording, load_wording

SCHEMA = "unhang/diagnosis/1"


@dataclass(frozen=True)
class Withheld:
    """What a diagnosis must do without, to measure it on logs that were learnt from.

    urls: threads whose signatures are left out. learnt: ids of signatures and rules. wording: the words of the other solved logs.
    """

    urls: frozenset[str] = frozenset()
    learnt: frozenset[str] = frozenset()
    wording: Wording | None = None

    def signatures(self) -> list[Signature]:
        """Those that are left."""
        return [row for row in load_signatures() if row.id not in self.learnt and not self.urls & {source["url"] for source in row.sources}]


def diagnose(names: Iterable[str], more: Sequence[Evidence] = (), *, without: Withheld | None = None) -> dict[str, Any]:
    """The diagnosis of files, folders and "-". Reads files. Raises UserError when nothing could be read."""
    inputs, scans, flights = read_all(names, sieve=_sieve_of_all() if without is None else _sieve_without(without))
    facts = gather_facts(scans, compare_flights(flights) if flights else None)
    return document(inputs, facts, more, without=without or Withheld())


def read_all(names: Iterable[str], *, sieve: Sieve | None = None) -> tuple[list[Input], list[Scan], list[Flight]]:
    """What each input gave; an input that cannot be read is noted, not fatal, unless all are. sieve: of the signatures to look for, all when None."""
    sieve = sieve or _sieve_of_all()
    inputs: list[Input] = []
    scans: list[Scan] = []
    flights: list[Flight] = []
    for name, path in find_inputs(names):
        about = Input(name)
        inputs.append(about)
        try:
            _read_one(name, path, about, sieve, scans, flights)
        except OSError as problem:
            about.kind = "unread"
            about.notes.append(problem.strerror or str(problem))
    return inputs, scans, flights


@lru_cache(maxsize=1)
def _sieve_without(without: Withheld) -> Sieve:
    return Sieve(without.signatures())


@cache
def _sieve_of_all() -> Sieve:
    """Made once in a process: to sort the anchors of all signatures takes longer than to read a short log."""
    return Sieve(load_signatures())


def _read_one(name: str, path: Path | None, about: Input, sieve: Sieve, scans: list[Scan], flights: list[Flight]) -> None:
    stream = open_input(path)
    try:
        scan = scan_blocks(read_blocks(stream, about), name, sieve)
    finally:
        if path is not None:
            stream.close()
    if about.kind == "dump" and path is not None:
        reopened = open_input(path)
        try:
            flights.append(read_dump(reopened.read(LARGEST_DUMP + 1), name))
        except (ValueError, EOFError) as problem:
            about.kind = "unread"
            about.notes.append(f"is no flight-recorder dump that can be read: {problem}")
        finally:
            reopened.close()
        return
    if scan.full:
        about.notes.append(f"more than enough lines of: {', '.join(sorted(scan.full))}")
    scans.append(scan)


def document(inputs: Sequence[Input], facts: Facts, more: Sequence[Evidence] = (), *, without: Withheld = Withheld()) -> dict[str, Any]:
    """The diagnosis document. Values in, value out."""
    rows = load_causes()
    causes = rank_causes(facts, rows, more, without.wording or load_wording(), without.learnt)
    decided = is_decided(causes)
    found = any(cause.severity != "info" for cause in causes)
    trouble = is_trouble(facts, more)
    conclusion = conclude(facts, inputs, found=found, trouble=trouble)
    usual = () if conclusion.word in ("healthy", "nothing") else usual_of(facts)
    return {
        "schema": SCHEMA,
        "inputs": [{"file": one.name, "kind": one.kind, "lines": one.lines, "bytes": one.bytes, "notes": one.notes} for one in inputs],
        "outcome": describe_conclusion(conclusion),
        "found": found,
        "trouble": trouble,
        "decided": decided,
        "facts": describe(facts),
        "causes": [_cause(cause, rows[cause.id], facts) for cause in causes],
        "remarks": _remarks(facts),
        "collect_next": [] if decided else what_to_run_next(causes, rows, conclusion.ask, usual),
    }


def _cause(cause: Cause, row: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    remedy = dict(row["remedy"])
    if cause.id in ("watchdog_timeout_too_short", "slow_rank_or_io"):
        remedy["how"] = how_to_raise(facts.values("framework"))
    sources = {source["url"]: dict(source) for one in cause.for_ for source in one.sources[:2]}
    sources.update((source["url"], dict(source)) for source in row["sources"])
    return {
        "cause": cause.id,
        "title": row["title"],
        "score": round(cause.score, 3),
        "points": round(cause.points, 2),
        "severity": cause.severity,
        "certainty": certainty_of(cause),
        "where": who_is_meant(cause.for_, facts),
        "means": row["means"],
        "evidence": lines_of(cause.for_),
        "against": lines_of(cause.against),
        "remedy": remedy,
        "workaround": row.get("workaround"),
        "collect": list(row["collect"]),
        "confidence": row["confidence"],
        "sources": list(sources.values())[:8],
    }


def _remarks(facts: Facts) -> list[dict[str, Any]]:
    """Harmless lines and folklore, each once, with what to do in their place."""
    seen: dict[str, dict[str, Any]] = {}
    for event in facts.events:
        if event.signature.kind in ("harmless", "folklore"):
            signature = event.signature
            seen.setdefault(signature.id, {
                "id": signature.id, "kind": signature.kind, "says": signature.says, "instead": signature.instead,
                "evidence": [evidence_of(event)], "sources": [dict(one) for one in signature.sources],
            })  # fmt: skip
    return list(seen.values())


def render_json(diagnosis: Mapping[str, Any]) -> str:
    """One JSON object and nothing else."""
    return json.dumps(diagnosis, ensure_ascii=False, indent=1) + "\n"
