"""The reason that marks nodes which unhang drained: `unhang RUN: why`."""

from __future__ import annotations

import hashlib
import re

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, List, Optional

MARK = "unhang"
# Instead of a run's id to take over: any run of unhang. Only for who holds the node's lock, for
# then no other run is at work on the node.
ANY_RUN = "*"
MAX_CHARACTERS = 200
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SEAL = re.compile(r" \(([0-9a-f]{6})\)$")
_OURS = re.compile(r"unhang ([A-Za-z0-9][A-Za-z0-9._-]{0,79}): ")


class DrainAnswer(NamedTuple):
    """The answer of every adapter. drained: the node takes no new jobs now. by, reason: who drained
    it and why, as the scheduler reports them; "" if nobody did. jobs: jobs that still run, [{id,
    user, state, ends}]; None if they could not be read. owned: the reason is this run's. at: the
    time by the clock that `ends` are times of, as they are; "" if that is not known."""

    drained: bool
    by: str
    reason: str
    jobs: Optional[List[Dict[str, Any]]]
    owned: bool
    at: str = ""


class DrainRefused(Exception):
    """The node cannot be brought to the requested state; the text gives the reason, `answer` the
    state of the node."""

    def __init__(self, why: str, answer: DrainAnswer):
        super().__init__(why)
        self.answer = answer


def reason_for(run: str, why: str) -> str:
    """The drain reason of a run, one printable line. Raises ValueError for a run's id that run_of
    could not read from it."""
    if not _RUN.fullmatch(run):
        raise ValueError(
            f"a run's id consists of letters, digits, '.', '_' and '-', and {run[:100]!r} does not"
        )
    text = "".join(letter if letter.isprintable() else " " for letter in why)
    # The text must not contain anything that a scheduler prints after the reason, or could read as
    # another field.
    text = " ".join(re.sub(r"[\[\]=\"'\\]", " ", text).split())
    return f"{MARK} {run}: {text or 'maintenance'}"[:MAX_CHARACTERS].rstrip()


def sealed(reason: str) -> str:
    """The reason with a mark of its own text at the end: whoever adds to it or takes from it has
    made another reason."""
    text = reason[: MAX_CHARACTERS - len(" (000000)")].rstrip()
    return f"{text} ({_mark(text)})"


def is_sealed(reason: str) -> bool:
    """Whether the text is, from its first to its last character, one that sealed() returned."""
    found = _SEAL.search(reason)
    return bool(found and found[1] == _mark(reason[: found.start()]))


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def run_of(reason: str) -> Optional[str]:
    """The run in a reason; None if unhang did not write the reason."""
    found = _OURS.match(reason + " ")
    return found[1] if found else None


def is_ours(reason: str, runs: Collection[str]) -> bool:
    """True when the reason is that of one of the runs."""
    found = run_of(reason)
    return found is not None and (found in runs or ANY_RUN in runs)


def message_of(problem: Exception) -> str:
    """One line for an exception, with its file or program."""
    text = getattr(problem, "strerror", None) or str(problem)
    name = getattr(problem, "filename", None)
    return f"{name}: {text}" if name else text
