"""Ranks causes by the sum of their evidence, each with the lines for and against it, what to do, and what to collect next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.jobs.diagnose.endings import unfinished_traceback
from unhang.jobs.diagnose.evidence import Evidence, signature_evidence
from unhang.jobs.diagnose.job_evidence import job_evidence
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.priors import usual_causes
from unhang.jobs.diagnose.rules.combining import combined_evidence
from unhang.jobs.diagnose.rules.failures import failed_by_itself
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import ABOVE_INFO, ABOVE_WARNING, FIRST_ERROR, WEIGHTS, added_up, shares
from unhang.jobs.diagnose.word_model import FAILED, HEALTHY, Wording, resembling

MOST_CAUSES = 8
LEAST_SCORE = 0.5
LEAST_OF_HINTS = 0.05  # from this share of belief on, hints and the word model fill the list up to FEW causes
FEW = 5
FAR_BEHIND = 2.5  # a cause this far behind the first one is only mentioned
CLEAR = 2.0  # a first cause this far ahead needs no more proof
SURE, LIKELY = 0.9, 0.5  # minimum shares of belief for the words "sure" and "likely"
FAMILY = "family-"  # prefix of signatures that show only the part of a program
RESEMBLES = "resembles"  # id of evidence from the word model: solved logs with this cause have similar words
BESIDE_CLEAR = 0.3  # factor for this evidence if a cause is clear without it: too small to put another cause first
# The word model supports this cause only together with a line or a rule: any program that raised an exception has similar words.
FAILED_BY_ITSELF = "rank_failed"
FEWEST_LINES = 2  # a log of a single line is decided by its signature or not at all
BY_WORDS = 3.5  # points per unit of nearness; in cross-validation most other values are about as good
MOST_BY_WORDS = 2.0  # maximum of the word model's points
CONSEQUENCES = ("cuda-out-of-memory",)  # shows what ran out and not who used it, so it is at most a warning by itself
# If ranks differ, a watchdog's line is not evidence about its limit, because it is the same for any missing rank.
RANKS_DIFFER = {
    "timeouts-differ-in-operation", "timeouts-differ-in-sequence", "timeouts-differ-in-size", "one-rank-reports", "one-rank-silent",
    "rank-outside-collectives", "all-receive", "waits-alone-in-gloo",
    "rank-not-in-gloo", "late-rank-goes-on", "one-rank-says-otherwise", "process-stood-still", "worlds-differ", "no-answer-to-signal",
    "ranks-in-different-calls", "batches-apart", "ras-behind",
}  # fmt: skip
# Words that all timeouts share make these likely too; a rank that was gone before, or apart from the others, explains the timeouts.
EXPLAINED_AWAY = {
    **dict.fromkeys(RANKS_DIFFER, ("watchdog_timeout_too_short",)),
    **dict.fromkeys(("failed-first", "killed-first"), ("watchdog_timeout_too_short", "slow_rank_or_io")),
}
TROUBLE = ("p2p-silent", "p2p-wrong-numbers")  # evidence that by itself shows a fault


@dataclass(frozen=True)
class Cause:
    """One cause with its rank. score: share of belief, 0 to 1; points: the sum of its evidence."""

    id: str
    points: float
    score: float
    severity: str
    for_: tuple[Evidence, ...]
    against: tuple[Evidence, ...]


def rank_causes(
    facts: Facts, rows: Mapping[str, Mapping[str, Any]], more: Sequence[Evidence] = (), wording: Wording | None = None, without: Collection[str] = ()
) -> list[Cause]:
    """The causes with evidence, most likely first.

    rows: the catalogue's causes; more: evidence from elsewhere, such as an audit; wording: the words of solved logs; without: ids of rules to leave out.
    """
    evidence = [*signature_evidence(facts, WEIGHTS), *_combined(facts, without), *more, *_of_first_error(facts)]
    evidence = _without_needless_hints(evidence)
    if facts.job:
        evidence += job_evidence(facts, evidence)
    evidence += usual_causes(facts, evidence)
    trouble = is_trouble(facts, more, without)
    by_wording = [] if wording is None else _of_wording(facts, wording, trouble=trouble)
    by_wording = _not_explained_away(by_wording, evidence)
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
    """One cause before the shares are known. aloud: its points without the word model."""

    cause: str
    score: float
    aloud: float
    for_: tuple[Evidence, ...]
    against: tuple[Evidence, ...]


def _points(rows: Iterable[str], evidence: Sequence[Evidence], by_wording: Sequence[Evidence] = ()) -> list[_Points]:
    """The causes by their points. The word model adds to the evidence, and fills the list up to a few causes."""
    found = []
    for cause in rows:
        pro = sorted((one for one in evidence if one.cause == cause and one.weight > 0), key=lambda one: -one.weight)
        con = [one for one in evidence if one.cause == cause and one.weight < 0]
        alike = [one for one in by_wording if one.cause == cause]
        aloud = added_up(one.weight for one in pro) + sum(one.weight for one in con)
        found.append(_Points(cause, aloud + sum(one.weight for one in alike), aloud, (*pro, *alike), tuple(con)))
    found.sort(key=lambda one: (-one.score, one.cause))
    hinted = [one for one in found if one.for_ and one.score >= LEAST_OF_HINTS]
    return [one for place, one in enumerate(hinted) if place < FEW or one.aloud >= LEAST_SCORE][:MOST_CAUSES]


def _without_needless_hints(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Evidence about which part of a program failed counts only if no line says what failed."""
    if not any(one.weight >= ABOVE_INFO for one in evidence):
        return list(evidence)
    return [one for one in evidence if not one.id.startswith(FAMILY)]


