"""The rows of nvidia-smi --query-gpu, by the names of their columns."""

from __future__ import annotations

import re

from unhang.jobs.diagnose.matching.scanning import Event

LONGEST = 400  # of the signature's rows
_NUMBER = re.compile(r"(\d{1,9})(?:\.\d{1,9})?(?: ?(?:%|W|MiB))?")


def queried_rows(event: Event) -> list[dict[str, str]]:
    """The rows of a query, each as name of the column: value."""
    names = [name.split("[")[0].strip() for name in (event.fields["names"] or "").split(",")]
    text = event.fields["rows"] or ""
    lines = text.splitlines()[: -1 if len(text) >= LONGEST else None]  # the last one may be cut
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def number_in(cell: str | None) -> int:
    """16 for "16", 100 for "100 %", 71 for "71.20 W"; 0 for what is no number."""
    found = _NUMBER.fullmatch((cell or "").strip())
    return int(found[1]) if found else 0
