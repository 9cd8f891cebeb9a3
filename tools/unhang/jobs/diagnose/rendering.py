"""A diagnosis for people, as a table for the terminal. Document in, text out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import convert

from unhang.core.quotes import quote
from unhang.core.text import ascii_only, counted, flat, listed, visible, wrapped
from unhang.core.verdict.screen import path_shown
from unhang.core.verdict.waited_rows import Ranks, in_ranks, waited_in, waited_words
from unhang.jobs.diagnose.audited import not_audited
from unhang.jobs.diagnose.rank_names import collective_in_words, limit_in_words, named_ranks

SHOWN_LINES = 4
SHOWN_CAUSES = 5
SHOWN_LAST = 8
FIRST_ERROR = "first error: "
NONE = "unhang knows no message here as an error, a timeout or a fact"
NOT_DECIDED = "not decided"
ANSWERS = {
    "healthy": "HEALTHY",
    "failure": "A FAILURE WITHOUT A KNOWN CAUSE",
    "no_end": NOT_DECIDED,
    "nothing": "NOTHING TO READ",
}


def render_table(diagnosis: Mapping[str, Any], width: int = 100, *, plain: bool = False) -> str:
    """All of it for a terminal: what was read, what happened, causes, remarks, what to collect."""
    diagnosis = with_short_names(diagnosis)
    if page := no_log(diagnosis):
        return render_page(page, width, plain=plain)
    lines = [
        *_indented(list(_inputs(diagnosis)), width, 0),
        "",
        "WHAT HAPPENED",
        *_indented(what_happened(diagnosis), width),
        "",
    ]
    if not shown_causes(diagnosis):
        lines += [*_indented([verdict_of(diagnosis)], width, 0), ""]
    shown: list[list[Mapping[str, Any]]] = []
    for place, cause in enumerate(shown_causes(diagnosis), 1):
        lines += [
            *_cause(
                place,
                cause,
                width,
                recipes=place == 1 and diagnosis["decided"],
                repeats=cause["evidence"] in shown,
            ),
            "",
        ]
        shown.append(cause["evidence"])
    lines += _remarks(shown_remarks(diagnosis), width) + _collect(diagnosis["collect_next"], width)
    text = "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    return ascii_only(text) if plain else text


def render_page(page: Sequence[str], width: int = 100, *, plain: bool = False) -> str:
    """The answer to a text without a log."""
    text = "\n".join(_indented(page, width, 0)) + "\n"
    return ascii_only(text) if plain else text


def no_log(diagnosis: Mapping[str, Any]) -> list[str]:
    """The answer to a text without a log: which text, and what to bring instead; [] for any
    other."""
    if diagnosis["outcome"]["word"] != "nothing" or not diagnosis["collect_next"]:
        return []
    names = [visible(one["file"], 80) for one in diagnosis["inputs"]]
    more = f" and {counted(len(names) - 1, 'more input')}" if len(names) > 1 else ""
    named, page = diagnosis["named"], diagnosis["collect_next"]
    return [f"{verdict_of(diagnosis)} ({names[0]}{more})", *named, *page[: -len(named) or None]]


def shown_causes(diagnosis: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The causes that a line names. The JSON has the others too."""
    return [one for one in diagnosis["causes"] if one["severity"] != "info"][:SHOWN_CAUSES]


