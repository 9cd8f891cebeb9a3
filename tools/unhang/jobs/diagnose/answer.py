"""The answer of a diagnosis: its first screen and its short form. Document in, value out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.text import counted, listed, visible
from unhang.core.together import NOT_READ
from unhang.core.verdict.answer import JobAnswer, fact_row, failure_row
from unhang.core.verdict.screen import Quote, VerdictScreen, path_shown, place_of
from unhang.core.verdict.waited_rows import waited_in
from unhang.jobs.diagnose.logs.reading import NOT_OPENED
from unhang.jobs.diagnose.rank_names import named_ranks
from unhang.jobs.diagnose.rendering import (
    facts_in_words,
    matched_in,
    remedy_in_words,
    said_alone_in_words,
    short_names,
    shown_causes,
    verdict_of,
    with_short_names,
)

MORE = "-v: facts, settings, all causes, remarks and further steps"
NAMED_ON_SCREEN, FILES_ON_SCREEN, QUOTED = 3, 3, 3


def answer_of(diagnosis: Mapping[str, Any]) -> JobAnswer:
    """The answer of a diagnosis."""
    failures = diagnosis["facts"].get("failures", [])
    lacking = [one for one in diagnosis["inputs"] if one["kind"] in NOT_OPENED]
    told = [(one["file"], one["line"]) for one in failures]
    return JobAnswer(
        "diagnose",
        diagnosis["outcome"]["word"],
        _screen(with_short_names(diagnosis)),
        waited_in(diagnosis.get("waited_for")),
        [_failure(one) for one in failures if one["primary"]],
        [_failure(one) for one in failures if not one["primary"]],
        [_cause_row(one) for one in diagnosis["causes"] if one["severity"] != "info"],
        list(_facts(diagnosis["facts"])),
        [
            {"what": one["file"], "kind": one["kind"], "lines": one["lines"]}
            for one in diagnosis["inputs"]
            if one not in lacking
        ],
        [
            *(
                {"what": one["file"], "why": "; ".join(one["notes"]) or one["kind"]}
                for one in lacking
            ),
            *({"what": one, "why": "not among the inputs"} for one in diagnosis["not_given"]),
        ],
        lines=[
            _failure(one) for one in _telling(diagnosis) if (one["file"], one["line"]) not in told
        ],
    )


def joined_answers(look: JobAnswer, diagnosis: Mapping[str, Any]) -> JobAnswer:
    """The answer of a look with what logs and dumps of the same job add. Only a cause that a line
    of a log names comes before where the threads are."""
    own, bundle = answer_of(diagnosis), str(diagnosis["inputs"][0]["file"])
    named = [
        one
        for one in own.causes
        if any(line["line"] and line["file"] != bundle for line in one["lines"])
    ]
    more = [one for one in own.causes if one not in named]
    seen = {one["cause"] for one in look.causes}
    if named and shown_causes(diagnosis)[0]["cause"] == named[0]["cause"]:
        own_line = f"{look.screen.headline} ({look.screen.certainty or look.word})"
        screen = replace(own.screen, lines=(own_line, *own.screen.lines))
    else:
        first = with_short_names(diagnosis)["facts"]["first_error"]
        quotes = (_quote(first),) if first else ()
        screen = replace(
            look.screen, quoted=(*look.screen.quoted, *quotes), more=own.screen.more,
            lines=(*_of_logs(diagnosis, look.screen.lines), *look.screen.lines),
        )  # fmt: skip
    return replace(
        own,
        screen=screen,
        waited_for=look.waited_for,
        primary=[*look.primary, *own.primary],
        consequences=[*look.consequences, *own.consequences],
        causes=[*named, *look.causes, *(one for one in more if one["cause"] not in seen)],
        facts=[*look.facts, *own.facts],
        read=[*look.read, *own.read],
        not_read=[*look.not_read, *own.not_read],
    )


def _of_logs(diagnosis: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """Whom logs and dumps name instead of the look's rank. shown: lines that may say it."""
    return [
        f"by the {one['source']} instead: {one['headline']}"
        for one in diagnosis["verdicts"][1:]
        if not one["agrees"] and not any(one["headline"] in line for line in shown)
    ]


