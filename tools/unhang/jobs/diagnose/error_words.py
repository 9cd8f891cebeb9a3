"""What the words of an error mean, whatever program it comes from, where no signature knows its message: the catalogue's table `error_words`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from unhang.core import catalogue
from unhang.jobs.diagnose.conclusion import Conclusion
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import heading_of_a_failure, own_errors

# Circumstances for which `next_steps` has rows of their own about the failed line.
SPECIAL = frozenset({"image-refused", "launch-failed", "import-failed", "program-missing", "command-missing", "file-missing", "actor-died", "killed"})


@cache
def _rows() -> tuple[tuple[tuple[str, ...], str, Mapping[str, Any]], ...]:
    return tuple((tuple(word.lower() for word in row["words"]), (row.get("beside") or "").lower(), row) for row in catalogue.table("error_words").values())


def row_of(text: str) -> Mapping[str, Any] | None:
    """The first row of the table one of whose words is in the text, with the text that must be beside it."""
    lowered = text.lower()
    return next((row for words, beside, row in _rows() if beside in lowered and any(word in lowered for word in words)), None)


def explained(facts: Facts, conclusion: Conclusion) -> tuple[Event, Mapping[str, Any]] | None:
    """(line, its row) for a conclusion without a cause: of a hang the line that it shows, if that reports an error; of a failure that line, or the first other
    one that reports an error.
    """
    shown, errors = conclusion.event, own_errors(facts)
    lines = [shown] if conclusion.word == "failure" or shown in errors else []
    lines += [facts.first_error, *errors, heading_of_a_failure(facts)] if conclusion.word == "failure" else []
    return next(((line, row) for line in lines if isinstance(line, Event) and (row := row_of(line.text))), None)
