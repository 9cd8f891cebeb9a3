"""How the nodes of a run were read, where not all of them were read alike: a file beside run.json,
and its lines in the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.run_folder import read_object, write_document
from unhang.core.text import visible

FILE, SCHEMA = "read-by.json", "unhang/read-by/1"
MOST_WAYS, LONGEST_HOW = 1000, 300


@dataclass(frozen=True)
class ReadBy:
    """how: the way, and why it was taken where another was asked for; hosts: that were read so, or
    not read at all."""

    how: str
    hosts: tuple[str, ...]


def write_read_by(run: Path, rows: Sequence[ReadBy]) -> None:
    """Adds these rows to what the file says of other hosts. Raises OSError."""
    new = {host for row in rows for host in row.hosts}
    before = [
        ReadBy(row.how, tuple(host for host in row.hosts if host not in new))
        for row in read_by_of(run)
    ]
    ways: dict[str, list[str]] = {}
    for row in (*before, *rows):
        ways.setdefault(row.how, []).extend(row.hosts)
    kept = [{"how": how, "hosts": hosts} for how, hosts in ways.items() if hosts]
    write_document(run / FILE, {"schema": SCHEMA, "ways": kept[:MOST_WAYS]})


def read_by_of(run: Path) -> list[ReadBy]:
    """[] for a run without the file, or with one that cannot be read: a report is useful without
    it."""
    try:
        document = read_object(run / FILE, "how nodes were read")
    except UserError:
        return []
    ways = document.get("ways")
    rows = ways if document.get("schema") == SCHEMA and isinstance(ways, list) else []
    return [
        ReadBy(row["how"][:LONGEST_HOW], tuple(row["hosts"]))
        for row in rows[:MOST_WAYS]
        if _is_row(row)
    ]


def _is_row(row: Any) -> bool:
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("how"), str)
        or not isinstance(row.get("hosts"), list)
    ):
        return False
    return all(isinstance(host, str) for host in row["hosts"])


def read_by_line(rows: Iterable[ReadBy], longest: int) -> str:
    """`gpu[001-008] by srun in job 12; gpu009 by ssh: Slurm has it down`; "" for none. longest:
    characters of the hosts of one way."""
    return "; ".join(
        f"{shortened(fold_hosts(row.hosts), longest)} {visible(row.how, LONGEST_HOW)}"
        for row in rows
    )
