"""Values that a file names, as its parsers read them; and faults outside settings: time limits of
hours, packages that do not exist, versions that a file installs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.version import Version

from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.setting_values import whole_number
from unhang.jobs.lint.knowledge import Findings, row_of, said
from unhang.jobs.lint.launch import Options
from unhang.jobs.lint.placed import Text, placed
from unhang.jobs.lint.python_names import line_of
from unhang.jobs.lint.settings import find_settings, runs_only_tests

NamedValue = tuple[Mapping[str, Any], Text]  # with its row
SHORT_S, LONG_S = 120, 7200
LONGEST_LINE = 4000
# Patterns, because a package, an image or a path is named in files of every kind, and in the words
# of commands of every installer.
_NO_PACKAGE = re.compile(r"linux-(?:image-|headers-)?generic-5\.5\b")
_NCCL = re.compile(
    r"nvidia-nccl-cu(?P<major>\d{2})==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})|\blibnccl2=(?P<deb>\d{1,2}\.\d{1,3}\.\d{1,3})"
    r"|\bNCCL_VERSION[= ]\"?(?P<env>\d{1,2}\.\d{1,3}\.\d{1,3})"
)
_TORCH = re.compile(
    r"\btorch==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})(?:\+cu(?P<cuda>\d{2,3}))?|FROM\s+(?:docker\.io/)?pytorch/pytorch:(?P<image>\d{1,2}\.\d{1,3}\.\d{1,3})"
)
RCCL = re.compile(r"(?i)\brccl\b|\brocm\b|amd\.com/gpu|librccl|PYTORCH_ROCM")
_OTHER_INDEX = re.compile(r"download\.pytorch\.org/whl/cu(?P<cuda>\d{2,3})")
_LIBRARY_PATH = re.compile(
    r"LD_(?:LIBRARY_PATH|PRELOAD)\S{0,4}[=:\s][^;&|#]{0,300}?(?P<path>/\S{0,160}?\bnccl\b[^:\s\"']{0,80}|\S{0,160}libnccl\.so[\w.]{0,20})"
)


def check_lines(text: str, values: Iterable[NamedValue]) -> Findings:
    """Findings about single lines and values."""
    lines = text.splitlines()
    for row, one in values:
        limit_s = seconds_of(row, one)
        if limit_s >= LONG_S:
            yield said("long_limit", one.line, one.shown, {"hours": limit_s / 3600})
        elif 0 < limit_s <= SHORT_S and "timeout" in line_of(lines, one.line).lower():
            yield said("short_limit", one.line, one.shown, {"limit_s": limit_s})
    benchmark = runs_only_tests(text)  # no framework, so no other libnccl than its own is loaded
    for number, line in _without_comments(lines):
        if not benchmark and (found := _LIBRARY_PATH.search(line)):
            yield said("foreign_library", number, found["path"], {})
        if found := _NO_PACKAGE.search(line):
            yield said("no_package", number, found.group(), {})


def _without_comments(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, the beginning of long ones."""
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("#"):
            yield number, line[:LONGEST_LINE]


def values_in(text: str, kind: str, options: Iterable[Options]) -> Iterator[NamedValue]:
    """The values in a file whose names are in the table: settings, options, fields, and variables
    and arguments of Python."""
    found = [pair for given in options for pair in given.items()]
    for one in find_settings(text, kind, table("named_values").__contains__):
        found.append((one.name, placed(one.value or "", one.line, f"{one.name}={one.value}")))
    for name, value in found:
        if row := row_of("named_values", name):
            yield row, value


def seconds_of(row: Mapping[str, Any], value: str) -> int:
    """The time limit that a named value is; 0 for another one."""
    return (whole_number(value) or 0) * row["unit_s"]


def versions_in(text: str) -> tuple[str | None, str | None]:
    """(NCCL, torch) that the file itself installs; NCCL also as a dependency of torch."""
    torch = next((found["version"] or found["image"] for found in _TORCH.finditer(text)), None)
    nccl = next(
        (found["version"] or found["deb"] or found["env"] for found in _NCCL.finditer(text)), None
    )
    if nccl is None and torch:
        nccl = row_of("torch_wheels", torch).get("nccl")
    return nccl, torch


def check_fits(text: str) -> Findings:
    """An NCCL wheel that is older than the one that torch was built with, or of another CUDA: then
    one is missing a symbol, or two are loaded."""
    lines = [*_without_comments(text.splitlines())]
    torch = next(
        (found for _, line in lines if (found := _TORCH.search(line)) and found["version"]), None
    )
    row = row_of("torch_wheels", torch["version"]) if torch else {}
    if torch is None or row.get("linkage") != "wheel":
        return
    cuda = torch["cuda"] or next(
        (found["cuda"] for _, line in lines if (found := _OTHER_INDEX.search(line))), None
    )
    major = cuda[:2] if cuda else str(row["cuda"]).split(".")[0]
    for number, line in lines:
        for found in _NCCL.finditer(line):
            brings, ours = str(row["nccl"]), found["version"]
            values = {**torch.groupdict(), **row, "brings": brings, "version": ours, "major": major}
            if found["major"] and found["major"] != major:
                yield said("other_cuda", number, found.group(), values)
            elif found["major"] and Version(ours) < Version(brings):
                yield said("older_nccl", number, found.group(), values)
