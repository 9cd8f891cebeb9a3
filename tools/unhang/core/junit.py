"""JUnit's XML, as CI servers read it: one suite of test cases, each with one outcome, so that the
suite's counts are counts of cases. Values in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import visible

LONGEST = 4000  # characters of a line


@dataclass(frozen=True)
class Outcome:
    """Why a test case did not pass. failure: it failed; error: nothing could be proved; skipped: it
    was not asked for."""

    kind: Literal["failure", "error", "skipped"]
    message: str
    lines: Sequence[str] = ()
    type: str = ""


@dataclass(frozen=True)
class Case:
    """One test case. outcome: None if it passed. output: lines that a server shows beside it."""

    classname: str
    name: str
    outcome: Outcome | None = None
    output: Sequence[str] = ()
    duration_s: float | None = None


def render_suite(
    name: str, cases: Iterable[Case], properties: Mapping[str, str] | None = None
) -> str:
    """One suite. Texts may come from nodes; secrets in them are masked."""
    suite = ElementTree.Element("testsuite", name=name)
    if properties:
        listed = ElementTree.SubElement(suite, "properties")
        for key, value in properties.items():
            ElementTree.SubElement(listed, "property", name=key, value=_shown(value, LONGEST))
    kinds = {"failure": 0, "error": 0, "skipped": 0}
    tests = 0
    for case in cases:
        _add_case(suite, case)
        tests += 1
        if case.outcome:
            kinds[case.outcome.kind] += 1
    suite.attrib.update(
        tests=str(tests),
        failures=str(kinds["failure"]),
        errors=str(kinds["error"]),
        skipped=str(kinds["skipped"]),
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(suite, encoding="unicode")
        + "\n"
    )


def _add_case(suite: ElementTree.Element, case: Case) -> None:
    element = ElementTree.SubElement(
        suite, "testcase", classname=case.classname, name=visible(case.name, 2000)
    )
    if case.duration_s is not None:
        element.set("time", f"{case.duration_s:.3f}")
    if case.outcome:
        named = {"type": case.outcome.type} if case.outcome.type else {}
        outcome = ElementTree.SubElement(
            element, case.outcome.kind, named, message=_shown(case.outcome.message, 2000)
        )
        outcome.text = "\n".join(_shown(line, LONGEST) for line in case.outcome.lines) or None
    if case.output:
        ElementTree.SubElement(element, "system-out").text = "\n".join(
            _shown(line, LONGEST) for line in case.output
        )


def _shown(text: str, longest: int) -> str:
    """One line; `[[ATTACHMENT|FILE]]` in it would make GitLab and Jenkins show a file."""
    return re.sub(r"\[(?=\[)", "[ ", visible(without_secrets(text), longest))
