"""One run at a time on a node: a lock that names its run, outlives a lost connection, and is taken
over only when its holder can no longer be working.

The lock itself is a file, because it has to last between the calls of one run; a flock on its
folder serializes access to that file. Each lock gets the next number of the counter `fencing`, and
every module that changes the node passes the number of its run: if another run has taken the node,
the number is higher and the module stops. The age of a lock is measured by the uptime, because the
wall clock may be set.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...base.parse.values import parse_json
from ..atomic_files import (
    FENCING,
    LOCK,
    STATE_FOLDER,
    STATES,
    place_of,
    read_own_json,
    read_text_or_none,
    sweep_unfinished,
    write_text,
)

SCHEMA = "unhang/lock/1"
FENCING_SCHEMA = "unhang/fencing/1"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
GUARD_DEADLINE_S = 60
PAUSE_S = 0.5
TEXTS = ("run", "by", "since", "expires")  # fields of a lock that describe its holder


class LockRequest(NamedTuple):
    """The request of a run. fencing: the number of its earlier lock, 0 for none."""

    run: str
    by: str = "unknown"
    controller: Mapping[str, Any] | None = None  # the process and machine that run it
    expires_s: int = 14400
    across_reboot: bool = False
    takes_over: str = ""
    fencing: int = 0


class LockResult(NamedTuple):
    """The result. acquired is False if the run already had the lock; fencing is the number for
    every module that changes the node, 0 in check mode."""

    acquired: bool
    holder: dict[str, Any] | None
    taken_over: dict[str, Any] | None
    fencing: int


class NodeLocked(Exception):
    """Another run has locked the node. holder: the content of its lock."""

    def __init__(self, holder: dict[str, Any], waited_s: float, at_work: bool = False) -> None:
        super().__init__(_refusal(holder, waited_s, at_work))
        self.holder = holder


class Overtaken(ValueError):
    """Another run has taken the node from this one. The text is one line for a person."""


def utc_text(seconds: float) -> str:
    """Seconds since the epoch as 2026-11-20T07:00:00Z."""
    return time.strftime(TIME_FORM, time.gmtime(seconds))


def read_boot_id(rootfs: str) -> str | None:
    """Id of this boot, None where the tree has none."""
    with contextlib.suppress(OSError):
        # Not read_text_or_none, because files of /proc report size 0.
        with open(place_of(rootfs, BOOT_ID), encoding="ascii") as source:
            return source.read().strip() or None
    return None


def uptime_s() -> float:
    """Seconds since the boot, including suspended time. Nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_lock(rootfs: str) -> dict[str, Any] | None:
    """The content of the lock; None if the node is not locked. Raises OSError, and ValueError if
    the file is not a lock of unhang's."""
    text = read_text_or_none(place_of(rootfs, LOCK))
    if text is None:
        return None
    try:
        lock = parse_json(text)
    except ValueError:
        lock = None
    if not _is_lock(lock):
        wanted = f"a lock of unhang ({SCHEMA} with {', '.join(TEXTS)})"
        raise ValueError(f"{LOCK} does not hold {wanted}; move it away after a look")
    return {"expires_s": 14400, "fencing": 0, **lock}


def _is_lock(lock: Any) -> bool:
    if (
        not isinstance(lock, dict)
        or lock.get("schema") != SCHEMA
        or not all(isinstance(lock.get(name), str) and lock[name] for name in TEXTS)
    ):
        return False
    return all(
        isinstance(lock.get(name, 0), (int, float)) for name in ("expires_s", "fencing", "uptime_s")
    )


def why_stale(lock: Mapping[str, Any], boot_id: str | None, uptime: float) -> str | None:
    """The reason why the holder can no longer be working, None if it may be. uptime: of the node
    now, in seconds. Pure."""
    is_this_boot = not (lock.get("boot_id") and boot_id and lock["boot_id"] != boot_id)
    if not is_this_boot and not lock.get("across_reboot"):
        return "the node has booted since, and its holder had not announced a reboot"
    # A lock from an earlier boot is at least as old as this boot; more is not known.
    age = (
        uptime - lock["uptime_s"]
        if is_this_boot and "uptime_s" in lock
        else uptime
        if not is_this_boot
        else 0
    )
    if age >= lock["expires_s"]:
        return f"it expired, {lock['expires_s']:g} s after the last sign of work"
    return None


