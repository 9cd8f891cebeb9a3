"""Faults that are no setting: time limits raised to hours, packages that do not exist, versions that a file names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.lint.checks import LONG_S, Finding
from unhang.lint.knowledge import Knowledge
from unhang.lint.settings import IGNORED, LONGEST_LINE

_TIMEOUTS = (
    (re.compile(r"timedelta\(\s{0,4}hours\s{0,4}=\s{0,4}(\d{1,6})"), 3600),
    (re.compile(r"timedelta\(\s{0,4}minutes\s{0,4}=\s{0,4}(\d{1,8})"), 60),
    (re.compile(r"timedelta\(\s{0,4}seconds\s{0,4}=\s{0,4}(\d{1,10})"), 1),
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
_TORCH = re.compile(r"\btorch==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})|FROM\s+(?:docker\.io/)?pytorch/pytorch:(?P<image>\d{1,2}\.\d{1,3}\.\d{1,3})")


def check_lines(text: str, known: Knowledge) -> Iterator[Finding]:
    """Findings that a line carries by itself."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw[:LONGEST_LINE]
        if IGNORED.search(line) or line.lstrip().startswith("# "):
            continue
        for pattern, unit_s in _TIMEOUTS:
            if (found := pattern.search(line)) and int(found[1]) * unit_s >= LONG_S:
                hours = int(found[1]) * unit_s / 3600
                yield Finding(
                    number, "timeout-hours", "warning", found.group().strip(),
                    f"a hang is noticed after {hours:.1f} hours: until then all GPUs are paid for and idle",
                    "as long as the longest honest wait (30 to 60 minutes), and long single-rank work outside of collectives", known.source("timeout_settings"),
                )  # fmt: skip
        if found := _NO_PACKAGE.search(line):
            yield Finding(
                number, "no-such-package", "error", found.group(), "there is no package of this name; Ubuntu's 5.5 kernel was never packaged for a release",
                "linux-generic-hwe-20.04 (5.15) or the HWE or cloud kernel of a newer release; unhang's role kernel does it",
                "https://bugs.launchpad.net/ubuntu/+source/linux-meta",
            )  # fmt: skip


def versions_in(text: str, known: Knowledge) -> tuple[str | None, str | None]:
    """(NCCL, torch) that the file itself installs; NCCL also by the torch that brings it."""
    torch = next((found["version"] or found["image"] for found in _TORCH.finditer(text)), None)
    nccl = next((found["version"] or found["deb"] or found["env"] for found in _NCCL.finditer(text)), None)
    if nccl is None and torch:
        nccl = (known.row("torch_wheels", torch) or {}).get("nccl")
    return nccl, torch
