"""Faults outside settings: time limits of hours, packages that do not exist, versions that a file
names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.checks import LONG_S
from unhang.jobs.lint.knowledge import Knowledge
from unhang.jobs.lint.settings import IGNORED, LONGEST_LINE, runs_only_tests

SHORT_S = 120
_TIMEOUTS = (
    (re.compile(r"timedelta\(\s{0,4}hours\s{0,4}=\s{0,4}(\d{1,6})(?:\s{0,4}\))?"), 3600),
    (re.compile(r"timedelta\(\s{0,4}minutes\s{0,4}=\s{0,4}(\d{1,8})(?:\s{0,4}\))?"), 60),
    (re.compile(r"timedelta\(\s{0,4}seconds\s{0,4}=\s{0,4}(\d{1,10})(?:\s{0,4}\))?"), 1),
    (re.compile(r"--?ddp[_-]timeout[= ]{1,4}(\d{1,10})"), 1),
    (re.compile(r"^\s{0,40}ddp_timeout:\s{0,8}(\d{1,10})"), 1),
    (re.compile(r"--distributed-timeout-minutes[= ]{1,4}(\d{1,8})"), 60),
    (re.compile(r"(?<![\w-])--?(?:dist[_-])?timeout[_-]minutes[= ]{1,4}(\d{1,8})"), 60),
)
_NO_PACKAGE = re.compile(r"linux-(?:image-|headers-)?generic-5\.5\b")
_NCCL = re.compile(
    r"nvidia-nccl-cu\d{2}==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})|\blibnccl2=(?P<deb>\d{1,2}\.\d{1,3}\.\d{1,3})"
    r"|\bNCCL_VERSION[= ]\"?(?P<env>\d{1,2}\.\d{1,3}\.\d{1,3})"
)
_TORCH = re.compile(
    r"\btorch==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})|FROM\s+(?:docker\.io/)?pytorch/pytorch:(?P<image>\d{1,2}\.\d{1,3}\.\d{1,3})"
)
_RCCL = re.compile(r"(?i)\brccl\b|\brocm\b|amd\.com/gpu|librccl|PYTORCH_ROCM")


def about(text: str) -> tuple[bool, bool]:
    """(RCCL, benchmark): whether the file is for AMD's GPUs, and whether it runs NCCL's tests and
    no framework."""
    return _RCCL.search(text) is not None, runs_only_tests(text)


def check_lines(text: str, known: Knowledge) -> Iterator[Finding]:
    """Findings about single lines."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw[:LONGEST_LINE]
        if IGNORED.search(line) or line.lstrip().startswith("# "):
            continue
        yield from _limits(line, number, known)
        if found := _NO_PACKAGE.search(line):
            yield Finding(
                number, "no-such-package", "error", found.group(),
                "there is no package of this name; Ubuntu's 5.5 kernel was never packaged for a release",  # noqa: E501
                "linux-generic-hwe-20.04 (5.15) or the HWE or cloud kernel of a newer release; unhang's role kernel does it",  # noqa: E501
                "https://bugs.launchpad.net/ubuntu/+source/linux-meta",
            )  # fmt: skip


def _limits(line: str, number: int, known: Knowledge) -> Iterator[Finding]:
    for shown, limit_s in limits_in(line):
        if limit_s >= LONG_S:
            yield Finding(
                number, "timeout-hours", "warning", shown,
                f"a hang is noticed only after {limit_s / 3600:.1f} hours, and all GPUs are idle until then",  # noqa: E501
                "a little more than the longest regular wait (30 to 60 minutes); long work of one rank outside collectives", known.source("timeout_settings"),  # noqa: E501
            )  # fmt: skip
        elif 0 < limit_s <= SHORT_S and "timeout" in line.lower():
            yield Finding(
                number, "timeout-short", "info", shown,
                f"if this is the timeout of collectives, all ranks abort after {limit_s} s even if one of them only saves, loads or compiles",  # noqa: E501
                "600 s is PyTorch's default for NCCL", known.source("timeout_settings"),
            )  # fmt: skip


def limits_in(line: str) -> Iterator[tuple[str, int]]:
    """(text, seconds) of each time limit that a line sets."""
    for pattern, unit_s in _TIMEOUTS:
        if found := pattern.search(line):
            yield found.group().strip(), int(found[1]) * unit_s


def versions_in(text: str, known: Knowledge) -> tuple[str | None, str | None]:
    """(NCCL, torch) that the file itself installs; NCCL also as a dependency of torch."""
    torch = next((found["version"] or found["image"] for found in _TORCH.finditer(text)), None)
    nccl = next(
        (found["version"] or found["deb"] or found["env"] for found in _NCCL.finditer(text)), None
    )
    if nccl is None and torch:
        nccl = (known.row("torch_wheels", torch) or {}).get("nccl")
    return nccl, torch
