"""A bundle of evidence as `unhang diagnose` reads it: the logs that lie in it, and the verdict as
evidence for causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.secrets_in_text import cut_without_secrets
from unhang.core.verdict.job import HUNG, UNKNOWN
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waited_rows import waited_headline, waited_in
from unhang.jobs.diagnose.diagnosing import OF_WAITS
from unhang.jobs.diagnose.logs.line_prefixes import Prefix
from unhang.jobs.diagnose.looked import Look
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.matching.signatures import Signature
from unhang.jobs.diagnose.meaning.evidence import STRONG, Evidence
from unhang.jobs.inspect.answer import certainty_of, verdict_of
from unhang.jobs.inspect.bundle import read_documents
from unhang.jobs.inspect.evidence import NodeEvidence, evidence_of
from unhang.jobs.inspect.flights import flights_of
from unhang.jobs.inspect.inspecting import inspection_of
from unhang.jobs.inspect.inspection import Inspection

LOOKED_AT = "unhang inspect"
DESYNC = "rank_desync_app"
_OF_DUMPS = {"recorders-behind", "recorders-lag"}  # who is waited for, and not what it does
_OUTCOMES = {
    HUNG: ("failure", "the job hangs, and what holds the rank is no known fault"),
    UNKNOWN: ("no_end", "the look at the job does not show whether it hangs"),
}


def look_in(names: Sequence[str]) -> Look:
    """The look in bundles of one job. Reads files. Raises UserError, OSError."""
    nodes = evidence_of(read_documents([Path(name) for name in names]))
    inspection = inspection_of(nodes)
    evidence = verdict_evidence(names[0], inspection)
    verdict = inspection.as_document()
    # dumps of a job that runs are of unlike moments
    dumps = flights_of(nodes) if inspection.state in (HUNG, UNKNOWN) else []
    return Look(names[0], verdict, tuple(logs_of(nodes)), tuple(dumps), tuple(evidence))


def logs_of(nodes: Sequence[NodeEvidence]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the ends of the job's logs and of the kernel's lines about faults; a log
    that several nodes see once."""
    seen: set[tuple[str, bytes]] = set()
    for node in nodes:
        for log in node.logs:
            text, path = _joined(log.lines), log.path[:400]
            if text and (path, text) not in seen:
                seen.add((path, text))
                yield f"{path} ({node.host}, its end)", text
        if kernel := _joined(node.kernel_lines):
            yield f"kernel log of {node.host}", kernel


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def verdict_evidence(file: str, inspection: Inspection) -> list[Evidence]:
    """The suspects of an inspection as evidence for their causes. Hints are left out, and so is a
    job that does not hang."""
    seen: dict[str, Evidence] = {}
    for one in inspection.suspects if inspection.state == HUNG else ():
        if not one.cause or one.blind or one.cause in seen:
            continue
        who = f"rank {one.rank}" if one.rank is not None else "a rank"
        text = cut_without_secrets(
            f"{who} on {one.host or 'a node that was not looked at'}: {one.why}", 400
        )
        signature = Signature(one.cause, "fact", (b"inspect",), "inspect", text, LOOKED_AT, "any")
        event = Event(signature, file, 1, text, {}, Prefix(host=one.host, rank=one.rank))
        why = "unhang inspect saw it while the job hung"
        origin = f"inspect:{one.cause}"
        seen[one.cause] = Evidence(one.cause, STRONG, why, (event,), origin)
    return list(seen.values())


def _not_against(
    causes: Sequence[Mapping[str, Any]], inspection: Inspection
) -> list[Mapping[str, Any]]:
    """The causes that the look does not rule out: of a job that ran, none of a wait; of one whose
    rank was seen elsewhere, no unlike collectives, and none that only dumps suggest."""
    seen = {one.cause for one in inspection.suspects}
    stands = any(one.rank is not None and not one.blind for one in inspection.suspects)
    if inspection.state in (HUNG, UNKNOWN):
        ruled_out = {DESYNC} - seen if stands else set()
    else:
        ruled_out = set(OF_WAITS)
    return [
        one
        for one in causes
        if one["cause"] not in ruled_out
        and not (stands and {line["file"] for line in one["evidence"]} <= _OF_DUMPS)
    ]


def with_verdict(diagnosis: Mapping[str, Any], file: str, inspection: Inspection) -> dict[str, Any]:
    """The diagnosis of the bundle's logs with the verdict of the look: as the outcome where no line
    of a log names a cause or a failure."""
    state = (
        inspection.state
        if inspection.state in (HUNG, UNKNOWN)
        else f"not hung when it was looked at, {inspection.state}"
    )
    line = {
        "file": file,
        "line": 1,
        "text": cut_without_secrets(f"{state}: {inspection.headline}", 500),
    }
    bundle = {
        "file": file,
        "kind": "log",
        "lines": 0,
        "bytes": 0,
        "notes": [f"what unhang inspect saw: {state}"],
    }
    outcome, causes = diagnosis["outcome"], _not_against(diagnosis["causes"], inspection)
    if outcome["word"] == "cause" and not any(one["severity"] != "info" for one in causes):
        outcome = {**outcome, "word": "no_end"}
    if outcome["word"] not in ("cause", "failure") or (
        inspection.state == HUNG and outcome["word"] != "cause"
    ):
        word, why = _OUTCOMES.get(inspection.state, ("no_end", "the job ran when it was looked at"))
        outcome = {"word": word, "why": why, "line": line}
    hosts = list(
        dict.fromkeys([*diagnosis["facts"]["hosts"], *(row.host for row in inspection.hosts)])
    )
    facts = {**diagnosis["facts"], "hosts": hosts}
    return {
        **diagnosis,
        "facts": facts,
        "causes": causes,
        "inputs": [bundle, *diagnosis["inputs"]],
        "outcome": outcome,
        "trouble": diagnosis["trouble"] or inspection.state == HUNG,
        "verdicts": list(_verdicts(diagnosis, inspection)),
    }


def _verdicts(diagnosis: Mapping[str, Any], inspection: Inspection) -> Iterator[dict[str, Any]]:
    """Whom each source names: the look first, then dumps or logs of a job that hung."""
    ranks = {one.rank for one in inspection.suspects if one.rank is not None}
    yield {
        "source": LOOKED_AT,
        "headline": verdict_of(inspection),
        "certainty": certainty_of(inspection) or None,
        "ranks": fold_ranks(sorted(ranks)),
        "agrees": True,
    }
    row = waited_in(diagnosis["waited_for"])
    if row and row.named and inspection.state in (HUNG, UNKNOWN):
        yield {
            "source": "flight recorder" if diagnosis["facts"]["flight_recorder"] else "log",
            "headline": waited_headline(row),
            "certainty": row.certainty,
            "ranks": (row.roots if row.roots.count else row.ring).ranks,
            "agrees": bool({one.rank for one in row.named} & ranks),
        }