def shown_remarks(diagnosis: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The remarks; harmless lines only where neither a cause nor a question is above them."""
    busy = diagnosis["collect_next"] or shown_causes(diagnosis)
    return [one for one in diagnosis["remarks"] if not (busy and one["kind"] == "harmless")]


def verdict_of(diagnosis: Mapping[str, Any]) -> str:
    """The outcome in one sentence, where no cause is shown."""
    outcome = diagnosis["outcome"]
    return f"{ANSWERS.get(outcome['word'], NOT_DECIDED)}: {outcome['why']}"


def short_names(diagnosis: Mapping[str, Any]) -> dict[str, str]:
    """{file: its name without its folders if that is unique, else without those that all files
    share}."""
    names = [str(one["file"]) for one in diagnosis["inputs"]]
    last = [PurePath(name).name or name for name in names]
    folder = (
        os.path.commonpath(names)
        if len(names) > 1 and all(map(os.path.isabs, names)) == any(map(os.path.isabs, names))
        else ""
    )
    return {
        name: bare if last.count(bare) == 1 else os.path.relpath(name, folder) if folder else name
        for name, bare in zip(names, last, strict=True)
    }


def with_short_names(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The document for people, with short names of files everywhere but in the list of inputs."""
    short = short_names(diagnosis)

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: short.get(one, one) if key == "file" and isinstance(one, str) else renamed(one)
                for key, one in value.items()
            }
        return [renamed(one) for one in value] if isinstance(value, (list, tuple)) else value

    answer: dict[str, Any] = {
        key: value if key == "inputs" else renamed(value) for key, value in diagnosis.items()
    }
    return answer


