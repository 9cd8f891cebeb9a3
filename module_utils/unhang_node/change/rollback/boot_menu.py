"""GRUB's generated menu in a rollback: the saved text is restored only if its entries match the kernels that the node then has; otherwise the menu is
generated again.

A saved text may be older than the installed kernels: restored after a kernel was removed, it would start a file that no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...parse.grub import Entry, parse_menu, release_of_image
from ..atomic_files import Saved
from ..boot.kernels import installed_releases
from ..boot.loader import run_command
from ..boot.parameters import MENUS


def stale_menus(rootfs: str, files: Mapping[str, Saved | None], changed: Iterable[str] = ()) -> list[str]:
    """Paths of menus to generate again. files: {path: as it was saved}; changed: paths of menus that were generated since. Raises OSError."""
    return [path for path in MENUS if path in files and (path in changed or not _starts_what_is_there(rootfs, files[path]))]


def _starts_what_is_there(rootfs: str, saved: Saved | None) -> bool:
    return saved is not None and set(_releases(parse_menu(saved["text"]))) == set(installed_releases(rootfs))


def _releases(entries: Sequence[Entry]) -> list[str]:
    """Kernel releases of all entries, including those in submenus."""
    found = [release_of_image(entry.kernel) for entry in entries]
    return [release for release in found if release] + [release for entry in entries if entry.children for release in _releases(entry.children)]


def make_menu(rootfs: str) -> None:
    """Generates the menu again from the restored files. Raises OSError, ValueError with the tool's output."""
    run_command(rootfs, ["update-grub"])
