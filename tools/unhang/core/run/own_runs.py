"""Whether a run was made here, by this user. Only then are its inventory and its options of
ansible-playbook taken from it: both can name programs.

The mark lies in the run folder. It is made with a key from the user's own state folder, so that a
run folder which somebody else has written, packed or changed has none. Where there is no key, or it
was removed, or no folder for it, no run is known as an own one, and commands ask for --inventory.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.project import state_folder
from unhang.core.run.private_file import SAFELY
from unhang.core.run.run_folder import read_run
from unhang.core.run.whole_files import write_atomically
from unhang.core.text import visible

MARK = "made-here"
KEY_NAME, KEY_BYTES = "own-runs", 32
LONGEST_SHOWN = 200


def mark_as_own(folder: Path) -> None:
    """Call it for a run that this command has made, or of which it took nothing that it had not
    checked. Without run.json there is nothing to mark."""
    if not (folder / "run.json").is_file():
        return
    if key := _key() or _made_key():
        write_atomically(folder / MARK, f"{_mark_of(key, read_run(folder).document)}\n")


def is_own(folder: Path) -> bool:
    """Whether run.json names the inventory and the options that the run was made with here. Raises
    UserError if there is no run."""
    document, key = read_run(folder).document, _key()
    return bool(key) and hmac.compare_digest(_mark(folder), _mark_of(key, document))


def own_inventories(folder: Path) -> list[str]:
    """The inventories of the run. Raises UserError if it names some and is not known as this user's
    own."""
    given = read_run(folder).document.get("inventory") or []
    named = [str(one) for one in (given if isinstance(given, list) else [given])]
    if named and not is_own(folder):
        found = visible(", ".join(named), LONGEST_SHOWN)
        raise UserError(
            f"{folder} is not a run that you made here with unhang audit: it names the inventory"
            f" {found} and may be somebody else's; an inventory can be a program: look at it, and"
            " give it as --inventory"
        )
    return named


def own_options(folder: Path) -> list[str]:
    """The options of ansible-playbook that the run was made with; none if it is not known as this
    user's own. Raises UserError if there is no run."""
    return (
        [str(one) for one in read_run(folder).document.get("options") or []]
        if is_own(folder)
        else []
    )


def _key() -> bytes:
    """The key in the state folder; b"" for one that somebody else may have written, or knows."""
    place = state_folder(os.environ)
    if place is None:  # a user without a home
        return b""
    with suppress(OSError):
        handle = os.open(place / KEY_NAME, os.O_RDONLY | SAFELY)
        with os.fdopen(handle, "rb") as source:
            found = os.fstat(handle)
            others = found.st_mode & 0o077
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not others:
                key = source.read(LONGEST_SHOWN)[-KEY_BYTES:]
                return key if len(key) == KEY_BYTES else b""
    return b""


def _made_key() -> bytes:
    """A new key, which a reader finds whole; b"" without a folder that can be written to."""
    place = state_folder(os.environ)
    with suppress(OSError):
        if place:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(place / KEY_NAME, secrets.token_hex(KEY_BYTES // 2), 0o600)
    return _key()


def _mark_of(key: bytes, document: Mapping[str, Any]) -> str:
    named = json.dumps(
        [document.get("id"), document.get("inventory"), document.get("options")], sort_keys=True
    )
    return hmac.new(key, named.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _mark(folder: Path) -> str:
    with suppress(OSError, ValueError):
        place = folder / MARK
        if place.is_file() and not place.is_symlink() and place.stat().st_size < LONGEST_SHOWN:
            return place.read_text("ascii").strip()
    return ""
