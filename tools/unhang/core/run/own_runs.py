"""Whether a run was made here, by this user. Only then are its inventory and its options of
ansible-playbook taken from it: both can name programs.

The mark lies in the run folder. It is made with a key from the user's own state folder, so that a
run folder which somebody else has written, packed or changed has none. Where there is no key, or it
was removed, no run is known as an own one, and commands ask for --inventory.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.kept_files import KEY_BYTES, digest_of, keep, read_kept
from unhang.core.project import state_folder
from unhang.core.run.run_folder import read_run
from unhang.core.run.whole_files import write_atomically
from unhang.core.text import visible

MARK = "made-here"
KEY_NAME, KEY_OF = "own-runs", digest_of(b"unhang/own-runs/1")
LONGEST_SHOWN = 200


def mark_as_own(folder: Path) -> None:
    """Call it for a run that this command has made, or of which it took nothing that it had not
    checked. Without run.json there is nothing to mark."""
    if not (folder / "run.json").is_file():
        return
    if not _keys():
        _make_key()
    for key in _keys()[:1]:
        write_atomically(folder / MARK, f"{_mark_of(key, read_run(folder).document)}\n")


def is_own(folder: Path) -> bool:
    """Whether run.json names the inventory and the options that the run was made with here. Raises
    UserError if there is no run."""
    document, mark = read_run(folder).document, _mark(folder)
    return any(hmac.compare_digest(mark, _mark_of(key, document)) for key in _keys())


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


def _keys() -> list[bytes]:
    """The key of the state folder, which makes marks, and that of the cache, where earlier releases
    had it: it is copied to a state folder without one."""
    place, cached = state_folder(os.environ), read_kept(KEY_NAME, KEY_OF)
    own = read_kept(KEY_NAME, KEY_OF, place) if place else None
    if place and cached and not own:
        keep(KEY_NAME, KEY_OF, cached, place)
    return [key for key in dict.fromkeys((own, cached)) if key]


def _make_key() -> None:
    """In the state folder; in the cache, if there is no state folder that can be written to."""
    place, key = state_folder(os.environ), secrets.token_bytes(KEY_BYTES)
    if place:
        keep(KEY_NAME, KEY_OF, key, place)
    if not _keys():
        keep(KEY_NAME, KEY_OF, key)


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
