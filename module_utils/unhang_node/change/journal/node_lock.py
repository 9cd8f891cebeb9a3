"""One run at a time on a node: a lock that names its run, outlives a lost connection, and is taken over only when its holder cannot be at work any more.

A flock on the folder serialises those who look; the lock itself is a file, for it has to stand between the calls of one run.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import json
import os
import time
from collections import namedtuple

from ..files import STATE_FOLDER, place_of, read_text_or_none

LOCK = STATE_FOLDER + "/lock.json"
STATES = STATE_FOLDER + "/states"
SCHEMA = "unhang/lock/1"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
GUARD_DEADLINE_S = 60
PAUSE_S = 0.5

Wish = namedtuple("Wish", "run by expires_s across_reboot takes_over")
Taken = namedtuple("Taken", "acquired holder taken_over")


class NodeLocked(Exception):
    """Another run has the node. holder: what its lock says."""

    def __init__(self, holder, waited_s, at_work=False):
        super().__init__(_refusal(holder, waited_s, at_work))
        self.holder = holder


def utc_text(seconds):
    """Seconds since the epoch as 2026-11-20T07:00:00Z."""
    return time.strftime(TIME_FORM, time.gmtime(seconds))


def utc_seconds(text):
    """The other way round. Raises ValueError."""
    return calendar.timegm(time.strptime(text, TIME_FORM))


def read_boot_id(rootfs):
    """Id of this boot, None where the tree has none."""
    with contextlib.suppress(OSError):
        # Not read_text_or_none: files of /proc say that they are empty.
        with open(place_of(rootfs, BOOT_ID), encoding="ascii") as source:
            return source.read().strip() or None
    return None


def read_lock(rootfs):
    """What the lock says, None when the node is free. Raises OSError, ValueError when the file is no lock of ours."""
    text = read_text_or_none(place_of(rootfs, LOCK))
    if text is None:
        return None
    try:
        lock = json.loads(text)
        utc_seconds(lock["expires"])
    except (ValueError, KeyError, TypeError):
        lock = None
    if not isinstance(lock, dict) or lock.get("schema") != SCHEMA:
        raise ValueError("{}: expected a lock of unhang, found something else; move it away after a look".format(LOCK))
    return lock


def why_stale(lock, boot_id, now):
    """Why the holder cannot be at work any more, None when it may be. Pure."""
    if utc_seconds(lock["expires"]) <= now:
        return "it expired at {}".format(lock["expires"])
    if lock.get("boot_id") and boot_id and lock["boot_id"] != boot_id and not lock.get("across_reboot"):
        return "the node has booted since, and its holder had not said that it would reboot it"
    return None


def take_lock(rootfs, wish, wait_s, check=False):
    """Taken: acquired is False when the same run had it already (it is renewed then) or in check mode. Raises NodeLocked, OSError, ValueError."""
    if check:
        return Taken(False, read_lock(rootfs), None)
    until = time.monotonic() + wait_s
    while True:
        with _guard(rootfs):
            lock, now = read_lock(rootfs), time.time()
            taken = _take_if_free(rootfs, wish, lock, now)
        if taken:
            return taken
        if time.monotonic() >= until:
            raise NodeLocked(lock, wait_s, is_at_work(rootfs))
        time.sleep(PAUSE_S)


def free_lock(rootfs, run, check=False):
    """True when this run's lock was (or would be) taken off; a lock of another run stays. Raises OSError, ValueError."""
    if check or not os.path.isdir(place_of(rootfs, STATE_FOLDER)):
        lock = read_lock(rootfs)
        return bool(lock and lock["run"] == run)
    with _guard(rootfs):
        lock = read_lock(rootfs)
        mine = bool(lock and lock["run"] == run)
        if mine:
            os.unlink(place_of(rootfs, LOCK))
        remove_if_empty(rootfs)
    return mine


def renew_lock(rootfs, run):
    """Puts the expiry of this run's lock off, as a sign that it is at work; nothing when it has none. Raises OSError, ValueError."""
    if not os.path.isdir(place_of(rootfs, STATE_FOLDER)):
        return
    with _guard(rootfs):
        lock = read_lock(rootfs)
        if lock and lock["run"] == run:
            _write_lock(rootfs, dict(lock, expires=utc_text(time.time() + lock["expires_s"])))


def stay_at_work(folder):
    """Says that this process changes what the state in `folder` undoes, until the process ends: a module outlives the controller that started it.

    The descriptor is left open on purpose. It ends with the process, however that ends, and is not inherited.
    """
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)


def is_at_work(rootfs):
    """True while a module of any run is changing the node, whether or not its controller lives."""
    try:
        names = os.listdir(place_of(rootfs, STATES))
    except (FileNotFoundError, NotADirectoryError):
        return False
    for name in names:
        try:
            descriptor = os.open(place_of(rootfs, "{}/{}".format(STATES, name)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def remove_if_empty(rootfs):
    """Folders of ours that hold nothing: a run that changed nothing leaves nothing."""
    for path in (STATES, STATE_FOLDER):
        with contextlib.suppress(OSError):
            os.rmdir(place_of(rootfs, path))


def _take_if_free(rootfs, wish, lock, now):
    boot_id = read_boot_id(rootfs)
    mine = {
        "schema": SCHEMA, "run": wish.run, "by": wish.by, "since": utc_text(now), "expires": utc_text(now + wish.expires_s),
        "expires_s": wish.expires_s, "boot_id": boot_id, "across_reboot": wish.across_reboot,
    }  # fmt: skip
    if lock is None:
        _write_lock(rootfs, mine)
        return Taken(True, mine, None)
    if lock["run"] == wish.run:
        mine["since"] = lock["since"]
        _write_lock(rootfs, mine)
        return Taken(False, mine, None)
    stale = "its run was said to be over" if wish.takes_over == lock["run"] else why_stale(lock, boot_id, now)
    if stale is None or is_at_work(rootfs):
        return None
    _write_lock(rootfs, mine)
    return Taken(True, mine, dict(lock, why=stale))


@contextlib.contextmanager
def _guard(rootfs):
    """Nobody else looks at the lock meanwhile. The folder is made when it is missing, and may be removed by who frees the lock while we wait."""
    place = place_of(rootfs, STATE_FOLDER)
    until = time.monotonic() + GUARD_DEADLINE_S
    while True:
        os.makedirs(place, mode=0o755, exist_ok=True)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            _flock(descriptor, until, place)
            if _is_still(place, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _flock(descriptor, until, place):
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(110, "another process has had it locked for {} s".format(GUARD_DEADLINE_S), place) from None
            time.sleep(0.05)


def _is_still(place, descriptor):
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_lock(rootfs, lock):
    place = place_of(rootfs, LOCK)
    beside = place + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)  # of a run that was killed here
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(json.dumps(lock, indent=1, sort_keys=True) + "\n")
        target.flush()
        os.fsync(descriptor)
    os.rename(beside, place)


def _refusal(holder, waited_s, at_work):
    waited = " after {:g} s".format(waited_s) if waited_s else ""
    found = "expected the node free{}, found run {} by {} at work on it since {}; ".format(waited, holder["run"], holder["by"], holder["since"])
    if at_work:
        return found + "its last step is still at work on the node, so wait for it even if the controller is gone"
    way = "wait for it (its lock expires at {}), or when that run is over for sure, go on in its place with -e unhang_run={}"
    return found + way.format(holder["expires"], holder["run"])
