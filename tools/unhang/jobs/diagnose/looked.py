"""What `unhang inspect --out` wrote of a job while it hung, as a diagnosis of its logs uses it.

The diagnosis does not know how a look is judged; the command line hands over the reader with the
arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang.core.errors import UserError
from unhang.core.verdict.answer import JobAnswer
from unhang.core.verdict.screen import VerdictScreen

if TYPE_CHECKING:  # every command gets the reader, and few diagnose
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


def _none(_names: Sequence[str]) -> Look:
    raise UserError(
        "expected logs, found a bundle of unhang inspect, which this caller does not read"
    )


@dataclass(frozen=True)
class LookReader:
    """How bundles of looks are read.

    is_bundle   path -> whether it is one
    read        names of bundles of one job -> the look; raises UserError, OSError
    joined      (diagnosis of the logs, look) -> the diagnosis with the verdict
    answer      verdict -> the answer of the look
    render      (verdict, plain) -> all of it
    """

    is_bundle: Callable[[Path], bool] = lambda _path: False
    read: Callable[[Sequence[str]], Look] = _none
    joined: Callable[[Mapping[str, Any], Look], dict[str, Any]] = lambda diagnosis, _look: dict(
        diagnosis
    )
    answer: Callable[[Mapping[str, Any]], JobAnswer] = lambda _verdict: JobAnswer(
        "inspect", "", VerdictScreen("")
    )
    render: Callable[[Mapping[str, Any], bool], str] = lambda _verdict, _plain: ""


def look_reader(arguments: argparse.Namespace) -> LookReader:
    """What was handed over; a caller that hands over nothing has no bundles."""
    return getattr(arguments, "look_reader", LookReader())
