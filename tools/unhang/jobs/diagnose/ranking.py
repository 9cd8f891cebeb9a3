"""Ranks causes by the sum of their evidence, each with the lines for and against it, what to do,
and what to collect next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event, names_in
from unhang.jobs.diagnose.meaning.evidence import (
    ABOVE_INFO,
    ABOVE_WARNING,
    DECISIVE,
    FIRST_ERROR,
    STRONG,
    SUPPORTING,
    Evidence,
    added_up,
    shares,
    signature_evidence,
)
from unhang.jobs.diagnose.meaning.rules.combining import combined_evidence
from unhang.jobs.diagnose.meaning.rules.job_file_rules import job_evidence
from unhang.jobs.diagnose.meaning.signs import hang_signs, unfinished_traceback
from unhang.jobs.diagnose.rank_names import each_rank

MOST_CAUSES = 8
LEAST_SCORE = 0.5
LEAST_OF_HINTS = 0.05  # from this share of belief on, hints fill the list up to FEW causes
FEW = 5
FAR_BEHIND = 2.5  # a cause this far behind the first one is only mentioned
CLEAR = 2.0  # a first cause this far ahead needs no more proof
SURE, LIKELY = 0.9, 0.5  # minimum shares of belief for the words "sure" and "likely"
FAMILY = "family-"  # prefix of signatures that show only the part of a program
# shows what ran out and not who used it, so it is at most a warning by itself
CONSEQUENCES = ("cuda-out-of-memory",)
# what follows from lines of watchdogs, or from counts at one moment; no line names the cause


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
    facts: Facts,
    rows: Mapping[str, Mapping[str, Any]],
    more: Sequence[Evidence] = (),
    without: Collection[str] = (),
) -> list[Cause]:
    """The causes with evidence, most likely first.

    rows: the catalogue's causes; more: evidence from elsewhere, such as an audit; without: ids of
    rules to leave out.
    """
    evidence = [
        *signature_evidence(facts),
        *_combined(facts, without),
        *more,
        *_of_first_error(facts),
    ]
    evidence = _without_needless_hints(evidence)
    if facts.job:
        evidence += [one for one in job_evidence(facts, evidence) if one.id not in without]
    disputed = each_rank(rank for one in facts.answer.against for rank in one.roots)
    waits = {*disputed, *each_rank(facts.seen.waits)}
    if disputed or any(
        one.ranks - waits for one in evidence
    ):  # who waits is no root beside who does not
        evidence = [
            replace(one, weight=-one.weight) if set() < one.ranks <= waits else one
            for one in evidence
        ]
    trouble = is_trouble(facts, more, without)
    found = _by_points(rows, evidence)
    believed = shares(one.points for one in found)
    hangs = bool(hang_signs(facts))
    return [
        replace(
            one,
            score=share,
            severity=_severity(
                one, share, found[0].points, trouble and not (hangs and _is_of_speed(one))
            ),
        )
        for one, share in zip(found, believed, strict=True)
    ]


def _is_of_speed(cause: Cause) -> bool:
    """Whether a cause only makes a job slow, and no error says more of it: it is no answer to a
    hang."""
    signatures = [event.signature for one in cause.for_ for event in one.events]
    return cause.id in names_in("of_speed") and not any(
        one.kind in ("error", "symptom") for one in signatures
    )


def _by_points(rows: Mapping[str, Mapping[str, Any]], evidence: Sequence[Evidence]) -> list[Cause]:
    """The causes by their points, before the shares are known; each with its row's severity."""
    found = []
    for cause, row in rows.items():
        pro = sorted(
            (one for one in evidence if one.cause == cause and one.weight > 0),
            key=lambda one: -one.weight,
        )
        con = [one for one in evidence if one.cause == cause and one.weight < 0]
        points = added_up(one.weight for one in pro) + sum(one.weight for one in con)
        found.append(Cause(cause, points, 0.0, str(row["severity"]), tuple(pro), tuple(con)))
    found.sort(key=lambda one: (-one.points, one.id))
    hinted = [one for one in found if one.for_ and one.points >= LEAST_OF_HINTS]
    return [one for place, one in enumerate(hinted) if place < FEW or one.points >= LEAST_SCORE][
        :MOST_CAUSES
    ]


