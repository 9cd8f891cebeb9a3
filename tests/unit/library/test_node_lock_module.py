"""The module node_lock on prepared trees, with separate processes where two compete."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import plant

from unhang_node.change.atomic_files import FENCING, LOCK
from unhang_node.change.journal.node_lock import (
    LockRequest,
    NodeLocked,
    free_lock,
    read_lock,
    renew_lock,
    stay_at_work,
    take_lock,
    uptime_s,
    why_stale,
)

BOOT = "/proc/sys/kernel/random/boot_id"
EARLIER_S, LATER_S = 1000, 9000


def lock(folder, run, **more):
    return run_module("node_lock", rootfs=str(folder), run=run, **more)


def wish(run, expires_s=600, across_reboot=False):
    return LockRequest(
        run=run, by="ops@ctl1", expires_s=expires_s, across_reboot=across_reboot, takes_over=""
    )


def boot(folder, boot_id):
    plant(folder, {BOOT: boot_id + "\n"})
    return folder


@pytest.fixture
def as_nobody():
    """A folder that others may read, and a test that runs without root from here on."""
    folder = Path(tempfile.mkdtemp(prefix="unhang-lock-", dir="/tmp"))
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_user_who_may_not_lock_the_node_is_reported_by_the_preview_and_by_the_refusal(as_nobody):
    assert lock(as_nobody, "first", check=True)["needs_root"] is True
    refused = lock(as_nobody, "first")
    assert refused["failed"]
    assert (refused["needs_root"], refused["holder"]) == (True, None)


def test_who_may_lock_the_node_needs_no_root(tmp_path):
    assert lock(tmp_path, "first", check=True)["needs_root"] is False
    assert lock(tmp_path, "first")["needs_root"] is False
    assert lock(tmp_path, "second")["needs_root"] is False
    assert lock(tmp_path, "second", check=True)["needs_root"] is False


def test_the_first_run_has_the_node_and_the_second_is_told_who(tmp_path):
    assert lock(tmp_path, "first", by="ops@ctl1")["acquired"]
    refused = lock(tmp_path, "second")
    assert refused["failed"]
    assert "run first by ops@ctl1 is at work on it since 20" in refused["msg"]
    assert "-e unhang_take_over=first" in refused["msg"]
    assert refused["holder"]["run"] == "first"
    assert read_lock(str(tmp_path))["run"] == "first"


@contextlib.contextmanager
def locked_by_another(path):
    """A process that has this file locked."""
    code = (
        "import fcntl, sys; lock = open(sys.argv[1], 'r+'); fcntl.lockf(lock, fcntl.LOCK_EX);"
        " print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        yield process


@pytest.mark.parametrize(
    ("database", "path"),
    [
        ("/var/lib/dpkg/status", "var/lib/dpkg/lock-frontend"),
        ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/.rpm.lock"),
    ],
)
def test_no_reboot_is_announced_while_another_process_changes_packages(tmp_path, database, path):
    plant(tmp_path, {database: "", "/" + path: ""})
    number = lock(tmp_path, "first")["fencing"]
    with locked_by_another(tmp_path / path) as upgrade:
        refused = lock(tmp_path, "first", fencing=number, across_reboot=True, packages_wait_s=0)
        assert refused["failed"]
        assert f"by /{path} (pid {upgrade.pid}: " in refused["msg"]
        assert not read_lock(str(tmp_path))["across_reboot"]
        assert not lock(tmp_path, "first", fencing=number).get("failed")
    assert not lock(tmp_path, "first", fencing=number, across_reboot=True, packages_wait_s=0).get(
        "failed"
    )
    assert read_lock(str(tmp_path))["across_reboot"]


def test_a_process_that_only_fetches_lists_keeps_no_node_from_its_reboot(tmp_path):
    path = "/var/lib/apt/lists/lock"
    plant(tmp_path, {"/var/lib/dpkg/status": "", path: ""})
    number = lock(tmp_path, "first")["fencing"]
    with locked_by_another(str(tmp_path) + path):
        assert not lock(
            tmp_path, "first", fencing=number, across_reboot=True, packages_wait_s=0
        ).get("failed")


def test_who_gives_the_number_has_it_already_and_it_is_no_error(tmp_path):
    number = lock(tmp_path, "first")["fencing"]
    again = lock(tmp_path, "first", fencing=number)
    assert not again.get("failed")
    assert not again["acquired"]
    assert not again["changed"]
    assert again["fencing"] == number


@pytest.mark.parametrize("fencing", [0, 9])
def test_the_id_of_a_run_alone_opens_nothing_and_frees_nothing(tmp_path, fencing):
    lock(tmp_path, "first")
    refused = lock(tmp_path, "first", fencing=fencing)
    assert refused["failed"]
    assert "run first" in refused["msg"]
    assert not lock(tmp_path, "first", state="free", fencing=fencing)["freed"]
    assert read_lock(str(tmp_path))["run"] == "first"


def test_each_time_that_the_node_is_taken_its_number_goes_up_and_stays_when_it_is_free(tmp_path):
    first = lock(tmp_path, "first")["fencing"]
    second = lock(tmp_path, "first", takes_over="first")
    assert second["acquired"]
    assert second["holder"]["run"] == "first"
    assert second["fencing"] == first + 1
    lock(tmp_path, "first", state="free", fencing=second["fencing"])
    assert lock(tmp_path, "third")["fencing"] == first + 2


def test_a_freed_node_is_as_it_was(tmp_path):
    plant(tmp_path, {"/etc/hostname": "gpu001\n", "/var/lib/": ""})
    before = tree(tmp_path)
    number = lock(tmp_path, "first")["fencing"]
    assert tree(tmp_path) != before
    assert lock(tmp_path, "first", state="free", fencing=number)["freed"]
    assert tree(tmp_path) == before
    assert (tmp_path / FENCING.lstrip("/")).exists()
    assert lock(tmp_path, "second")["acquired"]


def test_a_lock_of_another_run_is_not_freed(tmp_path):
    lock(tmp_path, "first")
    assert not lock(tmp_path, "second", state="free")["freed"]
    assert read_lock(str(tmp_path))["run"] == "first"


def test_check_mode_writes_nothing_and_tells_who_has_the_node(tmp_path):
    before = tree(tmp_path)
    assert lock(tmp_path, "first", check=True)["holder"] is None
    assert tree(tmp_path) == before
    number = lock(tmp_path, "first")["fencing"]
    before = tree(tmp_path)
    assert lock(tmp_path, "second", check=True)["holder"]["run"] == "first"
    assert lock(tmp_path, "first", check=True, state="free", fencing=number)["freed"]
    assert tree(tmp_path) == before


def test_an_expired_lock_is_taken_over_and_it_is_said(tmp_path):
    lock(tmp_path, "first", by="ops@ctl1", expires_s=0)
    taken = lock(tmp_path, "second")
    assert taken["acquired"]
    assert taken["taken_over"]["run"] == "first"
    assert "expired" in taken["taken_over"]["why"]


def test_a_run_that_is_over_gives_its_place_only_by_its_own_name(tmp_path):
    lock(tmp_path, "first")
    assert lock(tmp_path, "second", takes_over="third")["failed"]
    assert lock(tmp_path, "second", takes_over="first")["acquired"]


@pytest.mark.parametrize(("across_reboot", "acquired"), [(False, True), (True, False)])
def test_a_boot_ends_a_lock_unless_its_holder_said_that_it_would_reboot(
    tmp_path, across_reboot, acquired
):
    number = lock(boot(tmp_path, "one"), "first", across_reboot=across_reboot, expires_s=1 << 30)[
        "fencing"
    ]
    answer = lock(boot(tmp_path, "two"), "second")
    assert answer.get("acquired", False) is acquired
    if acquired:
        assert "booted since" in answer["taken_over"]["why"]
    else:
        assert answer["holder"]["run"] == "first"
        assert not lock(tmp_path, "first", fencing=number)["acquired"]
        assert read_lock(str(tmp_path))["boot_id"] == "two"
        assert not read_lock(str(tmp_path))["across_reboot"]


@pytest.mark.parametrize(
    ("changes", "uptime", "stale"),
    [
        ({}, EARLIER_S, False),
        ({}, LATER_S, True),
        ({"boot_id": None}, EARLIER_S, False),
        ({"boot_id": "other"}, EARLIER_S, True),
        ({"boot_id": "other", "across_reboot": True}, EARLIER_S, False),
        ({"boot_id": "other", "across_reboot": True}, LATER_S, True),
        # a clock that was set proves nothing
        ({"expires": "1999-01-01T00:00:00Z"}, EARLIER_S, False),
    ],
)
def test_when_a_lock_is_stale(changes, uptime, stale):
    held = {
        "run": "first",
        "expires": "2026-11-20T08:00:00Z",
        "expires_s": 3600,
        "uptime_s": 900.5,
        "boot_id": "this",
        "across_reboot": False,
        **changes,
    }
    assert (why_stale(held, "this", uptime) is not None) is stale


def test_waiting_ends_when_the_first_lets_go(tmp_path):
    root = str(tmp_path)
    number = take_lock(root, wish("first"), 0).fencing
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(take_lock(root, wish("second"), 120)))
    waiting.start()
    with pytest.raises(NodeLocked):
        take_lock(root, wish("third"), 0)
    free_lock(root, "first", number)
    waiting.join(120)
    assert [answer.acquired for answer in answers] == [True]
    assert read_lock(root)["run"] == "second"


def test_a_sign_of_work_puts_the_expiry_off(tmp_path):
    root = str(tmp_path)
    number = take_lock(root, wish("first"), 0).fencing
    place = tmp_path / LOCK.lstrip("/")
    place.write_text(json.dumps({**json.loads(place.read_text()), "uptime_s": uptime_s() - 7000}))
    renew_lock(root, "another", number)
    renew_lock(root, "first", number + 1)
    assert why_stale(read_lock(root), None, uptime_s())
    renew_lock(root, "first", number)
    assert why_stale(read_lock(root), None, uptime_s()) is None


def test_a_run_that_works_on_after_a_boot_that_it_had_not_announced_keeps_its_lock(tmp_path):
    root = str(boot(tmp_path, "one"))
    number = take_lock(root, wish("first"), 0).fencing
    boot(tmp_path, "two")
    assert "the node has booted since" in why_stale(read_lock(root), "two", uptime_s())
    renew_lock(root, "first", number)
    with pytest.raises(NodeLocked):
        take_lock(root, wish("second"), 0)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"schema": "unhang/lock/1", "expires": "2999-01-01T00:00:00Z"}',
        '{"schema": "unhang/lock/1", "run"',
        "[]",
    ],
)
def test_what_is_no_lock_of_ours_is_not_taken_over(tmp_path, text):
    plant(tmp_path, {LOCK: text})
    answer = lock(tmp_path, "first")
    assert answer["failed"]
    assert "move it away after a look" in answer["msg"]


def test_a_run_that_is_over_is_not_taken_over_while_its_module_is_at_work(tmp_path):
    root = str(tmp_path)
    lock(tmp_path, "first")
    state_id = run_module("saved_state", rootfs=root, state="begun", role="kernel", run="first")[
        "id"
    ]
    folder = f"{root}/var/lib/unhang/states/{state_id}"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    module = context.Process(target=work, args=(folder, theirs), daemon=True)
    module.start()
    assert ours.recv() == "at work"
    refused = lock(tmp_path, "second", takes_over="first")
    assert refused["failed"]
    assert "its last step is still at work on the node" in refused["msg"]
    assert refused["holder"]["run"] == "first"
    ours.send("end")
    module.join(60)
    assert lock(tmp_path, "second", takes_over="first")["acquired"]


def work(folder, pipe):
    """A module that changes the node until a signal ends it."""
    stay_at_work(folder)
    pipe.send("at work")
    pipe.recv()


def test_a_half_written_lock_of_a_killed_run_is_no_lock(tmp_path):
    plant(tmp_path, {LOCK + ".new": '{"run": '})
    assert lock(tmp_path, "first")["acquired"]


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("own_file", {"path": "/etc/x.conf", "lines": ["a"]}),
        ("saved_state", {"state": "begun", "role": "kernel", "run": "first"}),
        ("node_baseline", {"baseline": {"failed": []}}),
        ("state_restore", {"id": "latest"}),
    ],
)
def test_a_module_of_a_run_that_lost_the_node_changes_nothing(tmp_path, module, options):
    old = lock(tmp_path, "first")["fencing"]
    new = lock(tmp_path, "first", takes_over="first")["fencing"]
    before = tree(tmp_path)
    refused = run_module(module, rootfs=str(tmp_path), fencing=old, **options)
    assert refused["failed"]
    assert (
        f"this run's lock (number {old}) is not on the node: the lock there is that of run first by unknown (number {new}"
        in refused["msg"]
    )
    assert tree(tmp_path) == before
    assert not run_module(module, rootfs=str(tmp_path), fencing=new, **options).get("failed")
    lock(tmp_path, "first", state="free", fencing=new)
    assert (
        "the node is free"
        in run_module(module, rootfs=str(tmp_path), fencing=new, **options)["msg"]
    )


def test_what_a_killed_run_was_writing_is_swept_away(tmp_path):
    plant(tmp_path, {"/var/lib/unhang/.unhang-x1y2": "{"})
    assert lock(tmp_path, "first")["acquired"]
    assert not (tmp_path / "var/lib/unhang/.unhang-x1y2").exists()


def test_a_lock_that_finds_no_room_leaves_nothing_of_itself(tmp_path):
    """As on a full /var: writing beyond the first bytes fails."""
    lock(tmp_path, "first", state="free")
    plant(tmp_path, {"/var/lib/unhang/": ""})
    before, (soft, hard) = tree(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        answer = lock(tmp_path, "first")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer["failed"]
    assert "File too large" in answer["msg"]
    assert tree(tmp_path) == before
    assert lock(tmp_path, "first")["acquired"]