def _of_wording(facts: Facts, wording: Wording, *, trouble: bool) -> list[Evidence]:
    """Evidence from the word model; none if the job ended normally, or its words are those of healthy logs."""
    if not trouble and (not facts.events or facts.of("healthy_end") or facts.of("average_bandwidth")):
        return []
    if failed_by_itself(facts) or sum(map(len, facts.last.values())) < FEWEST_LINES:
        return []  # torchrun's own lines are the same for every failure
    near = resembling(facts.words, wording)
    if near and near[0].cause == HEALTHY and not trouble:
        return []
    return [
        Evidence(cause, min(BY_WORDS * one.nearer, MOST_BY_WORDS), f"solved logs with this cause have words like these: {', '.join(one.words)}", (), RESEMBLES)
        for one in near
        if (cause := FAILED_BY_ITSELF if one.cause == FAILED else one.cause) != HEALTHY
    ]


def _not_explained_away(by_wording: Sequence[Evidence], evidence: Sequence[Evidence]) -> list[Evidence]:
    """The words' causes without those that a cause with evidence explains away, and without a failed rank that no line shows."""
    gone = {cause for one in evidence for cause in EXPLAINED_AWAY.get(one.id, ())}
    if not any(one.cause == FAILED_BY_ITSELF and one.weight > 0 for one in evidence):
        gone.add(FAILED_BY_ITSELF)
    return [one for one in by_wording if one.cause not in gone]


def _of_first_error(facts: Facts) -> list[Evidence]:
    first = facts.first_error
    if first is None:
        return []
    return [
        Evidence(cause, FIRST_ERROR, "the first error of all", (event,), "first-error")
        for event in facts.events
        if (event.file, event.line) == (first.file, first.line) and not event.quoted
        for cause, word in event.signature.for_.items()
        if word in ("decisive", "strong")
    ]


def _combined(facts: Facts, without: Collection[str]) -> list[Evidence]:
    return [one for one in combined_evidence(facts) if one.id not in without]


def is_trouble(facts: Facts, more: Sequence[Evidence] = (), without: Collection[str] = ()) -> bool:
    """Whether anything failed: otherwise evidence for a cause is only a remark about a healthy job."""
    if hang_signs(facts) or any(_is_fault(event) for event in facts.events) or unfinished_traceback(facts):
        return True
    return any(one.weight >= WEIGHTS["strong"] or one.id in TROUBLE for one in (*_combined(facts, without), *more))


def _is_fault(event: Event) -> bool:
    """Whether the event is an error, or a symptom that is more than a consequence of an earlier failure."""
    if event.quoted or event.signature.kind not in ("error", "symptom"):
        return False
    weights = set(event.signature.for_.values())
    return event.signature.kind == "error" or event.signature.fact == "killed" or not weights or bool(weights & {"decisive", "strong", "supporting"})


def _severity(points: _Points, share: float, top: float, trouble: bool, full: str) -> str:
    """The row's severity if a line names the fault and there is little evidence for another cause; else at most a warning. The word model gives no severity."""
    if not trouble or points.aloud < ABOVE_INFO or top - points.score > FAR_BEHIND:
        return "info"
    is_named = any(one.weight >= WEIGHTS["decisive"] and one.id not in CONSEQUENCES for one in points.for_)
    return full if is_named and points.aloud >= WEIGHTS["decisive"] and share >= SURE else "warning"


def certainty_of(cause: Cause) -> str:
    """sure, likely or possible; docs/diagnosis-method.md has how often each was right."""
    if cause.severity != "info" and cause.points >= WEIGHTS["decisive"] and cause.score >= SURE:
        return "sure"
    return "likely" if cause.severity != "info" and cause.points >= ABOVE_WARNING and cause.score >= LIKELY else "possible"


def is_decided(causes: Sequence[Cause]) -> bool:
    """Whether the first cause is clearly ahead of the second, and rests on more than hints."""
    return _stands_clear([cause.points for cause in causes])


def _stands_clear(points: Sequence[float]) -> bool:
    return bool(points) and points[0] >= ABOVE_WARNING and (len(points) == 1 or points[0] - points[1] >= CLEAR)


def lines_of(evidence: Sequence[Evidence], most: int = 12) -> list[dict[str, Any]]:
    """[{file, line, text, says, weight}] of evidence, each line once. A place may have a reason of its own. Evidence without a line (a flight recorder) has
    line 0."""
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    for one in evidence:
        places = [*map(evidence_of, one.events), *one.places] or [{"file": one.id, "line": 0, "text": one.why}]
        for place in places:
            seen.setdefault((place["file"], place["line"] or len(seen)), {"says": one.why, **place, "weight": round(one.weight, 2)})
    return list(seen.values())[:most]