def _inputs(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    shown = sorted(diagnosis["inputs"], key=lambda one: one["kind"] != "unread")
    for one in shown[:12]:
        notes = (
            f" ({'; '.join(visible(note, 200) for note in one['notes'][:3])})"
            if one["notes"]
            else ""
        )
        yield (
            f"read {visible(one['file'], 200)}: {one['kind']},"
            f" {counted(one['lines'], 'line')}{notes}"
        )
    if len(shown) > 12:
        yield (
            f"and {counted(len(shown) - 12, 'more input')},"
            f" {counted(sum(one['lines'] for one in shown[12:]), 'line')}"
        )


def what_happened(diagnosis: Mapping[str, Any]) -> list[str]:
    """The facts; if the log has no end, with the last line of each file, which shows when and where
    it stopped."""
    lines = facts_in_words(diagnosis["facts"])
    if diagnosis["outcome"]["word"] == "healthy":  # what a job survives is no error
        lines = [
            f"survived: {line.removeprefix(FIRST_ERROR)}" if line.startswith(FIRST_ERROR) else line
            for line in lines
        ]
    last = diagnosis["facts"].get("last", []) if diagnosis["outcome"]["word"] == "no_end" else []
    shown = diagnosis["outcome"]["line"]
    last = [
        one
        for one in last
        if not shown or (one["file"], one["line"]) != (shown["file"], shown["line"])
    ]
    lines += [
        f"last line: {_shown(one, 160)} [{path_shown(one['file'])}:{one['line']}]"
        for one in last[:SHOWN_LAST]
    ]
    if len(last) > SHOWN_LAST:
        lines.append(f"and the last lines of {counted(len(last) - SHOWN_LAST, 'more file')}")
    return lines


def facts_in_words(facts: Mapping[str, Any], none: str = NONE) -> list[str]:
    """One line for each known fact, with its file and line."""
    lines = [*_what_happened(facts), *_job(facts), *_measured(facts)]
    return lines or [none]


def _what_happened(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if first := facts["first_error"]:
        lines.append(
            f"{FIRST_ERROR}{_shown(first, 240)} [{path_shown(first['file'])}:{first['line']}]"
        )
    for one in facts["collectives"][:8]:
        what = collective_in_words(one["op"], one["seq"], one["numel"]) + limit_in_words(
            one["timeout_ms"]
        )
        ranks = f" on {named_ranks(one['ranks'])}" if one["ranks"] else ""
        lines.append(
            f"timed out: {what}{ranks}"
            f" [{path_shown(one['lines'][0]['file'])}:{one['lines'][0]['line']}]"
        )
    lines += [
        f"{said_alone_in_words(one)} [{path_shown(one['file'])}:{one['line']}]"
        for one in facts["said_alone"]
    ]
    return lines + _ranks(
        facts["ranks"], "timed out" if facts["collectives"] else "began to connect"
    )


def said_alone_in_words(one: Mapping[str, Any]) -> str:
    """rank 5 alone printed: 159 files of 8 GB; others: 160."""
    own = one["said"].split()
    unlike = listed([word.strip(",:;") for word in one["others"].split() if word not in own], 8)
    return f"{named_ranks(one['ranks'])} alone printed: {one['said']}; others: {unlike}"


def _ranks(ranks: Mapping[str, Any], arrived: str) -> list[str]:
    """The number of ranks, and which of them did what. arrived: what the ranks did that arrived."""
    if not ranks["world_size"]:
        return []
    size = f"at least {ranks['world_size']}" if ranks["at_least"] else str(ranks["world_size"])
    others = [rank for rank in ranks["not_arrived"] if rank not in set(ranks["silent"])]
    groups = (
        (arrived, ranks["arrived"]),
        ("with other lines", others),
        ("not heard of", ranks["silent"]),
    )
    shown = [
        f"{word}: {named_ranks(group)}" for word, group in groups if group and ranks["arrived"]
    ]
    return ["; ".join([f"ranks: {size}", *shown])]


def _job(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if facts["hosts"]:
        lines.append(
            "hosts:"
            f" {', '.join(visible(host, 60) for host in facts['hosts'][:12])}{' …' if len(facts['hosts']) > 12 else ''}"  # noqa: E501
        )
    lines += not_audited(facts)
    network = facts["network"]
    named = {
        **facts["versions"], "GPU": facts["gpus"], "transport": facts["transports"],
        "network": network["chosen"], "adapters": network["devices"],
        "bootstrap over": network["bootstrap"],
    }  # fmt: skip
    lines += [f"{name}: {_values(values)}" for name, values in named.items() if values]
    if network["gpudirect_rdma"]:
        lines.append(f"GPUDirect RDMA: {network['gpudirect_rdma']}")
    if facts["settings"]:
        lines.append(
            "settings: "
            + ", ".join(
                f"{visible(one['name'], 60)}={visible(one['value'], 60)}"
                for one in facts["settings"][:10]
            )
        )
    return lines


def _measured(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if facts["bandwidth"]:
        lines.append(
            f"best bus bandwidth: {facts['bandwidth']['best_busbw_gb_s']:g} GB/s at"
            f" {counted(facts['bandwidth']['at_bytes'], 'byte')} [line"
            f" {facts['bandwidth']['line']}]"
        )
    if recorded := facts["flight_recorder"]:
        who = in_ranks(convert(recorded["ranks"], Ranks))
        lines.append(f"flight recorder of {who}: {waited_words(waited_in(recorded['waited_for']))}")
    return lines


def _values(values: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{visible(one['value'], 80)} [{one['line']}]" for one in values[:5]]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _indented(lines: Sequence[str], width: int, by: int = 2) -> list[str]:
    return [part for one in lines for part in wrapped(one, max(40, width), by + 4, " " * by)]


def _cause(
    place: int, cause: Mapping[str, Any], width: int, *, recipes: bool, repeats: bool
) -> list[str]:
    """A cause. recipes: with what the remedy's settings are called; repeats: the lines for it were
    shown with a cause before."""
    title = f"{place}. {cause['severity'].upper()}  {cause['title']}"
    lines = _indented([f"{title} ({cause['certainty']}, owner: {cause['owner']})"], width, 0)
    label = "" if cause["means"].startswith("because ") else "because: "
    lines += _indented([f"{label}{cause['means']}"] if place == 1 else [], width, 3)
    lines += _indented(
        (
            [f"named: {', '.join(visible(one, 80) for one in cause['where'])}"]
            if cause["where"]
            else []
        ),
        width,
        3,
    )
    lines += _indented(["for: the same lines"] if repeats else [], width, 3)
    for word, evidence in (
        ("for", [] if repeats else cause["evidence"]),
        ("against", cause["against"]),
    ):
        for one, reason in with_new_reasons(evidence[:SHOWN_LINES]):
            lines += _evidence(word, one, reason, width)
        if len(evidence) > SHOWN_LINES:
            lines += _indented(
                [f"and {counted(len(evidence) - SHOWN_LINES, 'more line')} {word} it"], width, 3
            )
    sure = cause["certainty"] == "sure"
    lines += _indented([] if sure else [f"check: {one}" for one in cause["collect"][:1]], width, 3)
    lines += _indented(
        [f"{'do' if sure else 'if so'}: {remedy_in_words(cause['remedy'])}"], width, 3
    )
    if recipes:
        lines += _indented(
            [f"{name}: {how}" for name, how in cause["remedy"].get("how", {}).items()], width, 7
        )
    if place == 1 and cause["workaround"]:
        lines += _indented(
            [f"until then: {cause['workaround']['what']} (costs: {cause['workaround']['cost']})"],
            width,
            3,
        )
    lines += _indented(
        [f"source: {one['url']} ({one['says']})" for one in cause["sources"][:2]], width, 3
    )
    return lines


def with_new_reasons(
    evidence: Sequence[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], str | None]]:
    """(line, its reason) of evidence; no reason where it is that of the line before, because
    several lines of one signature or rule have the same."""
    before = [None, *(one["says"] for one in evidence)]
    return [
        (one, None if one["says"] == last else one["says"])
        for one, last in zip(evidence, before, strict=False)
    ]


def _evidence(word: str, one: Mapping[str, Any], reason: str | None, width: int) -> list[str]:
    """A line of a log with its meaning. Evidence without a line (a flight recorder) has line 0, and
    is one sentence."""
    if not one["line"] and one["text"] == one["says"]:
        return _indented([f"{word}: {visible(one['says'], 400)}"], width, 3)
    line = (
        f"{word if reason else 'and'}: {path_shown(one['file'])}:{one['line']}: {_shown(one, 240)}"
    )
    return _indented([line], width, 3) + _indented([f"({reason})"] if reason else [], width, 7)


def matched_in(line: Mapping[str, Any]) -> str:
    """The part of a document's line that its signature matched; "" if it does not say."""
    begin, end = line.get("at") or (0, 0)
    return str(line["text"][begin:end])


def _shown(line: Mapping[str, Any], most: int) -> str:
    return quote(visible(line["text"], 4000), most, matched_in(line))


def remedy_in_words(remedy: Mapping[str, Any]) -> str:
    """What a person does at the machine; then the role that does it on a fleet, with its
    variables."""
    parts = [str(remedy["person"])] if remedy.get("person") else []
    if remedy.get("role"):
        variables = ", ".join(
            f"{name}: {value}" for name, value in flat(remedy.get("variables") or {})
        )
        parts.append(
            f"{'on a fleet: ' if parts else ''}apply role {remedy['role']}"
            + (f" with {variables}" if variables else "")
        )
    return "; ".join(parts)


def _remarks(remarks: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    if not remarks:
        return []
    lines = ["ALSO SEEN"]
    for one in remarks[:10]:
        where = one["evidence"][0]
        lines += _indented(
            [f"{one['kind']}: {path_shown(where['file'])}:{where['line']}: {_shown(where, 160)}"],
            width,
        )
        lines += _indented(
            [f"{one['says']}; {one['instead']}" if one["instead"] else one["says"]], width, 6
        )
    return [*lines, ""]


def _collect(collect: Sequence[str], width: int) -> list[str]:
    """Each command, and below it a line for each outcome."""
    lines: list[str] = []
    for command, *outcomes in (one.split("\n") for one in collect):
        lines += [
            *_indented([f"- {command}"], width),
            *_indented([f"* {one}" for one in outcomes], width, 6),
        ]
    return ["COLLECT NEXT", *lines, ""] if lines else []
