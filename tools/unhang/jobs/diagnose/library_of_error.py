"""The library whose code raised an error, and the part of its message by which its issues are found: what most failures without a known cause need."""

from __future__ import annotations

import re

from unhang.core.secrets_in_text import without_secrets
from unhang.jobs.diagnose.conclusion import Conclusion
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.statements import is_of_a_program

LONGEST_QUERY, SHORTEST_QUERY = 90, 16  # characters
_PACKAGE = re.compile(r"(?:site|dist)-packages/(?P<name>[A-Za-z]\w{1,40})")
_MESSAGE = re.compile(r"\b(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{2,40}(?:Error|Exception): (?P<raised>\S.{8,})|(?i:\berror\b|\bfailed\b|\bfatal\b)[: ].{8,}")
_OWN = re.compile(  # what one run alone has: times, places in a source, paths, addresses, long numbers
    r"(?:\d{2,4}-)?\d\d-\d\d[ T]\d\d:\d\d\S*|\d\d:\d\d:\d\d\S*|\[[\w./]{1,60}:\d+\]|"
    r"(?:/[\w.-]+){2,}(?::\d+)?|\b0x[0-9a-fA-F]+\b|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b\d{4,}\b"
)


def library_of(facts: Facts) -> str | None:
    """The package whose code raised the first exception with a frame, such as "vllm"; None where no frame names one."""
    frames = [str(event.fields.get("raised_at") or "") for event in facts.of("crash") if not event.quoted]
    return next((found["name"] for frame in frames if (found := _PACKAGE.search(frame))), None)


def words_to_search(conclusion: Conclusion) -> str | None:
    """The longest part of the message of a failure that other people's reports have too, without what only this run has; None without a message."""
    text = without_secrets(conclusion.event.text) if conclusion.word == "failure" and conclusion.event else ""
    found = _MESSAGE.search(text)
    if found is None or not (found["raised"] or is_of_a_program(text)):  # nobody else has a person's own sentence
        return None
    parts = _OWN.split((found["raised"] or found.group())[: 4 * LONGEST_QUERY])
    longest = max(parts, key=len).strip(" .,:;'\"()[]=<>`")[:LONGEST_QUERY].strip()
    return longest if len(longest) >= SHORTEST_QUERY else None


def with_library(steps: list[str], library: str | None, words: str | None) -> list[str]:
    """Steps that name a library or its issues, with its name and with what to search for there."""
    replaced = {}
    if library:
        replaced["the library that raised the error"] = f"{library}, whose code raised the error"
    if words:
        replaced["the library's issues for this message"] = f'the issues of {library or "the library"} for: "{words}"'
    for old, new in replaced.items():
        steps = [step.replace(old, new) for step in steps]
    return steps
