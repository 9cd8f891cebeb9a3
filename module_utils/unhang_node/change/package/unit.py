"""Runs the package manager in a systemd unit of its own, so that a lost connection, or an Ansible that was killed, does not end dpkg half way.

The unit has one fixed name: systemd itself lets no second one start beside it. Where no systemd runs it is a session of its own.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Callable, Sequence, Tuple

from ...process import ENVIRONMENT, run_process, start_apart
from ..config.masking import mask_urls
from ..files import STATE_FOLDER, place_of, read_text_or_none
from .programs import QUIET
from .values import Locked

UNIT = "unhang-packages.service"
WORK = STATE_FOLDER + "/packages"
PAUSE_S = 0.3
ASK_S = 60  # a systemd that is busy answers late
LOOK_EVERY_S = 5.0
# $0 is the work folder; the code is written last and whole, so that it proves that the end was reached.
WRAPPER = 'cd / && "$@" >>"$0/log" 2>&1 </dev/null; echo $? >"$0/code.new"; mv "$0/code.new" "$0/code"'
KILLED = 137
UNWRITTEN = 1  # the file system was so full that the code's file came to be, and stayed empty


class StillAtWork(ValueError):
    """The package manager has not ended in the time given; it goes on."""


def has_systemd() -> bool:
    """True where systemd is the init that runs."""
    return os.path.isdir("/run/systemd/system") and shutil.which("systemd-run") is not None


def is_at_work() -> bool:
    """True while an earlier call's unit runs."""
    if not has_systemd():
        return False
    result = run_process(["systemctl", "is-active", "--quiet", UNIT], ASK_S)
    if result.timed_out:
        raise TimeoutError(110, f"no answer within {ASK_S} s", f"systemctl is-active {UNIT}")
    return result.code == 0


def wait_for_earlier(timeout_s: float) -> str:
    """ "" when none was at work, else how long we waited. Raises Locked when it still is."""
    began = time.monotonic()
    while is_at_work():
        waited_s = time.monotonic() - began
        if waited_s >= timeout_s:
            raise Locked(f"expected an earlier change of packages to end within {timeout_s:g} s, found it still at work; see systemctl status {UNIT}")
        time.sleep(PAUSE_S)
    waited_s = time.monotonic() - began
    return f"waited {waited_s:.0f} s for an earlier change of packages ({UNIT})" if waited_s > PAUSE_S else ""


def run_apart(rootfs: str, commands: Sequence[Sequence[str]], deadline_s: float, folder: str = "") -> Tuple[int, str]:
    """(exit code, what was printed) of commands run one after the other until one fails. Raises StillAtWork, OSError.

    folder: of a saved state, a path of the node: it counts as being worked on until the command ends (node_lock.stay_at_work).
    """
    work = place_of(rootfs, WORK)
    os.makedirs(work, mode=0o700, exist_ok=True)
    for name in ("log", "code"):
        if os.path.lexists(os.path.join(work, name)):
            os.unlink(os.path.join(work, name))
    until = time.monotonic() + deadline_s
    code = 0
    for command in commands:
        # --close: what a package starts must not keep it.
        kept = ["flock", "--shared", "--close", place_of(rootfs, folder)] if folder else []
        code = _run_one(work, [*kept, *command], until, deadline_s)
        if code:
            break
    return code, read_log(rootfs)


def _run_one(work: str, command: Sequence[str], until: float, deadline_s: float) -> int:
    argv = ["/bin/sh", "-c", WRAPPER, work, *command]
    ended = _start_unit(argv) if has_systemd() else start_apart(argv, QUIET)
    code = _await_code(os.path.join(work, "code"), ended, until, deadline_s)
    while not ended() and time.monotonic() < until:  # the next command's unit has the same name
        time.sleep(PAUSE_S)
    return code


def _start_unit(argv: Sequence[str]) -> Callable[[], bool]:
    """Starts argv in the unit; gives whether it has ended. Raises OSError with what systemd-run printed."""
    settings = [f"--setenv={name}={value}" for name, value in sorted(dict(ENVIRONMENT, **QUIET).items())]
    start = ["systemd-run", "--quiet", "--collect", "--unit=" + UNIT, "--description=unhang changes packages", "--property=KillMode=mixed"]
    result = run_process([*start, *settings, "--", *argv], ASK_S, merged=True)
    if result.code != 0:
        reason = f"no answer within {ASK_S} s" if result.timed_out else result.last_words[-300:]
        raise OSError(5, "systemd-run: " + reason, UNIT)
    return lambda: not is_at_work()


def _await_code(place: str, ended: Callable[[], bool], until: float, deadline_s: float) -> int:
    """The code that the wrapper wrote; KILLED where it ended without writing one, UNWRITTEN where it could not write it."""
    look_at = time.monotonic() + LOOK_EVERY_S
    while True:
        text = read_text_or_none(place)
        if text is not None:
            os.unlink(place)
            return int(text) if text.strip() else UNWRITTEN
        now = time.monotonic()
        if now >= look_at:
            if ended() and not os.path.exists(place):
                return KILLED
            look_at = now + LOOK_EVERY_S
        if now >= until:
            found = f"found it still at work; it goes on, see systemctl status {UNIT}"
            raise StillAtWork(f"expected the package manager to end within {deadline_s:g} s, {found}")
        time.sleep(PAUSE_S)


def read_log(rootfs: str) -> str:
    """What the last run printed, its end when it is long; what stands before the host of a URL is masked."""
    try:
        with open(os.path.join(place_of(rootfs, WORK), "log"), "rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - 262144))
            return mask_urls(source.read().decode("utf-8", "replace"))
    except FileNotFoundError:
        return ""
