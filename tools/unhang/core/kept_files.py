"""Small private files of the user, such as the key of own runs, in a folder that is given or in
that of caches. They contain data, never code.

A file is read only if nobody else can have written it, and only with the key of its writing. A
damaged file is ignored.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from unhang.core.project import CACHE_ENV, checkout_of

MAGIC = b"unhang/kept/1\n"
MOST_BYTES = 64 * 1024 * 1024
KEY_BYTES = 32
_PACKAGE = Path(__file__).resolve().parents[1]
_HEAD = len(MAGIC) + 2 * KEY_BYTES
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def digest_of(*pieces: bytes) -> bytes:
    """A digest of KEY_BYTES over the pieces, each with its length."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(len(piece).to_bytes(8, "big") + piece)
    return found.digest()


def read_kept(name: str, key: bytes, place: Path | None = None) -> bytes | None:
    """The content that was kept under this name with the same key; None if there is none that can
    be trusted. place: another folder than the cache."""
    try:
        place = place or folder()
        data = None if place is None else _read_own(place / name)
    except OSError:
        return None
    if data is None or not data.startswith(MAGIC + key):
        return None
    content = data[_HEAD:]
    return content if data[_HEAD - KEY_BYTES : _HEAD] == hashlib.sha256(content).digest() else None


def keep(name: str, key: bytes, content: bytes, place: Path | None = None) -> None:
    """Keeps content under a name, atomically replacing an older one. In a folder that is full or
    read-only nothing is kept. place: as in read_kept."""
    with suppress(OSError):
        if place is not None:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif (place := folder()) is None:
            return
        beside = place / f".{name}-{secrets.token_hex(6)}.tmp"
        try:
            with os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
            ) as target:
                target.write(b"".join((MAGIC, key, hashlib.sha256(content).digest(), content)))
            beside.replace(place / name)
        finally:
            with suppress(OSError):
                beside.unlink()


def folder() -> Path | None:
    """The cache's folder, created if it is missing; None if there is no folder that only the user
    can write. Raises OSError."""
    place = _wanted_folder()
    if place is None:
        return None
    with suppress(FileExistsError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700)
    found = place.lstat()
    return (
        place
        if stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & _OTHERS
        else None
    )


def _wanted_folder() -> Path | None:
    """Below .cache of a checkout that is the user's, else below the user's own folder of caches."""
    top = _top()
    if top is not None and top.stat().st_uid == os.geteuid():
        return top / ".cache" / "kept"
    named = os.environ.get(CACHE_ENV, "")
    try:
        caches = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return caches / "unhang" / f"kept-{hashlib.sha256(str(_PACKAGE).encode()).hexdigest()[:12]}"


@cache
def _top() -> Path | None:
    """The checkout that contains this package; None for an installed or unpacked package."""
    top = _PACKAGE.parents[1]
    return checkout_of(top) if (top / "playbooks" / "audit.yml").is_file() else None


def _read_own(path: Path) -> bytes | None:
    """The bytes of a regular file that only the user can write. Raises OSError."""
    with os.fdopen(
        os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0
    ) as source:
        found = os.fstat(source.fileno())
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_mode & _OTHERS
            or found.st_size > MOST_BYTES
        ):
            return None
        data = source.read(found.st_size)
        return data if data is not None and len(data) == found.st_size else None