def may_lock(rootfs: str) -> bool:
    """Whether the present user may write unhang's folder, or make it."""
    folder = place_of(rootfs, STATE_FOLDER)
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def take_lock(rootfs: str, request: LockRequest, wait_s: float, check: bool = False) -> LockResult:
    """LockResult. A caller with the number of the current lock already has it, and renews it.
    Raises NodeLocked, OSError, ValueError."""
    if check:
        return LockResult(acquired=False, holder=read_lock(rootfs), taken_over=None, fencing=0)
    until = time.monotonic() + wait_s
    while True:
        with _guard(rootfs):
            lock = read_lock(rootfs)
            taken = _take_if_free(rootfs, request, lock)
        if taken:
            return taken
        if time.monotonic() >= until:
            raise NodeLocked(lock or {}, wait_s, is_at_work(rootfs))
        time.sleep(PAUSE_S)


def free_lock(rootfs: str, run: str, fencing: int, check: bool = False) -> bool:
    """True if this run's lock with this number was (or would be) removed; any other lock stays.
    Raises OSError, ValueError."""
    if check or not os.path.isdir(place_of(rootfs, STATE_FOLDER)):
        return _is_ours(read_lock(rootfs), run, fencing)
    with _guard(rootfs):
        mine = _is_ours(read_lock(rootfs), run, fencing)
        if mine:
            os.unlink(place_of(rootfs, LOCK))
        remove_if_empty(rootfs)
    return mine


def _is_ours(lock: Mapping[str, Any] | None, run: str, fencing: int) -> bool:
    return bool(lock and lock["run"] == run and lock["fencing"] == fencing)


def renew_lock(rootfs: str, run: str, fencing: int) -> None:
    """Extends this run's lock in the present boot, as a sign that it still works; does nothing if
    it has none. Raises OSError, ValueError."""
    if not os.path.isdir(place_of(rootfs, STATE_FOLDER)):
        return
    with _guard(rootfs):
        lock = read_lock(rootfs)
        if lock and _is_ours(lock, run, fencing):
            now = {"boot_id": read_boot_id(rootfs), "uptime_s": uptime_s()}
            _write_lock(
                rootfs, dict(lock, expires=utc_text(time.time() + lock["expires_s"]), **now)
            )


def demand_lock(rootfs: str, fencing: int) -> None:
    """Raises Overtaken unless the current lock has this number. 0 is not checked: a module that is
    called on its own has no run."""
    if not fencing:
        return
    lock = read_lock(rootfs)
    if lock is not None and lock["fencing"] == fencing:
        return
    found = (
        f"the lock there is that of run {lock['run']} by {lock['by']} (number {lock['fencing']},"
        " since"
        f" {lock['since']})"
        if lock
        else "the node is free"
    )
    raise Overtaken(
        f"this run's lock (number {fencing}) is not on the node: {found}: another run took the"
        " node; this step changed nothing"
    )


def start_work(rootfs: str, state_id: str, fencing: int) -> None:
    """Called by a module before it changes anything: checks that its run has the lock, and keeps
    the lock until this process ends. Raises Overtaken, OSError, ValueError."""
    if not fencing:
        return
    with _guard(rootfs):  # under the guard no other run can take the lock between the two calls
        demand_lock(rootfs, fencing)
        folder = place_of(rootfs, f"{STATES}/{state_id}")
        if state_id and os.path.isdir(folder):
            stay_at_work(folder)


def stay_at_work(folder: str) -> None:
    """Marks the state in `folder` as in use until this process ends, because a module may outlive
    the controller that started it. The descriptor stays open on purpose: the kernel closes it when
    the process ends, in whatever way, and it is not inherited."""
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)


