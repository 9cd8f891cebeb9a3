"""The blocks of the first screen: causes of the same nodes, each in the longest form for which
there is room."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.audit.report import phrases
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.command_lines import command_lines
from unhang.core.quotes import leading_words
from unhang.core.run.actions import Setting, command
from unhang.core.run.findings import DISPUTED, NOT_A_GPU_NODE
from unhang.core.table import STYLES
from unhang.core.text import counted, visible
from unhang.judge.rules.rules import SEVERITIES

LABEL = 10  # columns of `CRITICAL  `
LONGEST_NODES = 40
LONGEST_FOUND = 240
MOST_ALSO = 4  # further warnings of the same nodes that are listed
VERDICT_STYLES = {
    "critical": "bold red",
    "error": "bold red",
    "warning": "bold yellow",
    "unread": "bold magenta",
    NOT_A_GPU_NODE: "bold magenta",
    "healthy": "bold green",
}
Line = tuple[str, str, str]  # label, text, style; without a label the line starts at the left
JOINED = "\u00a0"  # a blank at which no line is broken
MORE = " "  # the label of a continued line
Block = Sequence[Mapping[str, Any]]  # causes of the same nodes, the most serious first
SettingOf = Callable[[Mapping[str, Any]], Setting]
Form = Callable[[Block, int, SettingOf], list[Line]]


def fitted(
    causes: Sequence[Mapping[str, Any]],
    room: int,
    width: int,
    setting_of: SettingOf,
) -> tuple[list[Line], list[Mapping[str, Any]]]:
    """(lines, causes that are not in them). Each critical cause and each cause for unread nodes has
    a line. As long as there is room, each error has one, then what was found and the actions of all
    of these are added, a line for each warning, the commands of errors, then the rest of warnings,
    and remarks."""
    blocks = _of_same_nodes(causes)
    must, errors, warnings, remarks = (
        [place for place, block in enumerate(blocks) if _weight(block[0]) == weight]
        for weight in range(len(SEVERITIES))
    )
    shown: dict[int, list[Line]] = {}

    def grow(places: Sequence[int], form: Form, until: float) -> None:
        """Shows these blocks in a longer form, as long as no more lines than `until` are used."""
        used = sum(map(len, shown.values()))
        for place in places:
            if used >= until:
                break
            made = form(blocks[place], width, setting_of)
            more = len(made) - len(shown.get(place, ()))
            if used + more <= until:
                used += more
                shown[place] = made

    grow(must, _one_line, math.inf)
    # a half of the rest is for the actions of criticals, even where errors would fill it
    grow(errors, _one_line, len(must) + (room - len(must)) // 2)
    for places, form in (
        (must, _with_found),
        (must, _with_action),
        (errors, _one_line),
        (errors, _with_found),
        (must, _whole),
        (errors, _with_action),
        (warnings, _one_line),
        (errors, _whole),
        (warnings, _with_found),
        (warnings, _with_action),
        (warnings, _whole),
        (remarks, _with_action),
        (remarks, _whole),
    ):
        grow(places, form, room)
    lines = [line for place in sorted(shown) for line in shown[place]]
    return lines, [one for place, block in enumerate(blocks) if place not in shown for one in block]


def _weight(cause: Mapping[str, Any]) -> int:
    """0 to 3, the most serious first; what is no severity is a remark."""
    known = cause["severity"] in SEVERITIES
    return (
        0
        if cause["unread"]
        else SEVERITIES.index(cause["severity"])
        if known
        else len(SEVERITIES) - 1
    )


def _of_same_nodes(causes: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Warnings below the first cause of the same nodes. An error, a remark and what is about the
    whole fleet stand alone."""
    blocks: list[list[Mapping[str, Any]]] = []
    first: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cause in causes:
        nodes = tuple(cause["nodes"])
        is_lesser = cause["severity"] == "warning" and not cause["unread"]
        if is_lesser and nodes in first:
            first[nodes].append(cause)
        else:
            blocks.append([cause])
            if nodes and cause["severity"] != SEVERITIES[-1]:
                first.setdefault(nodes, blocks[-1])
    return blocks


