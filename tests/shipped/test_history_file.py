"""The history's file: every older schema, two writers at once, and every fault of the file."""

from __future__ import annotations

import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from run_folders import Fleet, facts, finding

from unhang.audit.history.changes import changes_between
from unhang.audit.history.database import APPLICATION, apply_step, reading, writing
from unhang.audit.history.location import (
    ROLLBACK,
    WRITE_AHEAD,
    database_file,
    file_system,
    journal_mode,
)
from unhang.audit.history.migrations import STEPS
from unhang.audit.history.recording import keep_run, record
from unhang.audit.history.run_rows import run_rows
from unhang.core.errors import UserError


@pytest.fixture
def fleet(tmp_path):
    """A maker of runs."""
    return Fleet(tmp_path)


@pytest.fixture
def db(tmp_path):
    """A file that is not there yet."""
    return tmp_path / "state" / "history.db"


def older(db, version):
    """A file of schema `version`, with a run in it that met one node."""
    db.parent.mkdir(parents=True)
    with closing(sqlite3.connect(db)) as connection:
        for number in range(version):
            apply_step(connection, number)
        if version:
            connection.execute(
                "INSERT INTO runs (id, folder, started, stored) VALUES ('old', '/runs/old',"
                " '2026-01-01T00:00:00Z', '')"
            )
            connection.execute("INSERT INTO hosts (name) VALUES ('a')")
            connection.execute("INSERT INTO visits VALUES (1, 1, 'ok')")
        connection.commit()


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_a_file_of_every_schema_is_brought_to_the_present_one_and_keeps_what_it_held(
    fleet, db, version
):
    older(db, version)
    assert record(fleet.run({"a": facts()}, [finding("bad", "a")], smoke={"a": 400.0}), db)
    with reading(db) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        assert [row.id for row in run_rows(connection)][:-1] == (["old"] if version else [])
        assert connection.execute("SELECT count(*) FROM bandwidth").fetchone() == (1,)
    if version:
        with reading(db) as connection:
            assert [one.rule for one in changes_between(connection, 1, 2).findings] == ["bad"]


@pytest.mark.parametrize("version", range(1, len(STEPS)))
def test_reading_an_older_file_brings_it_up_too(db, version):
    older(db, version)
    with reading(db) as connection:
        assert [row.id for row in run_rows(connection)] == ["old"]


@pytest.mark.parametrize("statement", range(8))
def test_a_file_that_another_program_makes_while_it_is_read_is_the_history(
    db, monkeypatch, statement
):
    db.parent.mkdir()
    db.touch()
    connect, begun = sqlite3.connect, []

    def traced(*arguments, **keywords):
        connection = connect(*arguments, **keywords)
        connection.set_trace_callback(
            lambda text: begun.append(text) or (len(begun) == statement + 1 and made_by_another())
        )
        return connection

    def made_by_another():
        with closing(connect(db)) as another:
            another.execute("BEGIN IMMEDIATE")
            for number in range(len(STEPS)):
                apply_step(another, number)
            another.commit()

    monkeypatch.setattr(sqlite3, "connect", traced)
    with reading(db) as connection:
        assert run_rows(connection) == []
    assert len(begun) > statement


def test_migrated_and_new_files_have_the_same_schema(fleet, db, tmp_path):
    older(db, 1)
    record(fleet.run({"a": facts()}), db)
    record(fleet.run({"a": facts()}), tmp_path / "new.db")
    schemas = []
    for file in (db, tmp_path / "new.db"):
        with closing(sqlite3.connect(file)) as connection:
            schemas.append(
                connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
            )
    assert schemas[0] == schemas[1]


def test_a_step_that_fails_leaves_the_file_as_it_was(db):
    older(db, 1)
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("CREATE TABLE bandwidth (x)")
        connection.commit()
    with pytest.raises(UserError, match="cannot be used"), writing(db):
        pass
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'findings'"
        ).fetchone() == (0,)


def test_a_locked_file_is_one_line_and_costs_nothing(fleet, db):
    record(fleet.run({"a": facts()}), db)
    with closing(sqlite3.connect(db)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            UserError,
            match=r"is locked by another program, which was waited for 0\.1 s; see who has it open",
        ) as shown:
            record(fleet.run({"a": facts()}), db, wait_s=0.1)
    assert "\n" not in str(shown.value)


@pytest.mark.parametrize(
    "content",
    [b"rubbish" * 1000, b"SQLite format 3\0" + b"\xff" * 5000],
    ids=["no-database", "damaged"],
)
def test_a_damaged_file_is_one_line_and_is_left_alone(fleet, db, content):
    db.parent.mkdir()
    db.write_bytes(content)
    line = keep_run(fleet.run({"a": facts()}), str(db))
    assert (
        "found a file that SQLite cannot read" in line
        and "move it away" in line
        and "\n" not in line
    )
    assert db.read_bytes() == content


