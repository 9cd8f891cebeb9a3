"""Causes ranked by their evidence: added up by words of weight, each with the lines for and against, what to do, and what to collect next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.diagnose.combining import combined_evidence
from unhang.diagnose.evidence import Evidence, signature_evidence
from unhang.diagnose.facts import Facts, evidence_of
from unhang.diagnose.priors import usual_causes
from unhang.diagnose.scanning import Event
from unhang.diagnose.signs import hang_signs
from unhang.diagnose.weights import ABOVE_INFO, ABOVE_WARNING, FIRST_ERROR, WEIGHTS, added_up, shares

MOST_CAUSES = 8
LEAST_SCORE = 0.5
FAR_BEHIND = 2.5  # a cause so far behind the first one is only mentioned
CLEAR = 2.0  # a first cause so far ahead needs no more proof
SURE, LIKELY = 0.9, 0.5  # shares of belief from which on the words are used
FAMILY = "family-"  # ids of signatures that tell the part of a program only
TROUBLE = ("p2p-silent", "p2p-wrong-numbers")  # evidence that is itself the sign of a fault


@dataclass(frozen=True)
class Cause:
    """One cause with its standing. score: share of belief, 0 to 1; points: the sum behind it."""

    id: str
    points: float
    score: float
    severity: str
    for_: tuple[Evidence, ...]
    against: tuple[Evidence, ...]


def rank_causes(facts: Facts, rows: Mapping[str, Mapping[str, Any]], more: Sequence[Evidence] = ()) -> list[Cause]:
    """The causes that something speaks for, most likely first. rows: the catalogue's causes; more: evidence from elsewhere, such as an audit."""
    evidence = [*signature_evidence(facts, WEIGHTS), *combined_evidence(facts), *more, *_of_first_error(facts)]
    evidence = _without_needless_hints(evidence)
    evidence += usual_causes(facts, evidence)
    points: list[tuple[str, float, list[Evidence], list[Evidence]]] = []
    for cause in rows:
        pro = sorted((one for one in evidence if one.cause == cause and one.weight > 0), key=lambda one: -one.weight)
        con = [one for one in evidence if one.cause == cause and one.weight < 0]
        score = added_up(one.weight for one in pro) + sum(one.weight for one in con)
        if pro and score >= LEAST_SCORE:
            points.append((cause, score, pro, con))
    points.sort(key=lambda one: (-one[1], one[0]))
    points = points[:MOST_CAUSES]
    believed = shares(score for _, score, _, _ in points)
    top = points[0][1] if points else 0.0
    trouble = is_trouble(facts, more)
    return [
        Cause(cause, score, share, _severity(score, share, top, trouble, str(rows[cause]["severity"])), tuple(pro), tuple(con))
        for (cause, score, pro, con), share in zip(points, believed, strict=True)
    ]


def _without_needless_hints(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Which part of a program failed says where to look only as long as no line says what failed."""
    if not any(one.weight >= ABOVE_INFO for one in evidence):
        return list(evidence)
    return [one for one in evidence if not one.id.startswith(FAMILY)]


def _of_first_error(facts: Facts) -> list[Evidence]:
    first = facts.first_error
    if first is None:
        return []
    return [
        Evidence(cause, FIRST_ERROR, f"the first error of all: {event.signature.says}", (event,), "first-error")
        for event in facts.events
        if (event.file, event.line) == (first.file, first.line) and not event.quoted
        for cause, word in event.signature.for_.items()
        if word in ("decisive", "strong")
    ]


def is_trouble(facts: Facts, more: Sequence[Evidence] = ()) -> bool:
    """Whether anything at all went wrong: else what speaks for a cause is a remark about a healthy job."""
    if hang_signs(facts) or any(_is_fault(event) for event in facts.events):
        return True
    return any(one.weight >= WEIGHTS["strong"] or one.id in TROUBLE for one in (*combined_evidence(facts), *more))


def _is_fault(event: Event) -> bool:
    """An error, or a symptom that says more than that something else went wrong before."""
    if event.quoted or event.signature.kind not in ("error", "symptom"):
        return False
    words = set(event.signature.for_.values())
    return event.signature.kind == "error" or not words or bool(words & {"decisive", "strong", "supporting"})


def _severity(score: float, share: float, top: float, trouble: bool, full: str) -> str:
    """As severe as its row says only where a line names the fault and little speaks for anything else; all else is a warning at most."""
    if not trouble or score < ABOVE_INFO or top - score > FAR_BEHIND:
        return "info"
    return full if score >= WEIGHTS["decisive"] and share >= SURE else "warning"


def certainty_of(cause: Cause) -> str:
    """sure, likely or possible; docs/diagnosis-method.md says how often each was right."""
    if cause.severity != "info" and cause.points >= WEIGHTS["decisive"] and cause.score >= SURE:
        return "sure"
    return "likely" if cause.severity != "info" and cause.points >= ABOVE_WARNING and cause.score >= LIKELY else "possible"


def is_decided(causes: Sequence[Cause]) -> bool:
    """Whether the first cause stands clear of the second, and on more than hints."""
    if not causes or causes[0].points < ABOVE_WARNING:
        return False
    return len(causes) == 1 or causes[0].points - causes[1].points >= CLEAR


def lines_of(evidence: Sequence[Evidence], most: int = 12) -> list[dict[str, Any]]:
    """[{file, line, text, says, weight}] of evidence, each line once; evidence that has no line (a flight recorder) says so with line 0."""
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    for one in evidence:
        places = [*map(evidence_of, one.events), *one.places] or [{"file": one.id, "line": 0, "text": one.why}]
        for place in places:
            seen.setdefault((place["file"], place["line"] or len(seen)), {**place, "says": one.why, "weight": round(one.weight, 2)})
    return list(seen.values())[:most]