def _without_needless_hints(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Evidence about which part of a program failed counts only if no line says what failed."""
    if not any(one.weight >= ABOVE_INFO for one in evidence):
        return list(evidence)
    return [one for one in evidence if not one.id.startswith(FAMILY)]


def _of_first_error(facts: Facts) -> list[Evidence]:
    first = facts.first_error
    if first is None:
        return []
    return [
        Evidence(cause, FIRST_ERROR, "the first error of all", (event,), "first-error")
        for event in facts.plain
        if event.place == first.place
        for cause, word in event.signature.for_.items()
        if word in ("decisive", "strong")
    ]


def _combined(facts: Facts, without: Collection[str]) -> list[Evidence]:
    return [one for one in combined_evidence(facts) if one.id not in without]


def is_trouble(facts: Facts, more: Sequence[Evidence] = (), without: Collection[str] = ()) -> bool:
    """Whether anything failed: otherwise evidence for a cause is only a remark about a healthy
    job."""
    if hang_signs(facts) or any(map(_is_fault, facts.faults)) or unfinished_traceback(facts):
        return True
    return any(
        one.weight >= (SUPPORTING if one.words else STRONG) or one.id in names_in("trouble")
        for one in (*_combined(facts, without), *more)
    )


def _is_fault(event: Event) -> bool:
    """Whether a fault is an error, or a symptom that is more than a consequence of an earlier
    failure."""
    weights = set(event.signature.for_.values())
    return (
        event.kind == "error"
        or event.fact == "killed"
        or not weights
        or bool(weights & {"decisive", "strong", "supporting"})
    )


def _severity(cause: Cause, share: float, top: float, trouble: bool) -> str:
    """The row's severity if a line names the fault and there is little evidence for another cause;
    else at most a warning."""
    if not trouble or cause.points < ABOVE_INFO or top - cause.points > FAR_BEHIND:
        return "info"
    is_named = any(one.weight >= DECISIVE and one.id not in CONSEQUENCES for one in cause.for_)
    is_sure = is_named and cause.points >= DECISIVE and share >= SURE
    return cause.severity if is_sure else "warning"


def certainty_of(cause: Cause) -> str:
    """sure, likely or possible; docs/diagnosis-method.md has how often each was right. Sure needs
    more than what follows from who timed out where."""
    if cause.severity == "info":
        return "possible"
    named = any(one.id not in names_in("inferred") for one in cause.for_)
    if named and cause.points >= DECISIVE and cause.score >= SURE:
        return "sure"
    return "likely" if cause.points >= ABOVE_WARNING and cause.score >= LIKELY else "possible"


def is_decided(causes: Sequence[Cause]) -> bool:
    """Whether the first cause is clearly ahead of the second, and rests on more than hints."""
    points = [cause.points for cause in causes]
    return (
        bool(points)
        and points[0] >= ABOVE_WARNING
        and (len(points) == 1 or points[0] - points[1] >= CLEAR)
    )


def lines_of(evidence: Sequence[Evidence], most: int = 12) -> list[dict[str, Any]]:
    """[{file, line, text, says, weight}] of evidence, each line once. A place may have a reason of
    its own. Evidence without a line (a flight recorder) has line 0."""
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    for one in evidence:
        places = [*map(evidence_of, one.events), *one.places] or [
            {"file": one.id, "line": 0, "text": one.why}
        ]
        for place in places:
            seen.setdefault(
                (place["file"], place["line"] or len(seen)),
                {"says": one.why, **place, "weight": round(one.weight, 2)},
            )
    return list(seen.values())[:most]
