"""Replaces files atomically, and keeps under /var/lib/unhang what a rollback needs."""

from __future__ import annotations

import contextlib
import json
import os
import stat as stat_bits
import tempfile
from collections.abc import Mapping
from typing import Any, Dict, Optional, Tuple

from ..base.links import follow_links
from ..base.parse.values import parse_json

# Folder of everything that unhang keeps on a node.
STATE_FOLDER = "/var/lib/unhang"
STATES = STATE_FOLDER + "/states"
LOCK = STATE_FOLDER + "/lock.json"
FELL_BACK = STATE_FOLDER + "/boot-trial-fell-back"
BASELINE = STATE_FOLDER + "/baseline.json"
FENCING = STATE_FOLDER + "/fencing.json"
LIMIT_BYTES = 1024 * 1024
# set after the mode: the mode's group bits are the mask of this access list
ACCESS_LIST = "system.posix_acl_access"
UNFINISHED = ".unhang-"  # prefix of the names of files that are being written
# By path, the text of a file before and after; None where there is no file.
Texts = Dict[str, Tuple[Optional[str], Optional[str]]]
# A file in a saved state: text, mode, uid, gid.
Saved = Dict[str, Any]


def place_of(rootfs: str, path: str) -> str:
    """This machine's path of a node's path. Symbolic links are followed inside `rootfs`: an
    absolute link in a planted tree never leads out of it."""
    if rootfs == "/":
        return os.path.realpath(path)
    found = follow_links(
        path, lambda here: os.readlink(rootfs + here) if os.path.islink(rootfs + here) else None
    )
    return rootfs + ("" if found == "/" else found)


def read_text_or_none(place: str) -> str | None:
    """A regular file's text with every byte preserved (surrogateescape); None if there is no such
    file. Raises OSError, ValueError."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat_bits.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{place} is not a regular file")
    with os.fdopen(descriptor, "rb") as source:
        content = source.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise ValueError(f"{place} is larger than {LIMIT_BYTES} bytes")
    return content.decode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    """A text of read_text_or_none for a module's result: bytes that are not UTF-8 are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_text(place: str, text: str | None, mode: int = 0o644) -> None:
    """Replaces a file atomically: after a power cut it has the old text or the new one. An existing
    file keeps owner, mode and access list. text None removes the file. After an OSError the file is
    unchanged."""
    folder = os.path.dirname(place)
    if text is None:
        if os.path.lexists(place):
            os.unlink(place)
            sync(folder)
        return
    os.makedirs(folder, mode=0o755, exist_ok=True)
    known = _status_of(place)
    descriptor, beside = tempfile.mkstemp(prefix=UNFINISHED, dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(text.encode("utf-8", "surrogateescape"))
            os.fchmod(descriptor, stat_bits.S_IMODE(known.st_mode) if known else mode)
            if known and os.geteuid() == 0:
                os.fchown(descriptor, known.st_uid, known.st_gid)
            _keep_label(place if known else folder, beside)
            if known:
                _keep_attributes(place, beside)
            target.flush()
            os.fsync(descriptor)
        os.rename(beside, place)
    except BaseException:
        os.unlink(beside)
        raise
    sync(folder)


def write_texts(rootfs: str, texts: Mapping[str, tuple[str | None, str | None]]) -> None:
    """Writes {path of the node: (before, after)}; a new script can be run. Raises OSError."""
    for path, (_before, after) in sorted(texts.items()):
        mode = 0o755 if (after or "").startswith("#!") else 0o644
        write_text(place_of(rootfs, path), after, mode)


def _status_of(place: str) -> os.stat_result | None:
    try:
        return os.stat(place)
    except FileNotFoundError:
        return None


def _keep_label(known: str, beside: str) -> None:
    """Copies the SELinux label of the file that is replaced, or of its folder."""
    with contextlib.suppress(OSError, AttributeError):  # no SELinux here
        os.setxattr(beside, "security.selinux", os.getxattr(known, "security.selinux"))


def _keep_attributes(known: str, beside: str) -> None:
    """Copies the access list and user attributes of the file that is replaced; security and
    integrity attributes depend on the content."""
    with contextlib.suppress(OSError, AttributeError):  # a file system without extended attributes
        for name in os.listxattr(known):
            if name == ACCESS_LIST or name.startswith("user."):
                os.setxattr(beside, name, os.getxattr(known, name))


def sync(place: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_unfinished(rootfs: str) -> None:
    """Removes unfinished files of a killed write_text from unhang's folder. Only for a caller with
    exclusive use of the folder."""
    folder = place_of(rootfs, STATE_FOLDER)
    for name in [name for name in os.listdir(folder) if name.startswith(UNFINISHED)]:
        os.unlink(os.path.join(folder, name))


def state_path(name: str) -> str:
    """Path of the file in which a role keeps, between runs, what it set on this node."""
    return f"{STATE_FOLDER}/{name}.json"


def read_own_json(rootfs: str, path: str, schema: str) -> dict[str, Any] | None:
    """The object that unhang saved at a node's path; None without a file. Raises OSError, and
    ValueError naming the file if it holds anything else."""
    text = read_text_or_none(place_of(rootfs, path))
    if text is None:
        return None
    try:
        saved = parse_json(text)
    except ValueError:
        saved = None
    if not isinstance(saved, dict) or saved.get("schema") != schema:
        raise ValueError(f"{path} does not hold what unhang saved there; move it away after a look")
    return saved


def read_state(rootfs: str, name: str) -> dict[str, Any]:
    """What a role saved on this node, {} if it saved nothing. Raises ValueError naming the file if
    it is broken."""
    return read_own_json(rootfs, state_path(name), "unhang/state/1") or {}


def write_state(rootfs: str, name: str, state: dict[str, Any]) -> None:
    """Writes what read_state reads; an empty state removes the file. Raises OSError."""
    place = place_of(rootfs, state_path(name))
    text = (
        json.dumps(dict(state, schema="unhang/state/1"), indent=1, sort_keys=True) + "\n"
        if state
        else None
    )
    write_text(place, text, 0o600)
