"""What runs on a node that is read without Ansible: starts the one-file collector that lies there
under its hash, and takes it from standard input once."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.ansible.old_python import collector_arguments

KEPT, SENT = "kept", "sent"
WANTED = 76  # the exit code of a node that has not got the collector yet
WANTED_LINE = "unhang-collector-wanted"
# the first that a node says: it can be reached, and what comes now is its own time
BEGUN_LINE = "unhang-collector-begins"

# The collector lies where only its user can write, and its hash is checked before each start. Only
# root can change it then, or that user. What is created has mode 0700 whatever the umask; a
# ~/.cache in which others could put another folder in its place stays as it is, and ~/.unhang is
# used.
STARTER = f"""
import hashlib, os, pwd, stat, sys
print("{BEGUN_LINE}", flush=True)
name, how, uid = sys.argv[1], sys.argv[2], os.geteuid()
home = pwd.getpwuid(uid).pw_dir
asked = (
    "%s must be a folder that only its user can write, and is another; correct its owner and mode"
)
def is_own(place):
    found = os.lstat(place)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022
def is_safe(place):
    found = os.stat(place)
    return found.st_uid in (0, uid) and (not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX))
def made(place):
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        pass
    return place
def chosen():
    if not is_safe(home):
        sys.exit(asked % home)
    caches = made(os.path.join(home, ".cache"))
    own = made(os.path.join(caches, "unhang") if is_safe(caches) else os.path.join(home, ".unhang"))
    if not is_own(own):
        sys.exit(asked % own)
    return own
def fits(data):
    return hashlib.sha256(data).hexdigest() == name
def kept():
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as source:
        found = os.fstat(handle)
        return stat.S_ISREG(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022 and fits(source.read(1 << 26))
try:
    folder = chosen()
    path = os.path.join(folder, "collect-" + name + ".pyz")
    try:
        there = kept()
    except OSError:
        there = False
    if not there and how == "{KEPT}":
        print("{WANTED_LINE}")
        sys.exit({WANTED})
    if not there:
        data = sys.stdin.buffer.read(1 << 26)
        if not fits(data):
            sys.exit("the bytes are not those of the collector " + name[:12] + "; it was not started")
        for old in os.listdir(folder):
            if old.startswith("collect-") and old != os.path.basename(path):
                try:
                    os.unlink(os.path.join(folder, old))
                except FileNotFoundError:  # of a home that nodes share, another node was faster
                    pass
        beside = os.path.join(folder, ".%d-%s" % (os.getpid(), os.urandom(8).hex()))
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as target:
            target.write(data)
        os.rename(beside, path)
except OSError as problem:
    sys.exit("could not keep the collector in " + home + ": " + str(problem.strerror))
os.execv(sys.executable, [sys.executable, "-I", "-S", path] + sys.argv[3:])
"""  # noqa: E501
# no shell finds a character in it that means something
_PACKED = base64.b64encode(STARTER.encode()).decode()


def start_command(
    interpreter: str, become: Sequence[str], digest: str, how: str, options: Mapping[str, Any]
) -> str:
    """The command line for a node's shell. become: words before the interpreter; how: KEPT or SENT,
    with the collector on standard input."""
    run = f"import base64; exec(base64.b64decode('{_PACKED}'))"
    words = [
        *become,
        interpreter,
        "-I",
        "-S",
        "-c",
        run,
        digest,
        how,
        *collector_arguments(options),
    ]
    return f"/bin/sh -c {shlex.quote(shlex.join(words))}"
