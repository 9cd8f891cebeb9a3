"""Corrects faults with exactly one right answer: spelling of names, values that NCCL reads, lines
of nccl.conf. Text in, text out.

A change is kept only if the new text, linted again, does not have that finding or a new one, sets
everything else as before, and can still be parsed. Faults that need a person's decision are not
changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from unhang.core.catalogue.setting_values import reads
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.knowledge import Knowledge, load_knowledge
from unhang.jobs.lint.lines import versions_in
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.settings import find_settings
from unhang.jobs.lint.yaml_nodes import read_yaml

SAME_MEANING = (
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL",
    "NCCL_NCCL_ALLOC_P2P_NET_LL_BUFFERS",
)  # renamed variables whose values are the same under the new name
# a repair never enables a harmful setting
HARMFUL = ("hides-fault", "contradiction", "timeout-hours")
NUMBERS = {"TRUE": "1", "YES": "1", "ON": "1", "FALSE": "0", "NO": "0", "OFF": "0"}
# minimum length of a misspelt name: in a short name one letter may make another word
SHORTEST_NAME = 9
VALUE_LINES = 3  # maximum number of lines between `- name:` and its `value:`
_CONF_LINE = re.compile(
    r"^(?:export\s{1,8})?\s{0,8}(?P<name>[A-Za-z_]\w{2,100})\s{0,8}=\s{0,8}(?P<value>\"[^\"]{0,400}\"|'[^']{0,400}'|[^\s\"'~]{1,400})\s{0,80}$"
)
MOST_FIXES = 1000  # repairs of one file
Change = Callable[[list[str]], bool]


@dataclass(frozen=True)
class Fix:
    """A finding that was repaired. found: the old text; now: the new text."""

    line: int
    rule: str
    found: str
    now: str


def fix_text(
    text: str, kind: str, context: Context, takes: Callable[[Finding], bool] = lambda finding: True
) -> tuple[str, list[Fix]]:
    """The text with every finding repaired that has one right answer, and the repairs. takes:
    whether a finding may be repaired."""
    done: list[Fix] = []
    while len(done) < MOST_FIXES and (one := _first_fix(text, kind, context, takes)):
        text = one[0]
        done.append(one[1])
    return text, done


def _first_fix(
    text: str, kind: str, context: Context, takes: Callable[[Finding], bool]
) -> tuple[str, Fix] | None:
    """Makes one repair at a time, because a wrong name can hide further findings."""
    known = load_knowledge()
    nccl, torch = versions_in(text, known)
    here = replace(context, nccl=context.nccl or nccl, torch=context.torch or torch)
    for finding in filter(takes, lint_text(text, kind, context)):
        for now, change in _proposals(finding, kind, here, known):
            lines = text.splitlines(keepends=True)
            if change(lines) and _is_sound(text, fixed := "".join(lines), finding, kind, context):
                return fixed, Fix(finding.line, finding.rule, finding.found, now)
    return None


def _proposals(
    finding: Finding, kind: str, context: Context, known: Knowledge
) -> Iterator[tuple[str, Change]]:
    name, _, value = finding.found.partition("=")
    if finding.rule == "conf-syntax":
        yield finding.found, _as_nccl_reads_it(finding.line)
    if new := _right_name(finding, name, context, known):
        yield new, _renamed(name, new, finding.line)
    if finding.rule == "wrong-value" and (right := _right_value(name, value, known)):
        yield f"{name}={right}", _revalued(name, value, right, finding.line, kind)


def _right_name(finding: Finding, name: str, context: Context, known: Knowledge) -> str | None:
    """The variable's name in the job's release; None if that is uncertain."""
    if finding.rule in ("wrong-case", "name-not-real") and name != name.upper():
        return name.upper() if _is_known(name.upper(), known) else None
    if finding.rule == "unknown-name":
        near = [
            one
            for one in (*known.tables["nccl_variables"], *known.tables["torch_variables"])
            if _is_one_slip_apart(name, one)
        ]
        return near[0] if len(near) == 1 and len(name) >= SHORTEST_NAME else None
    if finding.rule == "renamed" and (context.torch or finding.severity == "error"):
        row = known.row("renamed_settings", name) or known.row("torch_variables", name) or {}
        return str(row["now"]) if _is_known(str(row.get("now")), known) else None
    if finding.rule in ("deprecated", "removed") and name in SAME_MEANING and context.nccl:
        new = str((known.row("nccl_variables", name) or {}).get("instead"))
        its = known.row("nccl_variables", new)
        return new if its is not None and reads(its, context.nccl, "nccl") is None else None
    return None


def _is_known(name: str, known: Knowledge) -> bool:
    return (
        known.row("nccl_variables", name) is not None
        or known.row("torch_variables", name) is not None
    )


def _is_one_slip_apart(name: str, right: str) -> bool:
    """Whether a name has one letter too many, too few or wrong, or two swapped; never a digit,
    because digits distinguish variables."""
    start = len(
        list(takewhile(lambda at: name[at : at + 1] == right[at : at + 1] != "", range(len(name))))
    )
    left, wanted = name[start:], right[start:]
    slips = (
        (left[1:], wanted),
        (left, wanted[1:]),
        (left[1:], wanted[1:]),
        (f"{left[1:2]}{left[:1]}{left[2:]}", wanted),
    )
    return (
        name != right
        and any(one == other for one, other in slips)
        and not any(one.isdigit() for one in left[:2] + wanted[:2])
    )


def _right_value(name: str, value: str, known: Knowledge) -> str | None:
    row = known.row("nccl_variables", name) or known.row("torch_variables", name) or {}
    allowed = [str(one) for one in row.get("values", ())]
    if value.upper() in allowed and value not in allowed:
        return value.upper()
    is_switch = allowed in ([], ["0", "1"]) and str(row.get("default", "")) in ("0", "1")
    return NUMBERS.get(value.upper()) if is_switch or allowed == ["0", "1"] else None


def _as_nccl_reads_it(line: int) -> Change:
    def change(lines: list[str]) -> bool:
        content, end = _parted(lines[line - 1])
        found = _CONF_LINE.match(content)
        if found is None:
            return False
        lines[line - 1] = f"{found['name']}={_bare(found['value'])}{end}"
        return True

    return change


def _bare(value: str) -> str:
    return value[1:-1] if value[:1] in ("'", '"') else value


def _renamed(old: str, new: str, line: int) -> Change:
    """The line with the new name, only if the file contains the old name once and the new name not
    at all: a script may also read the variable, or set both."""

    def change(lines: list[str]) -> bool:
        word = re.compile(rf"(?<!\w){old}(?!\w)")
        if len(word.findall("".join(lines))) != 1 or re.search(
            rf"(?<!\w){new}(?!\w)", "".join(lines)
        ):
            return False
        lines[line - 1], count = word.subn(new, lines[line - 1])
        return count == 1

    return change


def _revalued(name: str, old: str, new: str, line: int, kind: str) -> Change:
    """The line with the new value: beside the name, or in YAML as the `value:` below it. A plain
    YAML value is quoted, because 1 would not be a text."""
    value = rf"(?P<open>[\"']?){re.escape(old)}(?P<close>[\"']?)"
    beside = re.compile(
        rf"(?P<head>(?<![\w$]){name}[\"']?\]?\s{{0,4}}(?:=|:|,|\s)\s{{0,8}}(?:value:\s{{0,8}})?){value}(?![\w.-])"
    )
    below = re.compile(rf"(?P<head>^\s{{1,80}}value:\s{{1,8}}){value}(?=\s{{0,80}}(?:#.*)?$)")

    def written(found: re.Match[str]) -> str:
        quote = (
            '"' if kind == "kubernetes" and "=" not in found["head"] and not found["open"] else ""
        )
        return f"{found['head']}{found['open'] or quote}{new}{found['close'] or quote}"

    def change(lines: list[str]) -> bool:
        places = [(line - 1, beside)]
        if kind == "kubernetes":
            places += [(at, below) for at in range(line, min(line + VALUE_LINES, len(lines)))]
        for at, pattern in places:
            lines[at], count = pattern.subn(written, lines[at])
            if count:
                return count == 1
        return False

    return change


def _parted(line: str) -> tuple[str, str]:
    content = line.splitlines()[0] if line else ""
    return content, line[len(content) :]


def _is_sound(before: str, after: str, finding: Finding, kind: str, context: Context) -> bool:
    """Whether a change repaired its finding without any other effect."""
    if len(before.splitlines()) != len(after.splitlines()) or _is_read(before, kind) != _is_read(
        after, kind
    ):
        return False
    old, new = (lint_text(text, kind, context) for text in (before, after))
    key = (finding.line, finding.rule, finding.found)
    if key in {(one.line, one.rule, one.found) for one in new}:
        return False
    known = {(one.line, one.rule) for one in old}
    added = [one for one in new if (one.line, one.rule) not in known and one.severity != "info"]
    # the old name is still read, so the effect stays the same
    as_before = finding.rule == "renamed" and finding.severity == "warning"
    if any(one.line != finding.line or (one.rule in HARMFUL and not as_before) for one in added):
        return False
    elsewhere = [
        [one for one in find_settings(text, kind) if one.line != finding.line]
        for text in (before, after)
    ]
    return elsewhere[0] == elsewhere[1]


def _is_read(text: str, kind: str) -> bool:
    """Whether the parser of the file's kind accepts the text; no parser accepts a YAML template,
    neither before nor after the change."""
    try:
        if kind == "python":
            ast.parse(text)
        elif kind == "kubernetes":
            return read_yaml(text).is_valid
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
