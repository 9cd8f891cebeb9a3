"""Room for booted nodes in the machine's limit on inotify instances: raised by the first that needs
it, set back by the last, whichever process that is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib

LIMIT, INSTANCES = pathlib.Path("/proc/sys/fs/inotify/max_user_instances"), 512


@contextlib.contextmanager
def room_for_nodes(folder, limit=LIMIT):
    """Each booted node uses seven of the machine's inotify instances, and several workers have a
    bed each: more than Linux's usual 128.

    folder: where all test processes of this machine keep the value that was there before, and the
    locks that say who still needs the other. A process that is killed loses its locks, so the last
    one that ends sets the value back in any case.
    """
    if not os.access(limit, os.W_OK):
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    before = folder / "inotify.before"
    with (folder / "inotify.users").open("w") as users:
        with _alone(folder):
            fcntl.flock(users, fcntl.LOCK_SH)
            if int(limit.read_text()) < INSTANCES:
                before.write_text(limit.read_text())
                limit.write_text(str(INSTANCES))
        try:
            yield
        finally:
            with _alone(folder), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if before.exists():
                    limit.write_text(before.read_text())
                    before.unlink()


@contextlib.contextmanager
def _alone(folder):
    with (folder / "inotify.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
