"""Slurm's configuration files to values: slurm.conf, cgroup.conf, gres.conf. Values in, values out.

Keys are written in any case; a line is continued by a backslash at its end; what follows "#" is a
comment: slurm.conf(5).
"""

from __future__ import annotations

import re

from ...base.parse.values import clean, integer_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

TEXT = 256
LINES = 8192
WORDS = 64
PIECE = re.compile(r"\[([\d,-]{1,4096})\]|([^\[\]]+)")
PAIR = re.compile(r"([A-Za-z]\w{0,63})\s*=\s*(\"[^\"]*\"|\S*)")
# how lines begin that set nothing for the whole cluster
DESCRIBING = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")
GPUS = re.compile(r"gpu(?::[^:,()]{1,128})??(?::(\d{1,6}))?(?:\(.{0,128}\))?$")


def slurm_lines(text: str) -> list[str]:
    """The lines of a file without comments, continued ones joined; empty ones are left out."""
    lines, begun = [], ""
    for raw in text.splitlines()[:LINES]:
        line = begun + raw.partition("#")[0].rstrip()
        if line.endswith("\\"):
            begun = line[:-1] + " "
            continue
        begun = ""
        if line.strip():
            lines.append(line.strip())
    return lines + ([begun.strip()] if begun.strip() else [])


def line_values(line: str) -> dict[str, str]:
    """{key in lower case: value} of one line of Key=Value pairs, without quotes."""
    return {key.lower(): clean(value.strip('"'), 4096) for key, value in PAIR.findall(line)}


def included(lines: Iterable[str]) -> list[str]:
    """Paths of `Include` lines: slurm.conf(5)."""
    words = (line.split(None, 1) for line in lines)
    return [pair[1].strip() for pair in words if len(pair) == 2 and pair[0].lower() == "include"]


def settings(lines: Iterable[str]) -> dict[str, str]:
    """{key in lower case: value} of lines that describe neither nodes nor partitions; the last one
    counts."""
    found: dict[str, str] = {}
    for line in lines:
        if not line[:16].lower().startswith(DESCRIBING):
            found.update(line_values(line))
    return found


def row_of_node(lines: Iterable[str], name: str) -> dict[str, str]:
    """The values of the NodeName line that names this node, over those of NodeName=DEFAULT lines
    before it; {} when none does."""
    defaults: dict[str, str] = {}
    for line in lines:
        # the whole line is read only where it speaks of this node: there may be thousands
        first = PAIR.match(line)
        named = first[2].strip('"') if first and first[1].lower() == "nodename" else ""
        if named.upper() == "DEFAULT":
            defaults.update(line_values(line))
        elif named and "nodehostname" in line.lower():
            named = line_values(line).get("nodehostname", named)
        if named and names_node(named, name):
            return {**defaults, **line_values(line)}
    return {}


def names_node(expression: str, name: str) -> bool:
    """True when a node expression such as gpu[001-008,010],login1 names a node."""
    return any(_matches(PIECE.findall(part), name) for part in _parts(expression))


def _parts(expression: str) -> list[str]:
    """An expression without the commas between its parts; those in brackets stay."""
    return [part for part in re.split(r",(?![^\[\]]*\])", expression) if part][:1024]


def _matches(pieces: list[tuple[str, str]], name: str) -> bool:
    if not pieces:
        return not name
    ranges, literal = pieces[0]
    if literal:
        return name.startswith(literal) and _matches(pieces[1:], name[len(literal) :])
    digits = len(name) - len(name.lstrip("0123456789"))
    return any(
        _in_ranges(ranges, name[:size]) and _matches(pieces[1:], name[size:])
        for size in range(1, min(digits, 9) + 1)
    )


def _in_ranges(ranges: str, number: str) -> bool:
    for first, low, high in _bounds(ranges):
        width_fits = (
            len(number) == len(first)
            if first.startswith("0")
            else number == "0" or not number.startswith("0")
        )
        if low is not None and high is not None and width_fits and low <= int(number) <= high:
            return True
    return False


def _bounds(ranges: str) -> Iterator[tuple[str, int | None, int | None]]:
    """(lower end as written, both ends) of each range or number."""
    for each in ranges.split(","):
        first, dash, last = each.partition("-")
        low = integer_or_none(first)
        yield first, low, integer_or_none(last) if dash else low


def expand(expression: str, most: int = WORDS) -> list[str]:
    """/dev/nvidia0, /dev/nvidia1 … of /dev/nvidia[0-7], at most `most` of them. Raises ValueError
    for more and for what is no such expression."""
    found: list[str] = []
    for part in _parts(expression):
        names = [""]
        for ranges, literal in PIECE.findall(part):
            ends = _numbers(ranges, most) if ranges else [literal]
            if len(names) * len(ends) > most:
                raise ValueError(f"{expression[:80]!r} means more than {most} names")
            names = [name + end for name in names for end in ends]
        found += names
    if len(found) > most:
        raise ValueError(f"{expression[:80]!r} means more than {most} names")
    return found


def _numbers(ranges: str, most: int) -> list[str]:
    found: list[str] = []
    for first, low, high in _bounds(ranges):
        if low is None or high is None or not 0 <= low <= high or high - low >= most:
            raise ValueError(f"[{ranges[:80]}] is not a range of at most {most} numbers")
        found += [
            str(number).zfill(len(first)) if first.startswith("0") else str(number)
            for number in range(low, high + 1)
        ]
    return found


def words(value: str) -> list[str]:
    """The comma-separated words of a value, in lower case, sorted, each once."""
    return sorted({word.strip().lower()[:TEXT] for word in value.split(",") if word.strip()})[
        :WORDS
    ]


def count_gpus(gres: str) -> int:
    """How many GPUs a Gres= value gives a node: 8 of gpu:h100:8(S:0-1), 1 of gpu; other resources
    do not count."""
    parts = re.split(r",(?![^()]*\))", gres.strip())
    matches = (GPUS.match(part.strip()) for part in parts[:WORDS])
    return sum(int(match.group(1) or 1) for match in matches if match)


def yes(value: str | None) -> bool:
    """True for yes, true and 1: the default of each of cgroup.conf's switches is no."""
    return (value or "").lower() in ("yes", "true", "y", "t", "1")


def parse_cgroup_conf(text: str) -> dict[str, Any]:
    """{plugin, constrain_devices, constrain_cores, constrain_ram, allowed_ram_percent} with Slurm's
    defaults: cgroup.conf(5)."""
    values = settings(slurm_lines(text))
    percent = integer_or_none(values.get("allowedramspace", "100").partition(".")[0])
    return {
        "plugin": values.get("cgroupplugin", "autodetect").lower()[:TEXT],
        "constrain_devices": yes(values.get("constraindevices")),
        "constrain_cores": yes(values.get("constraincores")),
        "constrain_ram": yes(values.get("constrainramspace")),
        "allowed_ram_percent": percent,
    }


def parse_gres_conf(text: str, name: str) -> tuple[str, list[dict[str, str]]]:
    """(AutoDetect, [values of a line of GPUs]) of gres.conf for one node; "" without AutoDetect:
    gres.conf(5)."""
    autodetect = ""
    rows: list[dict[str, str]] = []
    for line in slurm_lines(text):
        values = line_values(line)
        if "nodename" in values and not names_node(values["nodename"], name):
            continue
        autodetect = values.get("autodetect", autodetect).lower()[:TEXT]
        if values.get("name", "").lower() == "gpu" and len(rows) < WORDS:
            rows.append(values)
    return ("" if autodetect == "off" else autodetect), rows
