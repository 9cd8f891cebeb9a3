"""What torch's flight recorder says of a job that seems to hang: which ranks have not recorded the
collective in which the others are.

A dump is a snapshot of the moment when it was written, of a job that may have gone on since: it
never decides whether the job hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unhang.core.verdict.ends import NEXT
from unhang.core.verdict.job import Verdict
from unhang.core.verdict.suspect import Suspect
from unhang.core.verdict.waited_rows import waited_for_row, waited_headline, waited_lines
from unhang.jobs.flight import Flight
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.inspect.inspection import JobLook, Recorded


def flights_of(nodes: Sequence[NodeEvidence]) -> list[Flight]:
    """The dumps that lay on the nodes, one for each rank."""
    found = {one.rank: one for node in nodes for one in node.flights}
    return sorted(found.values(), key=lambda one: one.rank or 0)


def with_recorded(verdict: Verdict, job: JobLook) -> tuple[Verdict, Recorded | None]:
    """The verdict on a job that hangs or may hang, with what the dumps add to its ranks; where no
    rank is suspected, those who are missing in them. And the row `recorded`: whether the dumps name
    a rank of the verdict (agrees), others (differs), or it blames none (alone)."""
    if job.recording is None:
        return verdict, None
    answer = job.recording.answer
    unlike = [rank for wait in answer.different for rank in wait.waiting]
    missed = sorted({*(answer.roots or answer.ring or unlike)} & {*job.recording.ranks})
    shown = waited_for_row(answer) if missed else None
    if not shown:
        return verdict, None
    sentence = "; ".join([waited_headline(shown), *waited_lines(shown)[:1]])
    ranks = {one.rank for one in verdict.named if one.rank is not None}
    beside = "agrees" if ranks & {*missed} else "differs" if ranks else "alone"
    row = Recorded(missed, sentence, beside)
    if ranks:
        return verdict, row
    why = f"by torch's flight recorder {sentence}"
    named = [
        Suspect(None, rank, None, "collective", why, NEXT["missed"], blind=True)
        for rank in missed[:8]
    ]
    headline = f"{verdict.headline}; {why}"
    return replace(verdict, named=[*verdict.named, *named], headline=headline), row