def is_at_work(rootfs: str) -> bool:
    """True while a module of any run is changing the node, even if its controller has died."""
    try:
        names = os.listdir(place_of(rootfs, STATES))
    except (FileNotFoundError, NotADirectoryError):
        return False
    for name in names:
        try:
            descriptor = os.open(
                place_of(rootfs, f"{STATES}/{name}"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def remove_if_empty(rootfs: str) -> None:
    """Removes unhang's empty folders, so that a run without changes leaves nothing."""
    for path in (STATES, STATE_FOLDER):
        with contextlib.suppress(OSError):
            os.rmdir(place_of(rootfs, path))


def _take_if_free(
    rootfs: str, request: LockRequest, lock: dict[str, Any] | None
) -> LockResult | None:
    if lock is not None and request.fencing and _is_ours(lock, request.run, request.fencing):
        renewed = {**_new_lock(rootfs, request, request.fencing), "since": lock["since"]}
        _write_lock(rootfs, renewed)
        return LockResult(acquired=False, holder=renewed, taken_over=None, fencing=request.fencing)
    taken_over = None
    if lock is not None:
        stale = (
            "an operator declared its run over"
            if request.takes_over == lock["run"]
            else why_stale(lock, read_boot_id(rootfs), uptime_s())
        )
        if stale is None or is_at_work(rootfs):
            return None
        taken_over = dict(lock, why=stale)
    mine = _new_lock(rootfs, request, _next_fencing(rootfs, lock))
    _write_lock(rootfs, mine)
    return LockResult(acquired=True, holder=mine, taken_over=taken_over, fencing=mine["fencing"])


def _new_lock(rootfs: str, request: LockRequest, fencing: int) -> dict[str, Any]:
    now = time.time()
    return {
        "schema": SCHEMA, "run": request.run, "by": request.by,
        "controller": dict(request.controller or {}), "since": utc_text(now),
        "expires": utc_text(now + request.expires_s), "expires_s": request.expires_s,
        "boot_id": read_boot_id(rootfs), "uptime_s": uptime_s(),
        "across_reboot": request.across_reboot, "fencing": fencing,
    }  # fmt: skip


def _next_fencing(rootfs: str, lock: Mapping[str, Any] | None) -> int:
    """The next number. The node stores it even when it is not locked, so that no number is used
    twice."""
    sweep_unfinished(rootfs)
    saved = read_own_json(rootfs, FENCING, FENCING_SCHEMA) or {}
    last = saved.get("last", 0)
    if not isinstance(last, int):
        raise ValueError(
            f"{FENCING} must hold a number, and holds {last!r}; move it away after a look"
        )
    number = 1 + max(last, int(lock["fencing"]) if lock else 0)
    write_text(
        place_of(rootfs, FENCING),
        json.dumps({"schema": FENCING_SCHEMA, "last": number}) + "\n",
        0o600,
    )
    return number


@contextlib.contextmanager
def _guard(rootfs: str) -> Iterator[None]:
    """Exclusive access to the lock file. Creates its folder, which a run that unlocks the node may
    remove while this one waits."""
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


def _flock(descriptor: int, until: float, place: str) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(
                    110, f"another process has had it locked for {GUARD_DEADLINE_S} s", place
                ) from None
            time.sleep(0.05)


def _is_still(place: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_lock(rootfs: str, lock: Mapping[str, Any]) -> None:
    write_text(place_of(rootfs, LOCK), json.dumps(lock, indent=1, sort_keys=True) + "\n", 0o600)


def _refusal(holder: Mapping[str, Any], waited_s: float, at_work: bool) -> str:
    waited = f" after {waited_s:g} s" if waited_s else ""
    found = (
        f"the node is not free{waited}: run {holder['run']} by {holder['by']} is at work on it"
        f" since {holder['since']}; "
    )
    if at_work:
        return (
            found
            + "its last step is still at work on the node, so wait for it even if the controller is"
            " gone"
        )
    wait = f"wait for it (its lock expires at {holder['expires']})"
    return (
        f"{found}{wait}, or when that run is over for sure, take it over with -e"
        f" unhang_take_over={holder['run']}"
    )
