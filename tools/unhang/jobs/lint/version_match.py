"""Whether the versions that one file installs fit each other: NCCL, and a torch built against
another NCCL. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Knowledge
from unhang.jobs.lint.settings import IGNORED

LONGEST_LINE = 4000
_TORCH = re.compile(r"\btorch==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})(?:\+cu(?P<cuda>\d{2,3}))?")
_NCCL = re.compile(r"nvidia-nccl-cu(?P<major>\d{2})==(?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})")
_OTHER_INDEX = re.compile(r"download\.pytorch\.org/whl/cu(?P<cuda>\d{2,3})")


def check_fits(text: str, known: Knowledge) -> Iterator[Finding]:
    """An NCCL wheel that is older than the one that torch was built with, or of another CUDA: then
    one is missing a symbol, or two are loaded."""
    lines = [
        (number, line[:LONGEST_LINE])
        for number, line in enumerate(text.splitlines(), 1)
        if not IGNORED.search(line) and not line.lstrip().startswith("#")
    ]
    torch = next((found for _, line in lines if (found := _TORCH.search(line))), None)
    row = known.row("torch_wheels", torch["version"]) if torch else None
    if torch is None or row is None or row["linkage"] != "wheel":
        return
    cuda = torch["cuda"] or next(
        (found["cuda"] for _, line in lines if (found := _OTHER_INDEX.search(line))), None
    )
    major = cuda[:2] if cuda else str(row["cuda"]).split(".")[0]
    for number, line in lines:
        for found in _NCCL.finditer(line):
            yield from _wheel(number, found, torch["version"], str(row["nccl"]), major, known)


def _wheel(
    number: int, found: re.Match[str], torch: str, brings: str, major: str, known: Knowledge
) -> Iterator[Finding]:
    source = known.source("torch_wheels")
    if found["major"] != major:
        why = (
            f"torch {torch} for CUDA {major} installs nvidia-nccl-cu{major}; both wheels write"
            " libnccl.so.2, and the one that is installed last wins"
        )
        yield Finding(
            number,
            "nccl-other-cuda",
            "warning",
            found.group(),
            why,
            f"leave it out, or nvidia-nccl-cu{major}=={found['version']}",
            source,
        )
    elif Version(found["version"]) < Version(brings):
        why = (
            f"torch {torch} is built with NCCL {brings} and may call what {found['version']} does"
            " not have (undefined symbol at import)"
        )
        yield Finding(
            number,
            "nccl-older-than-torch",
            "warning",
            found.group(),
            why,
            f"nvidia-nccl-cu{major}=={brings} or newer, or leave it out",
            source,
        )
