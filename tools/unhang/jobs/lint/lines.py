"""Faults outside settings: time limits of hours, packages that do not exist, versions that a file
names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from unhang.jobs.lint.checks import LONG_S
from unhang.jobs.lint.knowledge import Findings, matching, row_of, said
from unhang.jobs.lint.settings import LONGEST_LINE, runs_only_tests

SHORT_S = 120
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
    r"LD_(?:LIBRARY_PATH|PRELOAD)\S{0,4}[=:\s].{0,300}?(?P<path>/\S{0,160}?\bnccl\b[^:\s\"']{0,80}|\S{0,160}libnccl\.so[\w.]{0,20})"
)


def check_lines(text: str) -> Findings:
    """Findings about single lines."""
    benchmark = runs_only_tests(text)  # no framework, so no other libnccl than its own is loaded
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw[:LONGEST_LINE]
        if line.lstrip().startswith("# "):
            continue
        for shown, limit_s in limits_in(line):
            if limit_s >= LONG_S:
                yield said("long_limit", number, shown, {"hours": limit_s / 3600})
            elif 0 < limit_s <= SHORT_S and "timeout" in line.lower():
                yield said("short_limit", number, shown, {"limit_s": limit_s})
        is_read = not benchmark and not line.lstrip().startswith("#")
        if is_read and (found := _LIBRARY_PATH.search(line[:4000])):
            yield said("foreign_library", number, found["path"], {})
        if found := _NO_PACKAGE.search(line):
            yield said("no_package", number, found.group(), {})


def limits_in(line: str) -> Iterator[tuple[str, int]]:
    """(text, seconds) of each time limit that a line sets."""
    for key, found in matching("time_limits", line):
        yield found.group().strip(), int(found[1]) * row_of("time_limits", key)["unit_s"]


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
    lines = [
        (number, line[:LONGEST_LINE])
        for number, line in enumerate(text.splitlines(), 1)
        if not line.lstrip().startswith("#")
    ]
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
