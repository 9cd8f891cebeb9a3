"""Opens the history: migrates its schema, chooses a journal mode that the file system supports, and
reports any fault of the file in one line."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from unhang.audit.history.location import ROLLBACK, SETTING, WRITE_AHEAD, journal_mode
from unhang.audit.history.migrations import STEPS
from unhang.core.errors import UserError
from unhang.core.path_arguments import irregular
from unhang.core.run.run_folder import GROUP_ENV

APPLICATION = 0x756E6867  # "unhg", so that another program's file is never written to
WAIT_S = 30.0  # for another program that writes
# bytes of a text or a packed section; a node's whole document is shorter
LONGEST_VALUE = 16 * 1024 * 1024
# In one statement, because another program may make the file between two: version, application,
# number of tables and of what unhang does not make.
_STATE = """SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id), count(*),
    total(type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%') FROM sqlite_master"""  # noqa: E501
_MODE_BYTE = 18  # of the file's head: 2 when its journal is the write-ahead log


@contextlib.contextmanager
def writing(file: Path, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
    """One transaction, with this program as the only writer; the file is created, or migrated to
    the present schema, if necessary. All changes are stored or none.

    Raises UserError: no folder, no room, another program's file, locked for longer than wait_s,
    damaged.
    """
    with _faults_reported(file, wait_s):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_kind(file)
        _make_private(file)
        with contextlib.closing(_connected(file, wait_s)) as connection:
            _set_journal(connection, journal_mode(file.parent), wait_s)
            connection.execute("BEGIN IMMEDIATE")
            try:
                _migrate(connection, file)
                yield connection
            except BaseException:
                # on a full disk SQLite itself has rolled back
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


@contextlib.contextmanager
def reading(file: Path, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
    """A read-only snapshot of the history; a file with an older schema is migrated first. Raises
    UserError."""
    if not file.exists():
        raise UserError(
            f"expected the history at {file}, found nothing; the next unhang audit makes it, or"
            " name another file: --db FILE"
        )
    _check_kind(file)
    with _faults_reported(file, wait_s):
        with contextlib.closing(_connected(file, wait_s)) as connection:
            version = _version(connection, file)
        if version < len(STEPS):
            with writing(file, wait_s):
                pass
        with contextlib.closing(_connected(file, wait_s)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            _check_values(connection, file)
            yield connection


def _connected(file: Path, wait_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=wait_s, isolation_level=None)
    if (
        _has_write_ahead(file) and journal_mode(file.parent) == ROLLBACK
    ):  # for a file from another machine: otherwise SQLite would need shared memory to open it
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _make_private(file: Path) -> None:
    """A new file is for the user alone, or for the group of UNHANG_GROUP too; SQLite gives its
    other files the same mode. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        if group := os.environ.get(GROUP_ENV):
            shutil.chown(file, group=group)
            file.chmod(0o660)


def _has_write_ahead(file: Path) -> bool:
    with contextlib.suppress(OSError), file.open("rb") as source:
        head = source.read(_MODE_BYTE + 1)
        return len(head) > _MODE_BYTE and head[_MODE_BYTE] == 2
    return False


def _set_journal(connection: sqlite3.Connection, wanted: str, wait_s: float) -> None:
    """Two programs that make the file at once may both fail because it is locked, without waiting:
    the change of the journal mode has no timeout."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {wanted}")
            connection.execute(
                f"PRAGMA synchronous = {'NORMAL' if wanted == WRITE_AHEAD else 'FULL'}"
            )
            return
        except sqlite3.OperationalError as problem:
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _version(connection: sqlite3.Connection, file: Path) -> int:
    """The schema of the file. Raises UserError for another program's file, or one of a newer
    unhang."""
    version, application, tables, programs = connection.execute(_STATE).fetchone()
    if programs:  # unhang makes none; reading one may never end
        raise UserError(
            f"expected unhang's history at {file}, found a database with views or triggers; name"
            f" another file: --db FILE or {SETTING}=FILE"
        )
    if application != APPLICATION and (tables or application or version):
        raise UserError(
            f"expected unhang's history at {file}, found another program's database; name another"
            f" file: --db FILE or {SETTING}=FILE"
        )
    if version > len(STEPS):
        raise UserError(
            f"expected a history of schema {len(STEPS)} or older at {file}, found schema {version}:"
            " a newer unhang has written it; use that one"
        )
    return int(version)


def _check_values(connection: sqlite3.Connection, file: Path) -> None:
    """Any value can stand in any column of an SQLite file. Raises UserError for one of another type
    than unhang writes there."""
    for table, conditions in _conditions().items():
        if connection.execute(
            f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {conditions})"  # noqa: S608
        ).fetchone()[0]:
            raise UserError(
                f"expected unhang's history at {file}, found a value in {table} that unhang does"
                f" not write; name another file: --db FILE or {SETTING}=FILE"
            )


@functools.cache
def _conditions() -> dict[str, str]:
    """Table -> what holds for a row with a value of another type than its column has."""
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript("".join(STEPS))
        names = [
            name for (name,) in empty.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        columns = {name: empty.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    return {
        name: " OR ".join(_condition(*column[1:4]) for column in rows)
        for name, rows in columns.items()
    }


def _condition(column: str, declared: str, is_never_null: int) -> str:
    types = f"'{declared.lower()}'" if is_never_null else f"'{declared.lower()}', 'null'"
    return f"typeof({column}) NOT IN ({types})" + (
        f" OR abs({column}) > 1e300" if declared == "REAL" else ""
    )


def _migrate(connection: sqlite3.Connection, file: Path) -> None:
    """Within the transaction, so that a step that fails leaves the file as it was, and a second
    program finds it done."""
    for number in range(_version(connection, file), len(STEPS)):
        apply_step(connection, number)


def apply_step(connection: sqlite3.Connection, number: int) -> None:
    """From schema `number` to the next one."""
    for statement in STEPS[number].split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {number + 1}")


def _check_kind(file: Path) -> None:
    kind = "a folder" if file.is_dir() else irregular(file)
    if kind:
        raise UserError(
            f"expected unhang's history at {file}, found {kind}; name another file: --db FILE or"
            f" {SETTING}=FILE"
        )


@contextlib.contextmanager
def _faults_reported(file: Path, wait_s: float) -> Iterator[None]:
    """An error of SQLite or the system as one line, with what to do."""
    try:
        yield
    except sqlite3.Error as problem:
        raise UserError(_line(file, problem, wait_s)) from None
    except OSError as problem:
        raise UserError(
            f"{problem.filename or file} cannot be written: {problem.strerror}; name another file:"
            f" --db FILE or {SETTING}=FILE"
        ) from None


def _line(file: Path, problem: sqlite3.Error, wait_s: float) -> str:
    name = str(getattr(problem, "sqlite_errorname", "") or "")
    elsewhere = f"name another file: --db FILE or {SETTING}=FILE"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return (
            f"the history at {file} is locked by another program, which was waited for {wait_s:g}"
            f" s; see who has it open: fuser {file}"
        )
    if name.startswith("SQLITE_FULL"):
        return f"there is no room for the history at {file}; free some, or {elsewhere}"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return (
            f"expected unhang's history at {file}, found a file that SQLite cannot read"
            f" ({problem}); move it away, and the next run begins a new one"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return f"the history at {file} cannot be written or opened ({problem}); {elsewhere}"
    return f"the history at {file} cannot be used ({problem}); {elsewhere}"
