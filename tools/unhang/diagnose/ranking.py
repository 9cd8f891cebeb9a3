"""Causes ranked by their evidence: added up by words of weight, each with the lines for and against, what to do, and what to collect next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.diagnose.combining import combined_evidence
from unhang.diagnose.endings import unfinished_traceback
from unhang.diagnose.evidence import Evidence, signature_evidence
from unhang.diagnose.facts import Facts, evidence_of
from unhang.diagnose.failures import failed_by_itself
from unhang.diagnose.priors import usual_causes
from unhang.diagnose.scanning import Event
from unhang.diagnose.signs import hang_signs
from unhang.diagnose.weights import ABOVE_INFO, ABOVE_WARNING, FIRST_ERROR, WEIGHTS, added_up, shares
from unhang.diagnose.wording import HEALTHY, Wording, resembling

MOST_CAUSES = 8
LEAST_SCORE = 0.5
LEAST_OF_WORDS = 0.05  # what words alone make likely fills the list up to FEW causes from here on
FEW = 5
FAR_BEHIND = 2.5  # a cause so far behind the first one is only mentioned
CLEAR = 2.0  # a first cause so far ahead needs no more proof
SURE, LIKELY = 0.9, 0.5  # shares of belief from which on the words are used
FAMILY = "family-"  # ids of signatures that tell the part of a program only
RESEMBLES = "resembles"  # id of what is believed because solved logs with that cause have words like these
SURE_HEALTHY = 0.5
BESIDE_CLEAR = 0.3  # the part of it that counts where a cause stands clear without it: too little to put another one first
MOST_BY_WORDS = 3.0  # what words alone add, at most; set by leaving out one batch of logs after the other
CONSEQUENCES = ("cuda-out-of-memory",)  # says what ran out and not who took it: alone no more than a warning
# Where ranks differ, a watchdog's words say nothing of its limit: they are the same whichever rank is missing.
RANKS_DIFFER = {
    "timeouts-differ-in-operation", "timeouts-differ-in-sequence", "timeouts-differ-in-size", "one-rank-reports", "one-rank-silent",
    "rank-outside-collectives", "all-receive", "waits-alone-in-gloo",
    "rank-not-in-gloo", "late-rank-goes-on", "one-rank-says-otherwise", "process-stood-still", "worlds-differ", "no-answer-to-signal",
}  # fmt: skip
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


def rank_causes(
    facts: Facts, rows: Mapping[str, Mapping[str, Any]], more: Sequence[Evidence] = (), wording: Wording | None = None, without: Collection[str] = ()
) -> list[Cause]:
    """The causes that something speaks for, most likely first.

    rows: the catalogue's causes; more: evidence from elsewhere, such as an audit; wording: the words of solved logs; without: ids of rules to leave out.
    """
    evidence = [*signature_evidence(facts, WEIGHTS), *_combined(facts, without), *more, *_of_first_error(facts)]
    evidence = _without_needless_hints(evidence)
    evidence += usual_causes(facts, evidence)
    trouble = is_trouble(facts, more, without)
    by_wording = [] if wording is None else _of_wording(facts, wording, trouble=trouble)
    if any(one.id in RANKS_DIFFER for one in evidence):
        by_wording = [one for one in by_wording if one.cause != "watchdog_timeout_too_short"]
    points = _points(rows, evidence)
    points = _points(
        rows, evidence, [replace(one, weight=one.weight * BESIDE_CLEAR) for one in by_wording] if _stands_clear([one.score for one in points]) else by_wording
    )
    believed = shares(one.score for one in points)
    top = points[0].score if points else 0.0
    return [
        Cause(one.cause, one.score, share, _severity(one, share, top, trouble, str(rows[one.cause]["severity"])), one.for_, one.against)
        for one, share in zip(points, believed, strict=True)
    ]


@dataclass(frozen=True)
class _Points:
    """One cause before shares are known. aloud: what is left of the score without what the log's words alone make likely."""

    cause: str
    score: float
    aloud: float
    for_: tuple[Evidence, ...]
    against: tuple[Evidence, ...]


