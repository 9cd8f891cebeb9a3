"""What NCCL's RAS answers: its JSON form (NCCL 2.28 and later) and its text form (2.24 and later).
Values in, values out.

A communicator becomes {hash, size, members, counts, missing, errors, starting}: members are [rank,
host, pid, gpu] of the ranks that answered, counts group the ranks that launched equally many
operations of each kind, missing are [rank, host, pid, gpu, is_dead] of those that did not answer.
Ranks are numbered within their communicator. The text form names only ranks that differ. Source:
src/ras/client_support.cc of NCCL.
"""

from __future__ import annotations

import re

from ...base.parse.values import as_map, as_maps, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_COMMUNICATORS = 2048
MOST_RANKS = 200_000  # of all communicators together
LARGEST = 2**53
# NCCL 2.28 forgets the comma before the status of a missing rank
LOST_COMMA = re.compile(r'([\d"\]}el])(\s*\n\s*")')
TEXT_MARK = "Job summary"
_HEADING = re.compile(
    r"^#(?P<group>\d{1,6})-\d{1,6} \((?P<hash>[0-9a-f]{1,16})\) (?P<kind>[A-Z,]{1,40})$"
)
_PLACE = (
    r" -- GPU (?P<gpu>\d{1,4})\S{0,40} managed by process (?P<pid>\d{1,10}) on node"
    r" (?P<host>\S{1,128})$"
)
_NAMED = re.compile(r"^ {2,8}Rank (?P<rank>\d{1,9})" + _PLACE)
_PROCESS = re.compile(
    r"^  Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,128}) managing GPU (?P<gpu>\d{1,4})"
)
_MISSING = re.compile(r"^ {2,8}The missing rank: (\d{1,9})$")
_DIFFERENT = re.compile(
    r"^ {2,8}Communicator ranks have different (?P<op>\w{1,40}) operation counts$"
)
_COUNTED = re.compile(
    r"^ {2,8}(?P<ranks>\d{1,7}) ranks? ha(?:ve|s) (?:(?:launched up to operation"
    r"|(?P<op>\w{3,20}) operation count) (?P<count>\d{1,19})|not launched any operations)$"
)
_LAUNCHED = re.compile(
    r"^ {2,8}Rank (?P<rank>\d{1,9}) has (?:launched up to operation (?P<count>\d{1,19})"
    r"|not launched any operations)" + _PLACE
)
_FAILED = re.compile(
    r"^ {2,8}Rank (?P<rank>\d{1,9}) (?:reported|has status (?=NOCOMM|ABORT))"
    r" ?(?P<error>[^-]{1,80}?)" + _PLACE
)
_TABLE = re.compile(
    r"^ {2,}(?P<group>\d{1,6}) +(?P<comms>\d{1,9}) +\S{1,9} +\S{1,9} +(?P<size>\d{1,9})"
    r" +(?P<ranks>\d{1,9}) +(?P<status>[A-Z,]+) +(?P<errors>[A-Z,]+)$"
)
_VERSION = re.compile(r"^NCCL version (\S{1,40})", re.MULTILINE)
_SUMMARY = re.compile(
    r"^Job summary\n=+\n(?:.*\n){3,4}? +\d+ +\S+ +\S+ +(?P<all>\d{1,9}) ", re.MULTILINE
)


def parse_ras(text: str) -> dict[str, Any]:
    """{version, form, communicators} of one answer; a text has the number of all processes too.
    Raises ValueError for anything else, such as another service or an answer that was cut off."""
    start = text.find("{")
    if start >= 0 and (start < 200 or TEXT_MARK not in text):
        return parse_json_form(text[start:])
    if TEXT_MARK in text:
        return parse_text_form(text)
    raise ValueError(f"this is not a status of NCCL's RAS: {text[:80]!r}")


def parse_json_form(text: str) -> dict[str, Any]:
    """As parse_ras. Raises ValueError."""
    try:
        content = parse_json(text)
    except ValueError:
        content = parse_json(LOST_COMMA.sub(r"\1,\2", text))
    rows = content.get("communicators") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ValueError("this is not a status of NCCL's RAS: the JSON has no communicators")
    found, ranks = [], 0
    for row in rows[:MOST_COMMUNICATORS]:
        if isinstance(row, dict):
            found.append(_communicator(row))
            ranks += len(found[-1]["members"])
            if ranks > MOST_RANKS:
                break
    return {
        "version": str(content.get("nccl_version"))[:40],
        "form": "json",
        "communicators": found,
    }


def _communicator(row: dict[str, Any]) -> dict[str, Any]:
    counts: dict[tuple[tuple[str, int], ...], list[int]] = {}
    made = empty_communicator(str(row.get("hash"))[:32], _number(row.get("size")))
    for rank in as_maps(row.get("ranks")):
        number, status = _number(rank.get("rank")), as_map(rank.get("status"))
        made["members"].append(_place_of(rank))
        launched = list(as_map(rank.get("collective_counts")).items())[:32]
        key = tuple(sorted((str(op)[:40], _number(count)) for op, count in launched))
        counts.setdefault(key, []).append(number)
        error, is_aborted = status.get("async_error"), status.get("abort_flag") is True
        if error or is_aborted:
            why = "aborted" if is_aborted else f"asynchronous error {_number(error)}"
            made["errors"].append([number, why])
        if status.get("init_state"):
            made["starting"].append(number)
    for rank in as_maps(row.get("missing_ranks")):
        is_dead = as_map(rank.get("status")).get("considered_dead") is True
        made["missing"].append([*_place_of(rank), is_dead])
    made["counts"] = [
        {"ranks": ranks, "ops": {op: count for op, count in key if count}}
        for key, ranks in counts.items()
    ]
    return made


