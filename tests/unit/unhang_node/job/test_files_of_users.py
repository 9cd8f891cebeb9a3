"""Root looks at jobs of real other users: what a descriptor, a link, a variable or a path of theirs
leads to is opened with their rights alone."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.base.section import Denied
from unhang_node.job.look import OPTIONS, look
from unhang_node.job.owners import CAP_SYS_PTRACE, Process, own, read_as_owners
from unhang_node.job.process_table import stat_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users, which needs root")
NOBODY, OTHER, GROUP = 65534, 12345, 23456
SECRET = "root:$y$j9T$nobody-may-read-this"
STAND = "open({ready!r}, 'w').close()\nwhile True: time.sleep(600)"


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may enter, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="unhang-users-"))
    made.chmod(0o755)
    (made / "closed").mkdir(mode=0o700)
    (made / "secret").write_text(SECRET)
    (made / "secret").chmod(0o600)
    (made / "theirs").mkdir()
    os.chown(made / "theirs", NOBODY, -1)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def rank_of(
    folder: Path,
    code: str = "",
    uid: int = NOBODY,
    groups: tuple[int, ...] = (),
    stdout: int = subprocess.DEVNULL,
    **settings: str,
):
    """A process of a user that says that it is a rank, once its code has run."""
    ready = folder / "theirs" / f"ready-{time.monotonic_ns()}"
    text = f"import ctypes, os, time\n{code}\n" + STAND.format(
        ready=str(ready) if "chroot" not in code else f"/theirs/{ready.name}"
    )
    settings = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": f"users-{ready.name}",
        "HOME": "/nowhere",
        **settings,
    }
    argv = ["/usr/bin/python3", "-c", text]
    os.chown(ready.parent, uid, -1)
    with subprocess.Popen(
        argv,
        env=settings,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        user=uid,
        group=uid,
        extra_groups=groups,
    ) as process:
        try:
            until = time.monotonic() + 60
            while not ready.exists():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def looked(process, *sources: str) -> tuple[dict, str]:
    """(section log_tail or the first of the sources, the whole document as text)."""
    wanted = sources or ("log_tail",)
    without = [
        name
        for name in ("nvml", "ras", "proc", "stacks", "sockets", "log_tail", "kernel_log", "locks")
        if name not in wanted
    ]
    document = look({"pids": [process.pid], "without": without}, None)
    assert [row["pid"] for row in document["ranks"]] == [process.pid]
    return document["sections"][wanted[0]], json.dumps(document)


def test_a_file_that_a_user_may_not_read_is_not_read_through_a_descriptor_with_o_path(folder):
    with rank_of(folder, f"os.dup2(os.open({str(folder / 'secret')!r}, os.O_PATH), 1)") as process:
        section, text = looked(process)
    assert SECRET not in text
    assert ("denied", True) in {
        (row["status"], "O_PATH" in row["reason"]) for row in section["probe"]["unread"]
    }


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR])
def test_the_right_to_write_a_file_is_none_to_read_it(folder, flags):
    """As root gives it to a service's standard output."""
    descriptor = os.open(folder / "secret", flags | os.O_APPEND)
    try:
        with rank_of(folder, stdout=descriptor) as process:
            section, text = looked(process)
    finally:
        os.close(descriptor)
    assert SECRET not in text and section["logs"] == []
    assert [
        row["status"] for row in section["probe"]["unread"] if "Permission denied" in row["reason"]
    ] == ["denied"]


def test_the_log_of_a_user_is_read_with_the_groups_of_the_process(folder):
    log = folder / "train.log"
    log.write_text("step 1\n")
    os.chown(log, 0, GROUP)
    log.chmod(0o640)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        with rank_of(folder, stdout=descriptor, uid=OTHER, groups=(GROUP,)) as process:
            assert [(row["path"], row["lines"]) for row in looked(process)[0]["logs"]] == [
                (str(log), ["step 1"])
            ]
        with rank_of(folder, stdout=descriptor, uid=OTHER) as process:
            assert looked(process)[0]["logs"] == []
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "planted",
    [
        "os.symlink({secret!r}, {name!r})",
        "os.mkfifo({name!r})",
        "open({name!r}, 'w').write('another file')",
    ],
)
def test_what_is_planted_where_the_log_is_said_to_lie_is_not_read(folder, planted):
    """The kernel adds a word to the name of a file that was unlinked: a user can give another file
    that name."""
    log, name = str(folder / "theirs" / "train.log"), str(folder / "theirs" / "train.log (deleted)")
    code = (
        f"os.dup2(os.open({log!r}, os.O_WRONLY | os.O_CREAT), 1)\nos.link({log!r},"
        f" {log + '2'!r})\nos.unlink({log!r})\n"
    )
    with rank_of(
        folder, code + planted.format(secret=str(folder / "secret"), name=name)
    ) as process:
        section, text = looked(process)
    assert SECRET not in text and section["logs"] == []
    assert [row for row in section["probe"]["unread"] if row["field"].startswith("logs")]
    assert section["probe"]["status"] == "ok"


