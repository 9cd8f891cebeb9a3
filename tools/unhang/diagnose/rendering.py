"""A diagnosis for people: as a table for the terminal and as Markdown for a ticket. Document in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from unhang.text import ascii_only, visible

SHOWN_LINES = 4
SHOWN_CAUSES = 5
_ANSWERS = {"healthy": "HEALTHY", "failure": "A FAILURE WITHOUT A KNOWN CAUSE", "no_end": "NO END", "nothing": "NOTHING TO READ"}
_WORDS = {"critical": "CRITICAL", "error": "ERROR", "warning": "WARNING", "info": "info"}


def render_table(diagnosis: Mapping[str, Any], width: int = 100, *, plain: bool = False) -> str:
    """The terminal's view: what happened, then causes, then remarks and what to collect."""
    diagnosis = with_short_names(diagnosis)
    lines = [*_inputs(diagnosis), "", "WHAT HAPPENED", *_indented(facts_in_words(diagnosis["facts"]), width), ""]
    lines += [*_verdict(diagnosis, width), ""]
    for place, cause in enumerate(diagnosis["causes"][:SHOWN_CAUSES], 1):
        lines += [*_cause(place, cause, width), ""]
    lines += _remarks(diagnosis["remarks"], width) + _collect(diagnosis["collect_next"], width)
    text = "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    return ascii_only(text) if plain else text


