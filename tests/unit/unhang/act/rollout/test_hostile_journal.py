"""A run folder of somebody else whose journal or lock is a link, a pipe or a device: no other file
changes, and nothing is waited for or read without end."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from unhang.act.rollout import journal
from unhang.act.rollout.journal import (
    JOURNAL,
    LOCK,
    JournalReader,
    append,
    begin,
    controllers_of_a_lost_journal,
    read_journal,
)
from unhang.act.rollout.steps import BEGUN, Entry
from unhang.core.errors import UserError
from unhang.core.run.private_file import open_private, read_regular

AT = "2026-11-20T07:00:00Z"
FIRST = Entry(AT, "gpu001", "lock", BEGUN, 0, {})
NAMES = (JOURNAL, LOCK)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device takes root")


def endpoint(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


ODD = [
    (link, "a symbolic link"),
    (os.mkfifo, "a pipe"),
    (device, "a device"),
    (endpoint, "a socket"),
    (os.mkdir, "a folder"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [None, b"", b"1\n", b"my own file\n"])
def test_a_link_changes_no_file_of_the_operator(tmp_path, name, content):
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    if content is not None:
        precious.write_bytes(content)
    (run / name).symlink_to(precious)
    with pytest.raises(
        UserError,
        match=rf"{run / name} is a symbolic link, not a regular file; .*; next: ",
    ):
        begin(run, AT, {})
    with pytest.raises(UserError, match="is a symbolic link"):
        append(run, 0, FIRST)
    assert (precious.read_bytes() if precious.exists() else None) == content


@pytest.mark.parametrize("name", NAMES)
def test_a_second_name_of_an_operators_file_changes_nothing(tmp_path, name):
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    precious.write_bytes(b"")
    os.link(precious, run / name)
    with pytest.raises(UserError, match="has 2 names, and must be a file under this name alone"):
        begin(run, AT, {})
    assert precious.read_bytes() == b""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("make", "kind"), ODD)
def test_what_is_no_file_is_refused_at_once(tmp_path, name, make, kind):
    make(tmp_path / name)
    with pytest.raises(UserError, match=f"{tmp_path / name} is {kind}, not a regular file"):
        begin(tmp_path, AT, {})
    with pytest.raises(UserError, match=f"is {kind}"):
        read_journal(tmp_path) if name == JOURNAL else controllers_of_a_lost_journal(tmp_path)
    if name == JOURNAL:
        with pytest.raises(UserError, match=f"is {kind}"):
            JournalReader(tmp_path).news()


def test_a_journal_of_another_user_is_not_continued(tmp_path, monkeypatch):
    begin(tmp_path, AT, {})
    owner = os.stat(tmp_path / LOCK).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        if os.getuid():
            pytest.skip("giving a file away takes root")
        os.chown(tmp_path / LOCK, 4321, -1)
    with pytest.raises(
        UserError,
        match=rf"{tmp_path / LOCK} belongs to user .*, and must belong to user {owner + 1} or to root",
    ):
        append(tmp_path, 1, FIRST)


@pytest.mark.slow
def test_a_journal_that_is_too_large_is_not_read(tmp_path):
    begin(tmp_path, AT, {})
    follower = JournalReader(tmp_path)
    assert len(follower.news()) == 1
    with (tmp_path / JOURNAL).open("r+b") as source:
        source.truncate(journal.MOST_BYTES + 1)  # a file with a hole: it takes no room
    with pytest.raises(UserError, match=f"is larger than {journal.MOST_BYTES} bytes"):
        follower.news()


def test_a_part_of_a_file_is_read_up_to_the_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "file", 10) == b"0123456789"
    assert read_regular(tmp_path / "file", 10, 7) == b"789"
    assert read_regular(tmp_path / "file", 10, 12) == b""
    with pytest.raises(UserError, match="larger than 9 bytes"):
        read_regular(tmp_path / "file", 9, 7)


def test_other_errors_are_those_of_the_system(tmp_path):
    with pytest.raises(OSError, match="No such file") as problem:
        open_private(tmp_path / "none" / "file", os.O_RDWR)
    assert problem.value.errno == errno.ENOENT