def _label(cause: Mapping[str, Any]) -> tuple[str, str]:
    return (
        ("UNREAD", VERDICT_STYLES["unread"])
        if cause["unread"]
        else (cause["severity"].upper(), STYLES.get(cause["severity"], "bold"))
    )


def _where(cause: Mapping[str, Any]) -> str:
    if not cause["nodes"]:
        return phrases.without_nodes(cause["rule"])
    return phrases.hosts(cause["nodes"], LONGEST_NODES)


def _title(cause: Mapping[str, Any]) -> str:
    return (
        f"{_where(cause)}: {visible(cause['title'], 200)}"
        f" [{visible(cause['rule'], 120)}],{JOINED}for:{JOINED}{visible(cause.get('owner', DEFAULT_OWNER), 40)}"  # noqa: E501
    )


def _one_line(block: Block, width: int, setting_of: SettingOf) -> list[Line]:
    """Nodes, title and rule in a line, and how many further causes the nodes have."""
    cause, *also = block
    label, style = _label(cause)
    title = f"{_where(cause)}: {visible(cause['title'], 200)}"
    ending = f" [{visible(cause['rule'], 120)}]"
    ending += f" and {counted(len(also), 'more cause')}" if also else ""
    room = width - LABEL - len(ending)
    if room < len(_where(cause)):
        return [(label, cut(title + ending, width - LABEL), style)]
    return [(label, cut(title, room) + ending, style)]


def _with_found(block: Block, width: int, setting_of: SettingOf) -> list[Line]:
    """Title and what was found."""
    return _titled(block[0], width)


def _with_action(block: Block, width: int, setting_of: SettingOf) -> list[Line]:
    """Title, what was found, what to do (never cut: half of an instruction is another one), and the
    warnings of the nodes."""
    return [*_titled(block[0], width), *_done(block[0], width), *_also(block[1:], width)]


def _whole(block: Block, width: int, setting_of: SettingOf) -> list[Line]:
    """As _with_action, with what a ticket names and the command."""
    cause = block[0]
    lines = [*_titled(cause, width), *_done(cause, width)]
    if not cause["remedy"]["role"] and (named := phrases.devices(cause)):
        reported = _paragraph("  ticket", named, "dim", width)
        last = cut(" ".join(text for _, text, _ in reported[1:]), width - LABEL)
        lines += reported[:1] if not last else [reported[0], (MORE, last, "dim")]
    typed = visible(command(cause, setting_of(cause)), 4_000_000)
    pasted = command_lines(typed, width - LABEL)
    lines += [("  run" if not place else MORE, line, "dim") for place, line in enumerate(pasted)]
    return [*lines, *_also(block[1:], width)]


def _titled(cause: Mapping[str, Any], width: int) -> list[Line]:
    label, style = _label(cause)
    lines = _paragraph(label, _title(cause), style, width)
    if found := cause.get("found"):
        lines += _paragraph("  found", visible(found, LONGEST_FOUND), "dim", width)
    return lines


def _done(cause: Mapping[str, Any], width: int) -> list[Line]:
    if conflicts := cause["remedy"]["conflicts"]:
        return _paragraph("conflict", phrases.conflict(conflicts[0]), "bold yellow", width)
    done = phrases.cause_action(cause).partition(DISPUTED)[0]
    return _paragraph("  do", done, "dim", width)


def _also(also: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    """Further causes by severity and rule: `warning swap-in-use, and 3 more`."""
    named = [f"{cause['severity']} {visible(cause['rule'], 120)}" for cause in also[:MOST_ALSO]]
    named += [f"and {len(also) - MOST_ALSO} more"] if len(also) > MOST_ALSO else []
    return _paragraph("  also", ", ".join(named), "dim", width) if also else []


def _paragraph(label: str, text: str, style: str, width: int) -> list[Line]:
    return [
        (label if not place else MORE, line, style)
        for place, line in enumerate(wrapped(text, width - LABEL))
    ]


def wrapped(text: str, width: int) -> list[str]:
    parts = textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
    return [line.replace(JOINED, " ") for line in parts]


def cut(text: str, width: int) -> str:
    """The words that fit, with … if there are more."""
    if len(text) <= width:
        return text
    return leading_words(text, width - 1).rstrip(" ,;:") + "…"
