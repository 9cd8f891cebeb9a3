"""Runs the package manager in a systemd unit of its own, so that dpkg is not interrupted when the
connection is lost or Ansible is killed.

The unit has a fixed name, so that systemd refuses to start a second one. Without systemd the
command gets a session of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Callable, Sequence, Tuple

from ...base.process import ENVIRONMENT, run_process, start_apart
from ..atomic_files import STATE_FOLDER, place_of, read_text_or_none
from ..config.masking import mask_urls
from .programs import QUIET
from .values import Locked

UNIT = "unhang-packages.service"
WORK = STATE_FOLDER + "/packages"
PAUSE_S = 0.3
ASK_S = 60  # a busy systemd answers late
LOOK_EVERY_S = 5.0
# $0 is the work folder. The exit code is written last and in one step, so the file proves that the
# command has ended.
WRAPPER = (
    'cd / && "$@" >>"$0/log" 2>&1 </dev/null; echo $? >"$0/code.new"; mv "$0/code.new" "$0/code"'
)
KILLED = 137
SCRIPT = re.compile(r"/var/lib/dpkg/(info/[^/\s]+\.|tmp\.ci/)(pre|post)(inst|rm)$")
UNWRITTEN = 1  # the file system was full: the file for the exit code was created and stayed empty


class StillAtWork(ValueError):
    """The package manager has not ended within its deadline; it continues."""


def has_systemd() -> bool:
    """True when systemd is the init of this machine."""
    return os.path.isdir("/run/systemd/system") and shutil.which("systemd-run") is not None


def is_at_work() -> bool:
    """True while the unit of an earlier call runs."""
    if not has_systemd():
        return False
    result = run_process(["systemctl", "is-active", "--quiet", UNIT], ASK_S)
    if result.timed_out:
        raise TimeoutError(110, f"no answer within {ASK_S} s", f"systemctl is-active {UNIT}")
    return result.code == 0


def wait_for_earlier(timeout_s: float) -> str:
    """ "" if no earlier change was running, else the time waited. Raises Locked if it still
    runs."""
    began = time.monotonic()
    while is_at_work():
        waited_s = time.monotonic() - began
        if waited_s >= timeout_s:
            raise Locked(
                f"an earlier change of packages is still at work after {timeout_s:g} s; see"
                f" systemctl status {UNIT}"
            )
        time.sleep(PAUSE_S)
    waited_s = time.monotonic() - began
    return (
        f"waited {waited_s:.0f} s for an earlier change of packages ({UNIT})"
        if waited_s > PAUSE_S
        else ""
    )


def run_apart(
    rootfs: str, commands: Sequence[Sequence[str]], deadline_s: float, folder: str = ""
) -> Tuple[int, str]:
    """(exit code, output) of commands, run one after the other until one fails. Raises StillAtWork,
    OSError.

    folder: of a saved state, a path of the node: it is marked as in use until the command ends (as
    by node_lock.stay_at_work).
    """
    work = place_of(rootfs, WORK)
    os.makedirs(work, mode=0o700, exist_ok=True)
    for name in ("log", "code"):
        if os.path.lexists(os.path.join(work, name)):
            os.unlink(os.path.join(work, name))
    until = time.monotonic() + deadline_s
    code = 0
    for command in commands:
        # --close: a program that a package starts must not inherit the lock.
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
    """Starts argv in the unit; each call of the result returns whether it has ended. Raises OSError
    with systemd-run's output."""
    settings = [
        f"--setenv={name}={value}" for name, value in sorted(dict(ENVIRONMENT, **QUIET).items())
    ]
    start = [
        "systemd-run",
        "--quiet",
        "--collect",
        "--unit=" + UNIT,
        "--description=unhang changes packages",
        "--property=KillMode=mixed",
    ]
    result = run_process([*start, *settings, "--", *argv], ASK_S, merged=True)
    if result.code != 0:
        reason = f"no answer within {ASK_S} s" if result.timed_out else result.last_words[-300:]
        raise OSError(5, "systemd-run: " + reason, UNIT)
    return lambda: not is_at_work()


def maintainer_script() -> str:
    """The script of a package that dpkg runs now, with its process; "" if it runs none. Only
    processes of this user count, for anybody can have such a command line."""
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as source:
                words = source.read(4096).decode("utf-8", "replace").split("\0")
            is_ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
        except OSError:  # it has ended
            continue
        found = [word for word in words[:2] if is_ours and SCRIPT.search(word)]
        if found:
            return f"{os.path.basename(found[0])} (pid {pid})"
    return ""


def _await_code(place: str, ended: Callable[[], bool], until: float, deadline_s: float) -> int:
    """The exit code that the wrapper wrote; KILLED if it ended without writing one, UNWRITTEN if it
    could not write it."""
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
            script = maintainer_script()
            found = f"{f'{script} of a package' if script else 'it'} is still at work"
            raise StillAtWork(
                f"the package manager has not ended within {deadline_s:g} s: {found}; it continues,"
                f" see systemctl status {UNIT}"
            )
        time.sleep(PAUSE_S)


def read_log(rootfs: str) -> str:
    """The output of the last run, only its end if it is long; credentials in URLs are masked."""
    try:
        with open(os.path.join(place_of(rootfs, WORK), "log"), "rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - 262144))
            return mask_urls(source.read().decode("utf-8", "replace"))
    except FileNotFoundError:
        return ""
