"""The history of somebody else: whatever text or number stands in any of its columns, the commands
end in a known way, and a terminal shows it as text."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import zlib

import pytest
from run_folders import Fleet, facts, finding

from unhang import cli
from unhang.audit.history.recording import record

MARK = "mark"
HOSTILE = f"\x1b[31m{MARK}\r\nunhang: healthy \u202e"
TABLES = {
    "runs": (
        "id",
        "folder",
        "started",
        "finished",
        "inventory",
        "host_limit",
        "stored",
        "judged",
        "policy",
        "critical",
        "error",
        "unread",
        "healthy",
    ),
    "hosts": ("name",),
    "visits": ("status",),
    "contents": ("body",),
    "facts": ("section",),
    "rules": ("name", "title"),
    "problems": ("severity", "verdict", "scope", "place", "waiver"),
    "findings": ("found", "ended"),
    "bandwidth": ("op", "size_bytes", "world_size", "busbw_gb_s"),
}
COLUMNS = [(table, column) for table, columns in TABLES.items() for column in columns]
VALUES = {
    "text": HOSTILE,
    "json": f'{{"{MARK} \\u001b[31m": ["\\u001b[31m{MARK}\\n"], "until": "2026-11-21", "by": 7}}',
    "bytes": b"\x1b[31m\xff",
    "packed": zlib.compress(
        f'{{"x\\u001b[31m": "\\u001b[31m{MARK}", "probe": 7, "loaded": [[]]}}'.encode()
    ),
    "packed without end": zlib.compress(b"[" * 50_000_000),
    "number": 7,
    "infinity": float("inf"),
    "nothing": None,
    "long": "x" * 20_000,
}
TABLE_OF = (("runs",), ("diff",), ("history",), ("history", "bad"), ("history", "gpu1"))
COMMANDS = [
    *TABLE_OF,
    *((name, "-o", form) for name in ("diff", "history") for form in ("csv", "json", "name")),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A history of two runs that has rows in each table."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(folder)
    fleets = [
        fleet.run({"gpu1": facts(), "gpu2": facts()}, [finding("bad", "gpu1")]),
        fleet.run(
            {"gpu1": facts("580"), "gpu2": facts()},
            [finding("worse", "gpu1"), finding("bad", "gpu2", where={"path": "x", "gpu": 1})],
        ),
    ]
    for run in fleets:
        record(run, folder / "history.db")
    with contextlib.closing(sqlite3.connect(folder / "history.db")) as connection, connection:
        waiver = '{"reason": "known", "by": "ops", "until": "2026-11-21"}'
        connection.execute(
            "UPDATE problems SET verdict = 'waived', waiver = ? WHERE id = (SELECT max(id) FROM"
            " problems)",
            (waiver,),
        )
        for run in (1, 2):
            connection.execute(
                "INSERT INTO bandwidth SELECT id, 'all_reduce', 1024, 8, ?, 100.0 FROM hosts WHERE"
                " name = 'gpu1'",
                (run,),
            )
    return folder / "history.db"


@pytest.fixture
def changed(whole, tmp_path):
    """Puts a value into a column of the last row of a table of a copy."""

    def change(table, column, value):
        file = tmp_path / "foreign.db"
        shutil.copy(whole, file)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            for row in (
                connection.execute(f"SELECT rowid FROM {table}")
                if table not in ("visits", "bandwidth")
                else [None]
            ):
                # a second equal one, or none where there must be one
                with contextlib.suppress(sqlite3.IntegrityError):
                    connection.execute(
                        f"UPDATE {table} SET {column} = ?" + (" WHERE rowid = ?" if row else ""),
                        (value, *(row or ())),
                    )
        return file

    return change


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[".".join(one) for one in COLUMNS])
def test_nothing_in_it_acts_on_a_terminal_or_is_a_fault_of_unhang(
    changed, capsys, table, column, value
):
    file = changed(table, column, value)
    for command in COMMANDS:
        code = cli.main([*command, "--db", str(file)])
        out, errors = capsys.readouterr()
        assert code in (0, 1, 2), command
        assert "a fault of unhang itself" not in errors, (command, errors)
        assert len(errors) < 10_000
        assert (out + errors).replace("\n", "").isprintable(), command
        assert not [
            line for line in (out + errors).splitlines() if line.startswith("unhang: healthy")
        ], command
