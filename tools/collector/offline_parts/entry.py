# Entry of unhang-offline.pyz. Only this file must parse on any Python, so that an old one gets a clear line and no syntax error.
import os
import sys

if sys.version_info < (3, 9):
    sys.stderr.write(
        "unhang-offline: expected Python 3.9 or newer, found %d.%d (%s); run it with another interpreter: python3.9 %s\n"
        % (sys.version_info[0], sys.version_info[1], sys.executable, " ".join(sys.argv))
    )
    sys.exit(2)

import atexit
import shutil
import tempfile
import zipfile

ARCHIVE = os.path.dirname(os.path.abspath(__file__))
NAME = "offline-@DIGEST@"


def cached():
    """The folder into which this file was unpacked, owned by the caller; a temporary one where no cache is writable."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "unhang")
    folder = os.path.join(base, NAME)
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
        if not is_own(base):
            raise OSError("a folder of somebody else's")
        if not os.path.isdir(folder):
            beside = unpacked(tempfile.mkdtemp(prefix=NAME + "-", dir=base))
            try:
                os.rename(beside, folder)
            except OSError:
                shutil.rmtree(beside, ignore_errors=True)  # another start was faster
        if is_own(folder):
            return folder
    except OSError:
        pass
    folder = unpacked(tempfile.mkdtemp(prefix="unhang-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_own(folder):
    """Whether only this user can have written to the folder."""
    status = os.lstat(folder)
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.path.isdir(folder)


def unpacked(folder):
    """Unpacks into an existing folder."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        for member in archive.namelist():
            if member.startswith("home/"):
                target = os.path.join(folder, member[len("home/") :])
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as out:
                    out.write(archive.read(member))
    return folder


if "--rules" in sys.argv or any(word.startswith("--rules=") for word in sys.argv):
    sys.stderr.write("unhang-offline: --rules needs an installed unhang, which checks what it reads; this file knows its own catalogue alone\n")
    sys.exit(2)
sys.path.insert(0, cached())

from unhang.cli import main  # noqa: E402 -- it lies in the folder that was unpacked just now

code = main()
for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed by the caller
    stream.flush()
sys.exit(code)
