"""Whom an answer of `unhang diagnose` or of torchfrtrace names, for score.py."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RANKS = re.compile(r"\branks?[ :]+(\d[\d, -]*)")
_MISSING = re.compile(
    r"missing ranks: \{([\d, ]+)\}|[Mm]issing dump files from ranks \{([\d, ]+)\}"
)
_CULPRIT = re.compile(r"Culprit rank (\d+)")


@dataclass(frozen=True)
class Answer:
    """named: ranks, the first one first. sure: (ranks that are named with certainty, id of the
    cause; found: whether there is a finding."""

    named: tuple[int, ...]
    sure: tuple[tuple[tuple[int, ...], str], ...] = ()
    found: bool = False


def unfolded(text: str) -> tuple[int, ...]:
    """ "0-2, 5" -> (0, 1, 2, 5)."""
    ranks: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        ranks += range(int(first), int(last or first) + 1)
    return tuple(ranks)


def ask_unhang(files: Iterable[Path], pids: dict[str, int] | None = None) -> Answer:
    ranks = {str(pid): int(rank) for rank, pid in (pids or {}).items()}
    return answer_of(json.loads(printed_of(files, "json")), ranks)


def named_at_first(files: Iterable[Path]) -> tuple[int, ...]:
    """Ranks of the first line that a person sees."""
    found = _RANKS.search(printed_of(files, "table").partition("\n")[0])
    return unfolded(found[1]) if found else ()


def printed_of(files: Iterable[Path], form: str) -> str:
    from unhang.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        main(["diagnose", "-o", form, *map(str, files)])
    return printed.getvalue()


def answer_of(document: dict[str, Any], ranks: dict[str, int] | None = None) -> Answer:
    """Whom the document names first: who is waited for; else the first cause's ranks, in its title
    or its own words; else, where no cause says a rank, who is behind or did not arrive. ranks: of
    processes, for stacks name only these."""
    sure, named, found = [], [], False
    waited = document.get("waited_for")
    if waited:
        named.append(waited_named(waited))
        found = bool(named[0])
        if waited["certainty"] == "sure" and waited["roots"]["count"]:
            sure.append((named[0], "waited_for"))
    for cause in document["causes"][:1]:
        own = [tuple(rank for part in cause["where"] for rank in ranks_of(part, ranks or {}))]
        said = [match[1] for row in cause["evidence"] for match in _RANKS.finditer(row["says"])]
        own += [unfolded(text) for text in said]
        named += own
        found = found or cause["severity"] != "info"
        if cause["certainty"] == "sure" and cause["severity"] != "info":
            sure.append((next(filter(None, own), ()), cause["cause"]))
    named += [tuple(ranks) for ranks in facts_of(document["facts"])]
    return Answer(next(filter(None, named), ()), tuple(sure), found)


def ranks_of(where: str, ranks: dict[str, int]) -> tuple[int, ...]:
    """ "rank 5", "ranks 0-2" or "process 886" as ranks."""
    word, _, rest = where.partition(" ")
    if word == "process":
        return (ranks[rest],) if rest in ranks else ()
    return unfolded(rest) if word in ("rank", "ranks") else ()


def waited_named(waited: dict[str, Any]) -> tuple[int, ...]:
    """The roots or the ring; else those whose call differs from most others'."""
    if waited["named"]:
        return tuple(row["rank"] for row in waited["named"])
    calls = [call for wait in waited["waits"] for call in wait["calls"]]
    return unfolded(min(calls, key=lambda call: call["count"])["ranks"]) if calls else ()


def facts_of(facts: dict[str, Any]) -> Iterator[list[int]]:
    for group in (facts.get("flight_recorder") or {}).get("groups", []):
        yield group["behind"]
    yield facts["ranks"]["not_arrived"]
    yield facts["ranks"]["silent"]


def ask_torch(folder: Path) -> Answer:
    """The ranks of torchfrtrace's first finding; else those whose files it says are missing."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger
        from torch.distributed.flight_recorder.fr_trace import main

        logger = FlightRecorderLogger().logger
        logger.addHandler(handler)
        try:
            for argv in ([], ["--allow-incomplete-ranks"]):
                try:
                    main(["-p", "_dump_", *argv, str(folder)])
                except Exception as problem:  # whatever a person would see of it
                    lines.append(str(problem))
        finally:
            logger.removeHandler(handler)
    return torch_answer(lines)


def torch_answer(lines: Iterable[str]) -> Answer:
    findings, missing = [], []
    for line in lines:
        found = _MISSING.search(line)
        if found and found[1]:
            findings.append(unfolded(found[1]))
        elif found:
            missing.append(unfolded(found[2]))
        elif _CULPRIT.search(line):
            findings.append(tuple(map(int, dict.fromkeys(_CULPRIT.findall(line)))))
    first = [*findings, *missing][:1]
    return Answer(first[0] if first else (), (), bool(findings))