def test_a_cache_and_a_dump_behind_a_folder_that_is_closed_to_the_user_are_not_read(folder):
    """The user owns them and cannot reach them; root can."""
    for name in ("cache", "dumps"):
        (folder / "closed" / name).mkdir()
        os.chown(folder / "closed" / name, NOBODY, -1)
    (folder / "closed" / "cache" / "secret_build").mkdir()
    (folder / "closed" / "cache" / "secret_build" / "build.ninja").write_text("")
    settings = {
        "TORCH_EXTENSIONS_DIR": str(folder / "closed" / "cache"),
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "closed" / "dumps" / "fr_"),
    }
    code = "ctypes.CDLL('libm.so.6')"
    with rank_of(folder, code, **settings) as process:
        dump = folder / "closed" / "dumps" / "fr_0"
        dump.write_bytes(
            pickle.dumps({"entries": [{"collective_seq_id": 77, "profiling_name": "secret_name"}]})
        )
        os.chown(dump, NOBODY, -1)
        section, text = looked(process, "locks")
        ranks = [{**looked_row(process), "framework": "torch", "settings": settings}]
        flights = pieces_of("flights", ranks)
    assert "secret_build" not in text and "secret_name" not in json.dumps(flights)
    assert [row["status"] for row in section["probe"]["unread"]] == ["denied"]
    assert ["Permission" in row["reason"] for _, _, unread, *_ in flights for row in unread] == [
        True
    ]


def looked_row(process) -> dict:
    return {
        "pid": process.pid,
        "rank": 0,
        "started": stat_of(Root(), process.pid).started,
        "user": "nobody",
        "own_pid": process.pid,
    }


def pieces_of(source: str, ranks: list[dict]) -> list:
    from unhang_node.job import flights, stacks

    read = {"flights": flights.read_flights, "stacks": stacks.read_stacks}[source]
    return list(
        read(
            Context(
                Root(),
                {**OPTIONS, "ranks": ranks, "gap_s": 0.1, "py_spy": os.environ.get("SPY")},
                (),
                None,
            )
        )
    )


def test_the_dump_and_the_log_of_a_rank_are_read_where_its_own_root_folder_has_them(folder):
    """Links inside its tree lead to its tree: absolute ones too."""
    theirs = folder / "theirs"
    (theirs / "real").mkdir()
    (theirs / "dumps").symlink_to("/theirs/real")
    log = theirs / "train.log"
    code = (
        f"os.dup2(os.open({str(log)!r}, os.O_WRONLY | os.O_CREAT, 0o644), 1); os.write(1, b'step"
        " 7')\n"
    )
    code += (
        f"os.chroot({str(folder)!r}); os.chdir('/'); os.setgroups([]); os.setresgid({OTHER},"
        f" {OTHER}, {OTHER}); os.setresuid({OTHER}, {OTHER}, {OTHER})"
    )
    for path in (theirs, theirs / "real"):
        path.chmod(0o777)
    with rank_of(folder, code, uid=0) as process:
        dump = theirs / "real" / "fr_0"
        dump.write_bytes(pickle.dumps({"entries": [{"collective_seq_id": 77}]}))
        os.chown(dump, OTHER, -1)
        logs = looked(process)[0]["logs"]
        found = pieces_of(
            "flights",
            [
                {
                    **looked_row(process),
                    "framework": "torch",
                    "settings": {"TORCH_FR_DUMP_TEMP_FILE": "/theirs/dumps/fr_"},
                }
            ],
        )
    assert [(row["path"], row["lines"]) for row in logs] == [("/theirs/train.log", ["step 7"])]
    assert [one["path"] for _, fields, *_ in found for one in fields["flights"]] == [
        "/theirs/real/fr_0"
    ]


def test_a_container_s_root_without_capabilities_reads_no_file_of_others(folder):
    """It is user 0 as this node has it, and may less than root."""
    mine = folder / "of-another"
    mine.write_text(SECRET)
    mine.chmod(0o600)
    os.chown(mine, OTHER, OTHER)
    code = f"os.dup2(os.open({str(mine)!r}, os.O_WRONLY | os.O_APPEND), 1)\n"
    code += (
        "import struct\nlibc = ctypes.CDLL(None)\nlibc.capset(struct.pack('=Ii', 0x20080522, 0),"
        " bytes(24))"
    )
    with rank_of(folder, code, uid=0) as process:
        section, text = looked(process)
    assert SECRET not in text
    assert [
        row["status"] for row in section["probe"]["unread"] if "Permission denied" in row["reason"]
    ] == ["denied"]


