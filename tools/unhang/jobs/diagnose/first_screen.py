"""The first screen of a diagnosis. Document in, text out; what does not stand on it stands behind
-v."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from unhang.core.text import counted, listed, visible
from unhang.core.together import NOT_READ
from unhang.core.verdict.screen import Quote, VerdictScreen, path_shown, place_of, with_waited_for
from unhang.jobs.diagnose.rendering import (
    ANSWERS,
    facts_of_ranks,
    remedy_in_words,
    shown_causes,
    shown_remarks,
    steps_of,
    what_the_line_fits,
    with_short_names,
)

NAMED_ON_SCREEN, FILES_ON_SCREEN, QUOTED = 3, 3, 3


def screen_of(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    """The verdict, who and where, the lines that show it, and the command to paste."""
    diagnosis = with_short_names(diagnosis)
    own = (
        _of_cause(diagnosis) if diagnosis["outcome"]["word"] == "cause" else _of_outcome(diagnosis)
    )
    then = diagnosis["next"] or {"host": None, "command": "", "tells": ""}
    screen = replace(
        own, next_host=then["host"] or "", next_command=then["command"], next_tells=then["tells"],
        more=_more(diagnosis),
    )  # fmt: skip
    return with_waited_for(screen, diagnosis.get("waited_for"))


def joined_screens(
    look: VerdictScreen, own: VerdictScreen, diagnosis: Mapping[str, Any]
) -> VerdictScreen:
    """The screen of a look at the job with what its logs add. A cause that a line of a log names
    comes before where the threads stand."""
    causes = shown_causes(diagnosis)
    lines = (
        [one for one in causes[0]["evidence"] if one["file"] != _look_file(diagnosis)]
        if causes
        else []
    )
    if not lines:
        first = diagnosis["facts"]["first_error"]
        quotes = (Quote(first["text"], place_of(first["file"], first["line"])),) if first else ()
        return replace(look, quoted=(*look.quoted, *quotes), more=own.more)
    look_line = f"{look.headline} ({look.certainty})" if look.certainty else look.headline
    return replace(own, lines=(look_line, *own.lines))


def _look_file(diagnosis: Mapping[str, Any]) -> str:
    """The bundle, which stands first among the inputs."""
    return str(diagnosis["inputs"][0]["file"])


def _of_cause(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    causes = shown_causes(diagnosis)
    if not causes:  # below what a line names
        return _of_outcome(diagnosis)
    first, others = causes[0], causes[1:]
    named = listed([visible(one, 80) for one in first["where"]], NAMED_ON_SCREEN)
    lines = []
    if others and not diagnosis["decided"]:
        also = [f"{one['title']} ({one['certainty']})" for one in others[:2]]
        lines.append(f"or: {'; '.join(also)}")
    do = "do" if first["certainty"] == "sure" else "if so"
    because = "" if first["means"].startswith("because") else "because "
    return VerdictScreen(
        f"{first['title']}{f': {named}' if named else ''}",
        first["certainty"] if diagnosis["decided"] else f"{first['certainty']}, not decided",
        tuple(lines),
        tuple(
            Quote(one["text"], place_of(one["file"], one["line"]) if one["line"] else "")
            for one in _lines(first)
        ),
        (
            f"{because}{first['means']}",
            f"{do} (owner: {first['owner']}): {remedy_in_words(first['remedy'])}",
        ),
    )


def _lines(cause: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its lines, each once; those of a log before those that are one sentence of a dump."""
    seen: dict[str, Mapping[str, Any]] = {}
    for one in sorted(cause["evidence"], key=lambda one: not one["line"]):
        seen.setdefault(one["text"], one)
    return list(seen.values())[:QUOTED]


def _of_outcome(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    """Without a cause: what was read, what was not, and the lines that show it."""
    outcome, facts = diagnosis["outcome"], diagnosis["facts"]
    shown = [outcome["line"]] if outcome["line"] else []
    first = facts["first_error"]
    shown += [first] if first and outcome["word"] == "failure" else []
    last = facts.get("last", []) if outcome["word"] == "no_end" else []
    shown += [one for one in last if any(map(str.isalnum, one["text"]))]  # no border of a table
    quotes: dict[tuple[str, int], Quote] = {}
    for one in shown:
        quotes.setdefault(
            (one["file"], one["line"]), Quote(one["text"], place_of(one["file"], one["line"]))
        )
    return VerdictScreen(
        f"{ANSWERS[outcome['word']]}: {outcome['why']}",
        "",
        (*_read(diagnosis), *facts_of_ranks(facts)[:2], *what_the_line_fits(diagnosis)),
        tuple(quotes.values())[:QUOTED],
    )


def _read(diagnosis: Mapping[str, Any]) -> list[str]:
    """read: a.log (5 lines) and 2 more; not read: core (binary); not given: stacks."""
    inputs = diagnosis["inputs"]
    read = [one for one in inputs if one["kind"] not in ("unread", "binary")]
    named = [f"{_name(one['file'])} ({counted(one['lines'], 'line')})" for one in read]
    lacking = [
        f"{_name(one['file'])} ({visible(reasons[0] if reasons else one['kind'], 120)})"
        for one in inputs
        for reasons in [
            [note for note in one["notes"] if note.startswith(NOT_READ)] or one["notes"]
        ]
        if one["kind"] in ("unread", "binary") or any(note.startswith(NOT_READ) for note in reasons)
    ]
    return [
        *([f"read: {listed(named, FILES_ON_SCREEN)}"] if named else []),
        *([f"not read: {listed(lacking, FILES_ON_SCREEN)}"] if lacking else []),
        *([f"not given: {', '.join(diagnosis['not_given'])}"] if diagnosis["not_given"] else []),
    ]


def _name(file: str) -> str:
    return path_shown(PurePath(file).name or file, 60)


def _more(diagnosis: Mapping[str, Any]) -> str:
    """What -v shows."""
    causes, remarks, steps = (
        len(found)
        for found in (shown_causes(diagnosis)[1:], shown_remarks(diagnosis), steps_of(diagnosis))
    )
    counts = [
        counted(number, what)
        for number, what in ((causes, "more cause"), (remarks, "remark"), (steps, "further step"))
        if number
    ]
    return f"-v: {', '.join([*counts, 'facts, settings and what was read'])}"
