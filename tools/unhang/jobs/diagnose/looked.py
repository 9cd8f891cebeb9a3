"""What `unhang inspect --out` wrote of a job while it hung, as a diagnosis of its logs uses it.

The diagnosis does not know how a look is judged, nor what the catalogue of facts has; the command
line hands over who does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # every command gets the reader, and few diagnose
    from unhang.core.verdict.answer import JobAnswer
    from unhang.core.verdict.by_stacks import Stack, Stuck
    from unhang.jobs.diagnose.meaning.evidence import Evidence
    from unhang.jobs.flight import Flight


@dataclass(frozen=True)
class Look:
    """One job's look.

    file        its first bundle
    verdict     the inspection, `unhang/inspection/1`
    logs        (name, content) of the ends of the job's logs and of the kernel's lines
    flights     dumps of flight recorders that lay on the nodes
    evidence    its suspects, for their causes
    """

    file: str
    verdict: Mapping[str, Any]
    logs: tuple[tuple[str, bytes], ...]
    flights: tuple[Flight, ...]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class LookReader:
    """How bundles of looks are read.

    is_bundle   path -> whether it is one
    read        names of bundles of one job -> the look; raises UserError, OSError
    joined      (diagnosis of the logs, look) -> the diagnosis with the verdict
    answer      verdict -> the answer of the look
    render      (verdict, plain) -> all of it
    """

    is_bundle: Callable[[Path], bool]
    read: Callable[[Sequence[str]], Look]
    joined: Callable[[Mapping[str, Any], Look], dict[str, Any]]
    answer: Callable[[Mapping[str, Any]], JobAnswer]
    render: Callable[[Mapping[str, Any], bool], str]


@dataclass(frozen=True)
class Reference:
    """What the catalogue of facts answers, which the diagnosis does not hold.

    named    text -> lines on what it names, with what is known of each
    run      name of a run -> its findings.json and its findings; raises UserError
    judged   file -> its lines, of all files -> what the rules find in facts that they show, and of
             each file with such facts the names of what they judged, and did not
    stuck    stacks: thread -> name -> its last stack -> who is waited for by them, as looks at a
             running job are judged
    """

    named: Callable[[str], list[str]]
    run: Callable[[str], tuple[Path, Sequence[Any]]]
    judged: Callable[[Mapping[str, Sequence[str]]], Printed]
    stuck: Callable[[Mapping[str, Mapping[str, Stack]]], Stuck]


@dataclass(frozen=True)
class PrintedFault:
    """What a rule of the audit finds in the output of tools. places: (host or "", file, index of a
    line) that show it; who: the parts and hosts that are meant, such as GPU 2; person: advice."""

    rule: str
    severity: str
    title: str
    found: str
    person: str
    owner: str
    places: tuple[tuple[str, str, int], ...]
    who: tuple[str, ...]
    sources: tuple[Mapping[str, str], ...]


Read = tuple[Sequence[str], Sequence[str]]
Printed = tuple[Sequence[PrintedFault], Mapping[str, Read]]