def with_short_names(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The document for people: a file goes by its last name where no other has the same."""
    names = [str(one["file"]) for one in diagnosis["inputs"]]
    last = [PurePath(name).name or name for name in names]
    short = {name: bare for name, bare in zip(names, last, strict=True) if last.count(bare) == 1}

    def renamed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: short.get(one, one) if key == "file" and isinstance(one, str) else renamed(one) for key, one in value.items()}
        return [renamed(one) for one in value] if isinstance(value, (list, tuple)) else value

    answer: dict[str, Any] = {key: value if key == "inputs" else renamed(value) for key, value in diagnosis.items()}
    return answer


def _inputs(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    shown = diagnosis["inputs"]
    for one in shown[:12]:
        notes = f" ({'; '.join(visible(note, 200) for note in one['notes'][:3])})" if one["notes"] else ""
        yield f"read {visible(one['file'], 200)}: {one['kind']}, {one['lines']:,} lines{notes}"
    if len(shown) > 12:
        yield f"and {len(shown) - 12} more inputs, {sum(one['lines'] for one in shown[12:]):,} lines"


def facts_in_words(facts: Mapping[str, Any]) -> list[str]:
    """One line for each fact that is known, with where it stands."""
    lines = [*_what_happened(facts), *_job(facts), *_measured(facts)]
    return lines or ["no error, no time-out and no fact about the job was recognised"]


def _what_happened(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    first = facts["first_error"]
    if first:
        who = ", ".join(part for part in (first["time"], first["host"], f"rank {first['rank']}" if first["rank"] is not None else None) if part)
        lines.append(f"first error: {shortened(first['text'], 240)} [{visible(first['file'], 80)}:{first['line']}{'; ' + who if who else ''}]")
    for one in facts["collectives"][:8]:
        size = f", {one['numel']:,} elements" if one["numel"] else ""
        seq = f" #{one['seq']}" if one["seq"] is not None else ""
        ranks = f" on ranks {_ranges(one['ranks'])}" if one["ranks"] else ""
        lines.append(
            f"timed out: {one['op']}{seq}{size}, limit {one['timeout_ms'] / 1000:g} s{ranks} [{visible(one['lines'][0]['file'], 80)}:{one['lines'][0]['line']}]"
        )
    ranks = facts["ranks"]
    if ranks["world_size"]:
        arrived = f", reporting: {_ranges(ranks['arrived'])}" if ranks["arrived"] else ""
        missing = f", not heard of: {_ranges(ranks['not_arrived'])}" if ranks["not_arrived"] and ranks["arrived"] else ""
        lines.append(f"ranks: {ranks['world_size']}{arrived}{missing}")
    return lines


def _job(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if facts["hosts"]:
        lines.append(f"hosts: {', '.join(visible(host, 60) for host in facts['hosts'][:12])}{' …' if len(facts['hosts']) > 12 else ''}")
    lines += [f"{name}: {_values(values)}" for name, values in facts["versions"].items()]
    lines += [f"{name}: {_values(values)}" for name, values in (("GPU", facts["gpus"]), ("transport", facts["transports"])) if values]
    network = facts["network"]
    lines += [
        f"{name}: {_values(network[key])}" for name, key in (("network", "chosen"), ("adapters", "devices"), ("bootstrap over", "bootstrap")) if network[key]
    ]
    if network["gpudirect_rdma"]:
        lines.append(f"GPUDirect RDMA: {network['gpudirect_rdma']}")
    if facts["settings"]:
        lines.append("settings: " + ", ".join(f"{visible(one['name'], 60)}={visible(one['value'], 60)}" for one in facts["settings"][:10]))
    lines += [f"node {visible(one['node'], 60)}: {visible(one['state'], 60)}, reason {visible(one['reason'], 120)}" for one in facts["nodes"][:8]]
    return lines


def _measured(facts: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if facts["bandwidth"]:
        lines.append(
            f"best bus bandwidth: {facts['bandwidth']['best_busbw_gb_s']:g} GB/s at {facts['bandwidth']['at_bytes']:,} bytes"
            f" [line {facts['bandwidth']['line']}]"
        )
    for group in (facts["flight_recorder"] or {}).get("groups", [])[:4]:
        lines.append(
            f"flight recorder, group {visible(group['group'], 60)}: collective {group['seq']},"
            f" behind {_ranges(group['behind']) or 'none'}, not finished on {_ranges(group['stuck']) or 'none'}"
        )
    lines += [_trace(one) for one in facts.get("calls", ())[:4]]
    return lines


def _trace(one: Mapping[str, Any]) -> str:
    behind = ", ".join(f"{visible(rank['rank'], 60)} at {rank['op']} {rank['number']}" for rank in one["behind"][:8])
    place = f"[{visible(one['file'], 80)}:{one['line']}]"
    return f"NCCL's trace of calls: {len(one['ranks'])} of {one['nranks']} ranks at {one['op']} {one['number']}, behind: {behind or 'none'} {place}"


def _values(values: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{visible(one['value'], 80)} [{one['line']}]" for one in values[:5]]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 7 of [0, 1, 2, 3, 7]."""
    parts: list[str] = []
    start = last = None
    for number in [*numbers, None]:
        if last is not None and number is not None and number == last + 1:
            last = number
            continue
        if last is not None:
            parts.append(str(start) if start == last else f"{start}-{last}")
        start = last = number
    return ", ".join(parts[:20]) + (" …" if len(parts) > 20 else "")


def _indented(lines: Sequence[str], width: int, by: int = 2) -> list[str]:
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(line, max(40, width), initial_indent=" " * by, subsequent_indent=" " * (by + 4), break_on_hyphens=False) or [""]
    return wrapped


def _verdict(diagnosis: Mapping[str, Any], width: int) -> list[str]:
    return _indented([verdict_of(diagnosis)], width, 0)


def verdict_of(diagnosis: Mapping[str, Any]) -> str:
    """The diagnosis in one sentence."""
    causes = diagnosis["causes"]
    outcome = diagnosis["outcome"]
    if outcome["word"] != "cause":
        line = outcome["line"]
        place = f" [{visible(line['file'], 80)}:{line['line']}: {shortened(line['text'], 200)}]" if line else ""
        return f"{_ANSWERS[outcome['word']]}: {outcome['why']}{place}"
    if diagnosis["decided"]:
        return f"MOST PROBABLE CAUSE: {causes[0]['title']}"
    likely = [cause["title"] for cause in causes if cause["severity"] != "info"][:3]
    return f"THE LOG DOES NOT DECIDE; most probable first: {'; '.join(likely)}"


def _cause(place: int, cause: Mapping[str, Any], width: int) -> list[str]:
    lines = _indented([f"{place}. {_WORDS[cause['severity']]}  {cause['title']} ({_certainty(cause)})"], width, 0)
    lines += _indented([f"because: {cause['means']}"] if place == 1 else [], width, 3)
    lines += _indented([f"named: {', '.join(visible(one, 80) for one in cause['where'])}"] if cause["where"] else [], width, 3)
    for word, evidence in (("for", cause["evidence"]), ("against", cause["against"])):
        for one in evidence[:SHOWN_LINES]:
            lines += _indented([f"{word}: {visible(one['file'], 80)}:{one['line']}: {shortened(one['text'], 240)}"], width, 3)
            lines += _indented([f"({one['says']})"], width, 7)
        if len(evidence) > SHOWN_LINES:
            lines += _indented([f"and {len(evidence) - SHOWN_LINES} more lines {word} it"], width, 3)
    lines += _indented([f"do: {remedy_in_words(cause['remedy'])}"], width, 3)
    if place == 1:
        lines += _indented([f"{name}: {how}" for name, how in cause["remedy"].get("how", {}).items()], width, 7)
        if cause["workaround"]:
            lines += _indented([f"until then: {cause['workaround']['what']} (costs: {cause['workaround']['cost']})"], width, 3)
    lines += _indented([f"source: {one['url']} ({one['says']})" for one in cause["sources"][:2]], width, 3)
    return lines


def _certainty(cause: Mapping[str, Any]) -> str:
    return "a remark" if cause["severity"] == "info" else str(cause["certainty"])


def shortened(text: str, most: int) -> str:
    """A line that is too long loses its middle: a message begins with who speaks and ends with what is wrong."""
    if len(text) <= most:
        return visible(text, most)
    head = most // 3
    return f"{visible(text[:head], most)} [...] {visible(text[head - most :], most)}"


def remedy_in_words(remedy: Mapping[str, Any]) -> str:
    """apply role X with a.b: 1; and what a person does."""
    parts = []
    if remedy.get("role"):
        variables = ", ".join(f"{name}: {value}" for name, value in _flat(remedy.get("variables") or {}))
        parts.append(f"apply role {remedy['role']}" + (f" with {variables}" if variables else ""))
    if remedy.get("person"):
        parts.append(str(remedy["person"]))
    return "; ".join(parts)


def _flat(variables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def _remarks(remarks: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    if not remarks:
        return []
    lines = ["ALSO SEEN"]
    for one in remarks[:10]:
        where = one["evidence"][0]
        lines += _indented([f"{one['kind']}: {visible(where['file'], 80)}:{where['line']}: {shortened(where['text'], 160)}"], width)
        lines += _indented([f"{one['says']}; {one['instead']}" if one["instead"] else one["says"]], width, 6)
    return [*lines, ""]


def _collect(collect: Sequence[str], width: int) -> list[str]:
    return ["COLLECT NEXT", *_indented([f"- {one}" for one in collect], width), ""] if collect else []


def render_markdown(diagnosis: Mapping[str, Any]) -> str:
    """For a ticket: text from logs stands in code, and cannot leave it."""
    diagnosis = with_short_names(diagnosis)
    lines = ["## unhang diagnose", "", f"**{verdict_of(diagnosis)}**", "", "### What happened", ""]
    lines += [f"- {_code_or_text(line)}" for line in facts_in_words(diagnosis["facts"])]
    for place, cause in enumerate(diagnosis["causes"][:SHOWN_CAUSES], 1):
        lines += [
            "",
            f"### {place}. {cause['title']} ({_WORDS[cause['severity']]}, {_certainty(cause)})",
            "",
            f"{cause['means']}.",
            "",
        ]
        for word, evidence in (("for", cause["evidence"]), ("against", cause["against"])):
            lines += [
                f"- {word}: {_code(visible(one['file'], 80) + ':' + str(one['line']))} {_code(visible(one['text'], 300))} ({one['says']})"
                for one in evidence[:SHOWN_LINES]
            ]
        lines += [f"- named: {', '.join(_code(visible(one, 80)) for one in cause['where'])}"] if cause["where"] else []
        lines += ["", f"**Do:** {remedy_in_words(cause['remedy'])}", ""]
        lines += [f"- {name}: {_code(how)}" for name, how in cause["remedy"].get("how", {}).items()] if place == 1 else []
        lines += [f"- source: <{one['url']}> {one['says']}" for one in cause["sources"][:3]]
    if diagnosis["remarks"]:
        lines += ["", "### Also seen", ""]
        lines += [
            f"- {one['kind']}: {_code(visible(one['evidence'][0]['text'], 160))}: {one['says']}; {one['instead'] or ''}" for one in diagnosis["remarks"][:10]
        ]
    if diagnosis["collect_next"]:
        lines += ["", "### Collect next", ""] + [f"- {_code(one)}" for one in diagnosis["collect_next"]]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Inline code that its content cannot close: a fence longer than any run of backticks inside."""
    longest, run = 0, 0
    for letter in text:
        run = run + 1 if letter == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _code_or_text(line: str) -> str:
    name, colon, rest = line.partition(": ")
    return f"{name}: {_code(rest)}" if colon else line