def test_damage_inside_is_one_line(fleet, db):
    record(fleet.run({f"n{number}": facts(str(number)) for number in range(60)}), db)
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    whole = db.read_bytes()
    db.write_bytes(whole[:8192] + b"\x00\xff" * ((len(whole) - 8192) // 2))
    line = keep_run(fleet.run({f"n{number}": facts("2") for number in range(60)}, []), str(db))
    assert "this run is not kept in the history: " in line and "\n" not in line


def test_a_full_disk_is_one_line_and_keeps_the_runs_before(fleet, db):
    record(fleet.run({"a": facts()}), db)
    big = fleet.run({f"n{number}": facts(str(number)) for number in range(300)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (db.stat().st_size + 10_000, before[1]))
    try:
        line = keep_run(big, str(db))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (
        line.startswith("this run is not kept in the history: ")
        and str(db) in line
        and "\n" not in line
    )
    with reading(db) as connection:
        assert len(run_rows(connection)) == 1
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_no_room_within_the_file_is_said_as_such(db):
    with (
        pytest.raises(UserError, match="there is no room for the history"),
        writing(db) as connection,
    ):
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        connection.execute("INSERT INTO contents (digest, body) VALUES (x'00', zeroblob(1000000))")


def test_a_folder_that_cannot_be_written_is_one_line(fleet, tmp_path):
    (tmp_path / "file").write_text("")
    line = keep_run(fleet.run({"a": facts()}), str(tmp_path / "file" / "below" / "history.db"))
    assert "cannot be written: Not a directory" in line and "UNHANG_HISTORY=FILE" in line


def test_another_programs_database_is_not_touched(fleet, tmp_path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.commit()
    assert "found another program's database" in keep_run(fleet.run({"a": facts()}), str(other))
    with closing(sqlite3.connect(other)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_a_file_of_a_newer_unhang_is_not_touched(fleet, db):
    record(fleet.run({"a": facts()}), db)
    with closing(sqlite3.connect(db)) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
        connection.commit()
    assert "a newer unhang has written it" in keep_run(fleet.run({"a": facts()}), str(db))


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_refused_before_anything_waits_for_it(fleet, tmp_path, kind):
    place = tmp_path / "place"
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    assert f"found a {kind}" in keep_run(fleet.run({"a": facts()}), str(place))


def test_a_fault_of_the_history_itself_costs_no_run(fleet, db):
    folder = fleet.run({"a": facts()})
    (folder / "findings.json").write_text("[]")
    assert "expected the findings of the run" in keep_run(folder, str(db))
    (folder / "findings.json").unlink()
    (folder / "run.json").write_text("{}")
    assert keep_run(folder, str(db)).startswith("this run is not kept in the history: ")


def test_off_is_one_line(fleet, monkeypatch):
    monkeypatch.setenv("UNHANG_HISTORY", "off")
    assert (
        keep_run(fleet.run({"a": facts()}))
        == "UNHANG_HISTORY=off: this run is not kept in the history"
    )


def test_where_the_history_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert database_file(None, {"XDG_STATE_HOME": "/state"}) == Path("/state/unhang/history.db")
    assert database_file(None, {"XDG_STATE_HOME": "relative"}) == Path(
        "/home/ada/.local/state/unhang/history.db"
    )
    assert database_file("x.db", {"UNHANG_HISTORY": "off"}) == Path.cwd() / "x.db"
    assert database_file(None, {"UNHANG_HISTORY": "/other.db", "XDG_STATE_HOME": "/state"}) == Path(
        "/other.db"
    )
    assert database_file(None, {"UNHANG_HISTORY": "off"}) is None


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:40 / /home rw - nfs4 server:/home rw
24 23 8:2 / /home/scratch rw - xfs /dev/sdb rw
25 22 0:41 / /lustre rw - lustre mgs@tcp:/fs rw
26 22 0:42 / /odd rw - something.new x rw
27 22 0:43 / /over rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "journal"),
    [("/root", "ext4", WRITE_AHEAD), ("/home/ada", "nfs4", ROLLBACK), ("/home/scratch/ada", "xfs",
    WRITE_AHEAD), ("/lustre/ada", "lustre", ROLLBACK),
     ("/odd", "something.new", ROLLBACK), ("/over", "overlay", ROLLBACK)],
)  # fmt: skip
def test_only_a_file_system_known_to_be_local_gets_the_write_ahead_log(
    tmp_path, folder, kind, journal
):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert (file_system(Path(folder), table), journal_mode(Path(folder), table)) == (kind, journal)
    assert journal_mode(Path(folder), tmp_path / "none") == ROLLBACK


@pytest.mark.parametrize("wanted", [WRITE_AHEAD, ROLLBACK])
def test_the_journal_is_the_one_that_the_file_system_bears(fleet, db, monkeypatch, wanted):
    record(fleet.run({"a": facts()}), db)
    monkeypatch.setattr("unhang.audit.history.database.journal_mode", lambda folder: wanted)
    record(fleet.run({"a": facts("1")}), db)
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (wanted,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    with reading(db) as connection:
        assert len(run_rows(connection)) == 2


def test_the_folder_is_the_callers_alone(fleet, db):
    record(fleet.run({"a": facts()}), db)
    assert db.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in db.parent.iterdir() if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize(
    "planted",
    [
        (
            "CREATE VIEW runs2 AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
            " SELECT x FROM n"
        ),
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END",
    ],
)
def test_a_history_with_programs_in_it_is_not_read(fleet, db, planted):
    """A view of that name is what a reader would wait for, for ever."""
    with writing(db):
        pass
    with closing(sqlite3.connect(db)) as connection:
        connection.execute(planted)
        connection.commit()
    with pytest.raises(UserError, match="found a database with views or triggers"), reading(db):
        pass
