"""The collector lies on a node by its hash where only its user can write, goes there once, and is
checked before each start."""

from __future__ import annotations

import concurrent.futures
import hashlib
import shlex
import subprocess
import sys

import pytest

from unhang.audit.ways.starter import (
    BEGUN_LINE,
    KEPT,
    SENT,
    STARTER,
    WANTED,
    WANTED_LINE,
    start_command,
)

COLLECTOR = b"import sys; print('collected', sys.argv[1:], sys.flags.isolated)"
NAME = hashlib.sha256(COLLECTOR).hexdigest()
BEGUN = f"{BEGUN_LINE}\n".encode()


@pytest.fixture
def start(tmp_path):
    """how, bytes on standard input -> the finished starter of a user whose home is
    tmp_path/home."""
    (tmp_path / "home").mkdir(exist_ok=True)
    home = (
        "import pwd, types; pwd.getpwuid = lambda uid:"
        f" types.SimpleNamespace(pw_dir={str(tmp_path / 'home')!r})\n"
    )

    def run(how, data=b"", name=NAME, umask=0o022):
        argv = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import os; os.umask({umask})\n{home}{STARTER}",
            name,
            how,
            "--silence-s=2",
        ]
        return subprocess.run(argv, input=data, capture_output=True, timeout=60, check=False)

    return run


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "home" / ".cache" / "unhang" / f"collect-{NAME}.pyz"


def test_it_is_sent_once_and_then_started_from_where_it_lies(start, kept):
    asked = start(KEPT)
    assert (asked.returncode, asked.stdout.decode().split()) == (WANTED, [BEGUN_LINE, WANTED_LINE])
    for how, data in ((SENT, COLLECTOR), (KEPT, b""), (KEPT, b"")):
        done = start(how, data)
        assert (done.returncode, done.stdout) == (
            0,
            BEGUN + b"collected ['--silence-s=2'] 1\n",
        ), done.stderr
    assert [kept.parent.stat().st_mode & 0o777, kept.stat().st_mode & 0o777] == [0o700, 0o600]


def test_one_that_was_changed_is_not_started(start, kept):
    start(SENT, COLLECTOR)
    kept.write_bytes(COLLECTOR + b"; print('planted')")
    assert start(KEPT).returncode == WANTED
    assert start(SENT, COLLECTOR).stdout == BEGUN + b"collected ['--silence-s=2'] 1\n"
    assert kept.read_bytes() == COLLECTOR


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_one_that_others_may_write_is_not_started(start, kept, mode):
    start(SENT, COLLECTOR)
    kept.chmod(mode)
    assert start(KEPT).returncode == WANTED


def test_a_link_is_not_followed(start, kept, tmp_path):
    start(SENT, COLLECTOR)
    (tmp_path / "elsewhere").write_bytes(COLLECTOR)
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere")
    assert start(KEPT).returncode == WANTED
    assert start(SENT, COLLECTOR).returncode == 0
    assert not kept.is_symlink()


def test_a_folder_that_others_may_write_is_refused(start, kept):
    kept.parent.mkdir(parents=True)
    kept.parent.chmod(0o770)
    done = start(SENT, COLLECTOR)
    assert (done.returncode, done.stdout) == (1, BEGUN)
    assert b"must be a folder that only its user can write" in done.stderr
    assert list(kept.parent.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_it_creates_is_private_whatever_the_umask(start, kept, umask):
    assert start(SENT, COLLECTOR, umask=umask).returncode == 0
    assert [one.stat().st_mode & 0o777 for one in (kept.parent.parent, kept.parent, kept)] == [
        0o700,
        0o700,
        0o600,
    ]
    assert start(KEPT, umask=umask).returncode == 0


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1777])
def test_the_users_own_folder_of_caches_keeps_its_mode(start, kept, mode):
    kept.parent.parent.mkdir()
    kept.parent.parent.chmod(mode)
    assert start(SENT, COLLECTOR).returncode == 0
    assert [kept.parent.parent.stat().st_mode & 0o7777, kept.parent.stat().st_mode & 0o777] == [
        mode,
        0o700,
    ]


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_where_others_may_write_into_the_folder_of_caches_it_lies_elsewhere(start, kept, mode):
    """They could put another folder in the place of one in it, between the check and the start."""
    kept.parent.parent.mkdir()
    kept.parent.parent.chmod(mode)
    assert start(SENT, COLLECTOR).returncode == start(KEPT).returncode == 0
    own = kept.parents[2] / ".unhang"
    assert [one.stat().st_mode & 0o777 for one in (kept.parent.parent, own, own / kept.name)] == [
        mode,
        0o700,
        0o600,
    ]
    assert list(kept.parent.parent.iterdir()) == []


def test_in_a_home_that_others_may_write_it_lies_nowhere(start, kept):
    home = kept.parents[2]
    home.chmod(0o777)
    done = start(SENT, COLLECTOR)
    assert (done.returncode, done.stdout) == (1, BEGUN)
    assert f"{home} must be a folder that only its user can write" in done.stderr.decode()
    assert list(home.iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(start, kept, tmp_path):
    kept.parent.parent.mkdir(parents=True)
    (tmp_path / "theirs").mkdir(mode=0o700)
    kept.parent.symlink_to(tmp_path / "theirs")
    assert b"must be a folder that only its user can write" in start(SENT, COLLECTOR).stderr
    assert list((tmp_path / "theirs").iterdir()) == []


def test_other_bytes_than_the_hash_are_neither_kept_nor_started(start, kept):
    done = start(SENT, COLLECTOR[:-1])
    assert (done.returncode, done.stdout) == (1, BEGUN)
    assert b"the bytes are not those" in done.stderr
    assert list(kept.parent.iterdir()) == []


def test_a_newer_one_takes_the_place_of_the_older(start, kept):
    start(SENT, COLLECTOR)
    newer = COLLECTOR + b"\n"
    assert start(SENT, newer, hashlib.sha256(newer).hexdigest()).returncode == 0
    assert not kept.exists()
    assert len(list(kept.parent.iterdir())) == 1


def test_a_value_of_the_inventory_is_a_word_for_the_nodes_shell(tmp_path):
    said = tmp_path / "said"
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(said))}\n')
    script.chmod(0o755)
    options = {"rootfs": ["/a; touch /tmp/no", "$(id) 'x'"]}
    subprocess.run(
        ["/bin/sh", "-c", start_command(str(script), ["env"], NAME, KEPT, options)],
        check=True,
        timeout=60,
    )
    assert said.read_text().splitlines()[-2:] == [
        "--rootfs=/a; touch /tmp/no",
        "--rootfs=$(id) 'x'",
    ]


@pytest.mark.slow
def test_nodes_that_share_a_home_may_keep_it_at_the_same_time(start, kept):
    with concurrent.futures.ThreadPoolExecutor(8) as several:
        done = list(several.map(lambda _: start(SENT, COLLECTOR), range(24)))
    assert {(one.returncode, one.stdout) for one in done} == {
        (0, BEGUN + b"collected ['--silence-s=2'] 1\n")
    }, [one.stderr for one in done]
    assert kept.read_bytes() == COLLECTOR