def empty_communicator(name: str, size: int) -> dict[str, Any]:
    """A communicator of which nothing is known but its size."""
    return {
        "hash": name,
        "size": size,
        "members": [],
        "counts": [],
        "missing": [],
        "errors": [],
        "starting": [],
    }


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < LARGEST else 0


def _place_of(row: dict[str, Any]) -> list[Any]:
    return [
        _number(row.get("rank")),
        str(row.get("host"))[:128],
        _number(row.get("pid")),
        _number(row.get("nvml_dev", row.get("cuda_dev"))),
    ]


def parse_text_form(text: str) -> dict[str, Any]:
    """As parse_ras, for the text of `verbose status`. Raises ValueError."""
    version = _VERSION.search(text)
    if not version:
        raise ValueError("this is not a status of NCCL's RAS: it has no version")
    summary = _SUMMARY.search(text)
    return {
        "version": version.group(1),
        "form": "text",
        "processes": int(summary["all"]) if summary else None,
        "communicators": parse_blocks(text)[:MOST_COMMUNICATORS],
    }


def parse_blocks(text: str) -> list[dict[str, Any]]:
    """The communicators of a text, also of a part of an answer, such as a MISMATCH block. Ranks
    that are only counted are those that no line names. Groups of communicators without a block have
    one row each."""
    lines = text.splitlines()
    tables = [found for line in lines for found in [_TABLE.match(line)] if found]
    sizes = {row["group"]: int(row["size"]) for row in tables}
    gone = [*_gone(lines)]
    dead = {(row["host"], int(row["pid"])) for heading, row in gone if heading == "DEAD"}
    made: dict[str, dict[str, Any]] = {}
    for heading, body in _blocks(lines):
        size = sizes.get(heading["group"])
        if size == 0:
            continue  # of no rank anything is known, and NCCL 2.28 prints foreign memory for it
        name = "0x" + heading["hash"].lstrip("0")
        row = made.setdefault(heading["hash"], empty_communicator(name, size or 0))
        _add_block(row, heading["kind"], body)
        for number in filter(None, map(_MISSING.match, body)):  # NCCL 2.24 names it elsewhere
            for _, one in gone if len(gone) == 1 else ():
                place = [int(number[1]), one["host"], int(one["pid"]), int(one["gpu"]), False]
                row["missing"].append(place)
    for row in made.values():
        _complete_counts(row)
        for one in row["missing"]:
            one[-1] = one[-1] or (one[1], one[2]) in dead
    shown = {heading["group"] for heading, _ in _blocks(lines)}
    quiet = [
        empty_communicator("", size) for group, size in sizes.items() if size and group not in shown
    ]
    return [*made.values(), *quiet]


def _gone(lines: list[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """The processes below the lines DEAD and INCOMPLETE, with that line."""
    heading = ""
    for line in lines:
        found = _PROCESS.match(line) if heading else None
        if found:
            yield heading, found
        elif not line.startswith("  "):
            heading = line if line in ("DEAD", "INCOMPLETE") else ""


def _blocks(lines: list[str]) -> Iterator[tuple[re.Match[str], list[str]]]:
    for number, line in enumerate(lines):
        heading = _HEADING.match(line)
        if heading:
            end = next(
                (
                    at
                    for at in range(number + 1, len(lines))
                    if lines[at].strip() and not lines[at].startswith("  ")
                ),
                len(lines),
            )
            yield heading, lines[number + 1 : end]


def _add_block(row: dict[str, Any], kind: str, body: list[str]) -> None:
    """Adds a block's lines. A line that names a rank and nothing else belongs to the line above it
    that counts ranks, or is a missing rank."""
    op, alike = "", None  # type: str, list[int] | None
    for line in body:
        different, counted = _DIFFERENT.match(line), _COUNTED.match(line)
        launched, named = _LAUNCHED.match(line), _NAMED.match(line)
        failed = _FAILED.match(line)
        if different:
            op, alike = different["op"], None
        elif counted:
            ops = {counted["op"] or op: int(counted["count"] or 0)}
            alike = []
            row["counts"].append({"ranks": alike, "ops": ops, "of": int(counted["ranks"])})
        elif launched:
            ops = {op: int(launched["count"] or 0)}
            row["counts"].append({"ranks": [_member(row, launched)], "ops": ops})
        elif failed:
            row["errors"].append([_member(row, failed), failed["error"]])
        elif named and "INCOMPLETE" in kind:
            row["missing"].append([*_named_place(named), False])
        elif named and alike is not None:
            alike.append(_member(row, named))


def _member(row: dict[str, Any], found: re.Match[str]) -> int:
    """The rank of a line, which becomes a member."""
    place = _named_place(found)
    if place not in row["members"]:
        row["members"].append(place)
    rank: int = place[0]
    return rank


def _named_place(found: re.Match[str]) -> list[Any]:
    return [int(found["rank"]), found["host"], int(found["pid"]), int(found["gpu"])]


def _complete_counts(row: dict[str, Any]) -> None:
    """Ranks that are counted and not listed are those in no other line, if that is one
    group of them."""
    groups = row["counts"]
    missing = {one[0] for one in row["missing"]}
    for op in {op for group in groups for op in group["ops"]}:
        those = [group for group in groups if op in group["ops"]]
        whole = sum(group.get("of", len(group["ranks"])) for group in those) + len(missing)
        row["size"] = row["size"] or whole
        unnamed = [group for group in those if len(group["ranks"]) < group.get("of", 0)]
        if len(unnamed) == 1 and not unnamed[0]["ranks"] and row["size"] <= MOST_RANKS:
            named = {rank for group in those for rank in group["ranks"]} | missing
            unnamed[0]["ranks"] = sorted({*range(row["size"])} - named)
    for group in groups:
        group.pop("of", None)