def test_a_program_with_the_rights_of_its_file_is_denied(folder):
    """The set-user-ID program is root's by now, and its descriptors and variables are still the
    user's."""
    program = folder / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    with subprocess.Popen(
        [program, "600"],
        env={"RANK": "0", "WORLD_SIZE": "1"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
    ) as process:
        try:
            until = time.monotonic() + 60
            while stat_of(Root(), process.pid).command != "sleep" and time.monotonic() < until:
                time.sleep(0.02)
            with (
                Process(process.pid, stat_of(Root(), process.pid).started) as held,
                pytest.raises(Denied, match="other rights than its user's"),
            ):
                held.owner()
        finally:
            process.kill()


def test_a_process_that_got_the_number_of_a_rank_is_not_read(folder):
    with rank_of(folder) as process, pytest.raises(Denied, match="another process now"):
        Process(process.pid, stat_of(Root(), process.pid).started - 1)


def rights(_ctx, _view, _pids):
    status = Path("/proc/self/status").read_text()
    rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # root's while no process of the user may trace this one
    hidden = os.stat("/proc/self/mem").st_uid
    yield (
        {
            "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
            "caps": int(rows["CapPrm"], 16),
            "bound": int(rows["CapAmb"], 16),
            "hidden": hidden,
        },
        [],
    )


def test_the_child_has_the_rights_of_the_user_alone_and_the_user_cannot_look_into_it(folder):
    with rank_of(folder, uid=OTHER, groups=(GROUP, 4)) as process:
        wanted = {process.pid: stat_of(Root(), process.pid).started}
        context = Context(Root(), OPTIONS, (), None)
        [(plain, _)] = list(read_as_owners(context, wanted, rights, "test", 20))
        [(tracer, _)] = list(read_as_owners(context, wanted, rights, "test", 20, CAP_SYS_PTRACE))
    assert plain == {"ids": [OTHER] * 6 + [4, GROUP], "caps": 0, "bound": 0, "hidden": 0}
    assert tracer == {**plain, "caps": 1 << CAP_SYS_PTRACE, "bound": 1 << CAP_SYS_PTRACE}
    assert own().uid == 0


def test_one_owner_that_stops_the_child_delays_no_other(folder):
    """A user may stop and kill the processes that have become his."""

    def slow_for_nobody(_ctx, view, pids):
        if view.uid == NOBODY:
            time.sleep(600)
        yield {"pids": pids}, []

    with rank_of(folder) as stopped, rank_of(folder, uid=OTHER) as process:
        wanted = {one.pid: stat_of(Root(), one.pid).started for one in (stopped, process)}
        found = list(
            read_as_owners(Context(Root(), OPTIONS, (), None), wanted, slow_for_nobody, "test", 1.5)
        )
    assert [fields["pids"] for fields, _ in found if fields] == [[process.pid]]
    assert [(row["field"], row["status"]) for _, unread in found for row in unread] == [
        (f"test[{stopped.pid}]", "timeout")
    ]


def test_py_spy_runs_as_the_user_of_the_rank_and_reads_its_stack(folder, monkeypatch):
    """It opens the files that the process has mapped, by their names."""
    spy = folder / "py-spy"
    spy.write_text('#!/bin/sh\nid=$(id -u)\nsecret=$(cat ' + str(folder / "secret") + ' 2>/dev/null)\n'
                   'echo "[{\\"thread_id\\": 1, \\"thread_name\\": \\"MainThread\\", \\"active\\": true, \\"owns_gil\\": true, \\"frames\\": '
                   '[{\\"name\\": \\"uid$id$secret\\", \\"filename\\": \\"a.py\\", \\"line\\": 1}]}]"\n')  # fmt: skip
    spy.chmod(0o755)
    monkeypatch.setenv("SPY", str(spy))
    with rank_of(folder) as process:
        rows = [
            row
            for _, fields, *_ in pieces_of("stacks", [looked_row(process)])
            for row in fields.get("processes", [])
        ]
    assert [row["way"] for row in rows] == ["py-spy"]
    assert rows[0]["threads"][0]["frames"] == [f"uid{NOBODY} (a.py:1)"]


def test_the_real_py_spy_reads_another_user_s_process(folder, monkeypatch):
    spy = shutil.which("py-spy", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    if not spy:
        pytest.skip("no py-spy")
    monkeypatch.setenv("SPY", spy)
    with rank_of(folder) as process:
        pieces = pieces_of("stacks", [looked_row(process)])
    rows = [row for _, fields, *_ in pieces for row in fields.get("processes", [])]
    assert [row["way"] for row in rows] == ["py-spy"], [unread for _, _, unread, *_ in pieces]