def _points(rows: Iterable[str], evidence: Sequence[Evidence], by_wording: Sequence[Evidence] = ()) -> list[_Points]:
    """The causes by their points. Words add to what speaks for a cause, and fill the list up to a few causes."""
    found = []
    for cause in rows:
        pro = sorted((one for one in evidence if one.cause == cause and one.weight > 0), key=lambda one: -one.weight)
        con = [one for one in evidence if one.cause == cause and one.weight < 0]
        alike = [one for one in by_wording if one.cause == cause]
        aloud = added_up(one.weight for one in pro) + sum(one.weight for one in con)
        found.append(_Points(cause, aloud + sum(one.weight for one in alike), aloud, (*pro, *alike), tuple(con)))
    found.sort(key=lambda one: (-one.score, one.cause))
    clear = [one for one in found if one.for_ and one.score >= LEAST_SCORE]
    hinted = [one for one in found if one.for_ and LEAST_OF_WORDS <= one.score < LEAST_SCORE]
    return [*clear, *hinted[: max(0, FEW - len(clear))]][:MOST_CAUSES]


def _without_needless_hints(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Which part of a program failed says where to look only as long as no line says what failed."""
    if not any(one.weight >= ABOVE_INFO for one in evidence):
        return list(evidence)
    return [one for one in evidence if not one.id.startswith(FAMILY)]


def _of_wording(facts: Facts, wording: Wording, *, trouble: bool) -> list[Evidence]:
    """What the words of the log make likely; nothing where the job came to its end, or the words are those of healthy logs."""
    if not trouble and (not facts.events or facts.of("healthy_end") or facts.of("average_bandwidth")):
        return []
    if failed_by_itself(facts):
        return []  # what torchrun prints around it is the same for every failure
    near = resembling(facts.words, wording)
    if not near or (near[0].cause == HEALTHY and near[0].share >= SURE_HEALTHY and not trouble):
        return []
    return [
        Evidence(one.cause, MOST_BY_WORDS * one.share, f"solved logs with this cause have words like these: {', '.join(one.words)}", (), RESEMBLES)
        for one in near
        if one.cause != HEALTHY
    ]


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


def _combined(facts: Facts, without: Collection[str]) -> list[Evidence]:
    return [one for one in combined_evidence(facts) if one.id not in without]


def is_trouble(facts: Facts, more: Sequence[Evidence] = (), without: Collection[str] = ()) -> bool:
    """Whether anything at all went wrong: else what speaks for a cause is a remark about a healthy job."""
    if hang_signs(facts) or any(_is_fault(event) for event in facts.events) or unfinished_traceback(facts):
        return True
    return any(one.weight >= WEIGHTS["strong"] or one.id in TROUBLE for one in (*_combined(facts, without), *more))


def _is_fault(event: Event) -> bool:
    """An error, or a symptom that says more than that something else went wrong before."""
    if event.quoted or event.signature.kind not in ("error", "symptom"):
        return False
    weights = set(event.signature.for_.values())
    return event.signature.kind == "error" or event.signature.fact == "killed" or not weights or bool(weights & {"decisive", "strong", "supporting"})


def _severity(points: _Points, share: float, top: float, trouble: bool, full: str) -> str:
    """As severe as its row says only where a line names the fault and little speaks for anything else; all else is a warning at most."""
    if not trouble or points.score < ABOVE_INFO or top - points.score > FAR_BEHIND:
        return "info"
    is_named = any(one.weight >= WEIGHTS["decisive"] and one.id not in CONSEQUENCES for one in points.for_)
    return full if is_named and points.aloud >= WEIGHTS["decisive"] and share >= SURE else "warning"


def certainty_of(cause: Cause) -> str:
    """sure, likely or possible; docs/diagnosis-method.md says how often each was right."""
    if cause.severity != "info" and cause.points >= WEIGHTS["decisive"] and cause.score >= SURE:
        return "sure"
    return "likely" if cause.severity != "info" and cause.points >= ABOVE_WARNING and cause.score >= LIKELY else "possible"


def is_decided(causes: Sequence[Cause]) -> bool:
    """Whether the first cause stands clear of the second, and on more than hints."""
    return _stands_clear([cause.points for cause in causes])


def _stands_clear(points: Sequence[float]) -> bool:
    return bool(points) and points[0] >= ABOVE_WARNING and (len(points) == 1 or points[0] - points[1] >= CLEAR)


def lines_of(evidence: Sequence[Evidence], most: int = 12) -> list[dict[str, Any]]:
    """[{file, line, text, says, weight}] of evidence, each line once; evidence that has no line (a flight recorder) says so with line 0."""
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    for one in evidence:
        places = [*map(evidence_of, one.events), *one.places] or [{"file": one.id, "line": 0, "text": one.why}]
        for place in places:
            seen.setdefault((place["file"], place["line"] or len(seen)), {**place, "says": one.why, "weight": round(one.weight, 2)})
    return list(seen.values())[:most]