def _screen(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    """The verdict, who and where, the lines that show it, and the command to paste."""
    own = _of_cause(diagnosis) if shown_causes(diagnosis) else _of_outcome(diagnosis)
    alone = [
        Quote(said_alone_in_words(one), place_of(one["file"], one["line"]), one["said"])
        for one in diagnosis["facts"]["said_alone"][:1]
    ]
    then = diagnosis["next"] or {"host": None, "command": "", "tells": ""}
    return replace(
        own, next_host=then["host"] or "", next_command=then["command"], next_tells=then["tells"],
        more=MORE, quoted=(*alone, *own.quoted),
    )  # fmt: skip


def _of_cause(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    first, *others = shown_causes(diagnosis)
    # "rank 0: MASTER_PORT=29501" is no rank
    ranks = {one: int(one[5:]) for one in first["where"] if re.fullmatch(r"rank \d+", one)}
    more = [visible(one, 80) for one in first["where"] if one not in ranks]
    hosts = [one for one in more if one.startswith("host ")]
    more.sort(key=lambda one: not (ranks and one in hosts[:1]))  # the first rank's
    named = listed([named_ranks([*ranks.values()])] * bool(ranks) + more, NAMED_ON_SCREEN)
    lines = []
    if others and not diagnosis["decided"]:
        also = [f"{one['title']} ({one['certainty']})" for one in others[:2]]
        lines.append(f"or: {'; '.join(also)}")
    lines += [f"against: {one['says']}" for one in first["against"][:1]]
    # another kind of evidence may say of the same rank or host what it did
    beside = [
        line
        for one in others[:1]
        if not {*one["where"]}.isdisjoint(first["where"])
        for line in _lines(one)[:1]
        if "at" not in line
    ]
    do = "do" if first["certainty"] == "sure" else "if so"
    because = "" if first["means"].startswith("because") else "because "
    return VerdictScreen(
        f"{first['title']}{f': {named}' if named else ''}",
        first["certainty"] if diagnosis["decided"] else f"{first['certainty']}, not decided",
        tuple(lines),
        tuple(map(_quote, [*_lines(first), *beside])),
        (
            f"{do} (owner: {first['owner']}): {remedy_in_words(first['remedy'])}",
            f"{because}{first['means']}",
        ),
    )


def _lines(cause: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of each kind of evidence its first line; those of a log before the sentences of a dump and
    of RAS, which the headline has too."""
    seen: dict[str, Mapping[str, Any]] = {}
    for one in sorted(
        cause["evidence"], key=lambda one: (not one["line"], one["says"][:3] == "RAS")
    ):
        seen.setdefault(one["says"], one)
    return list(seen.values())[:QUOTED]


def _of_outcome(diagnosis: Mapping[str, Any]) -> VerdictScreen:
    """Without a cause: what was read, what was not, and the lines that show it."""
    return VerdictScreen(
        verdict_of(diagnosis),
        "",
        (
            *(f"named here: {one}" for one in diagnosis["named"][:NAMED_ON_SCREEN]),
            *_read(diagnosis),
            *(one for one in facts_in_words(diagnosis["facts"]) if "; not heard of" in one),
        ),
        tuple(map(_quote, _telling(diagnosis))),
    )


def _telling(diagnosis: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The lines that show the outcome where no cause is known: that of the outcome, the first error
    of a failure, the last one of each file of a job without an end."""
    outcome, facts = diagnosis["outcome"], diagnosis["facts"]
    first = [facts["first_error"]] if outcome["word"] == "failure" else []
    last = facts.get("last", []) if outcome["word"] == "no_end" else []
    shown = [outcome["line"], *first, *last]
    return [one for one in shown if one and any(map(str.isalnum, one["text"]))]  # no table's border


def _quote(line: Mapping[str, Any]) -> Quote:
    """A line of the document, cut around what matched in it; of a stack what its rule says."""
    place = place_of(line["file"], line["line"]) if line["line"] else ""
    if "at" in line or "says" not in line:
        return Quote(line["text"].replace("\t", " "), place, matched_in(line))
    return Quote(line["says"].partition(", and ")[0], place)


def _read(diagnosis: Mapping[str, Any]) -> list[str]:
    """read: a.log (5 lines) and 2 more; not read: core (binary); not given: stacks."""
    inputs = diagnosis["inputs"]
    names = {file: path_shown(name, 60) for file, name in short_names(diagnosis).items()}
    read = [one for one in inputs if one["kind"] not in NOT_OPENED]
    named = [f"{names[one['file']]} ({counted(one['lines'], 'line')})" for one in read]
    lacking = [
        f"{names[one['file']]} ({visible(reasons[0] if reasons else one['kind'], 120)})"
        for one in inputs
        for reasons in [
            [note for note in one["notes"] if note.startswith(NOT_READ)] or one["notes"]
        ]
        if one["kind"] in NOT_OPENED or any(note.startswith(NOT_READ) for note in reasons)
    ]
    return [
        *([f"read: {listed(named, FILES_ON_SCREEN)}"] if named else []),
        *([f"not read: {listed(lacking, FILES_ON_SCREEN)}"] if lacking else []),
        *([f"not given: {', '.join(diagnosis['not_given'])}"] if diagnosis["not_given"] else []),
    ]


def _failure(one: Mapping[str, Any]) -> dict[str, Any]:
    return failure_row(one["text"], one.get("rank"), one.get("host"), one["file"], one["line"])


_CAUSE = "cause title certainty owner where"


def _cause_row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: one[name] for name in _CAUSE.split()},
        "lines": [
            {"file": line["file"], "line": line["line"], "text": line["text"]}
            for line in one["evidence"]
        ],
        "remedy": remedy_in_words(one["remedy"]),
    }


def _facts(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Facts with their lines where they have one of their own; then the others in words."""
    for name, values in (
        *facts["versions"].items(), ("GPU", facts["gpus"]), ("transport", facts["transports"]),
        ("network", facts["network"]["chosen"]), ("bootstrap", facts["network"]["bootstrap"]),
    ):  # fmt: skip
        for one in values:
            yield fact_row(name, one["value"], one["file"], one["line"])
    for one in facts["settings"]:
        yield fact_row(one["name"], one["value"], one["file"], one["line"])
    none: dict[str, Any] = {**{name: [] for name in facts["network"]}, "gpudirect_rdma": None}
    apart = {**facts, "versions": {}, "gpus": [], "transports": [], "settings": [],
             "network": none, "first_error": None}  # fmt: skip
    for line in facts_in_words(apart, ""):
        name, _, value = line.partition(": ")
        if value:
            yield fact_row(name, value)
