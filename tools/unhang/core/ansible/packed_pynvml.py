"""The controller's own nvidia-ml-py, which Ansible packs for the nodes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
from pathlib import Path

from unhang.core.ansible.ansible_env import links_folder
from unhang.core.errors import UserError
from unhang.core.project import CACHE_ENV, checkout_of, install_line

_OWN_CACHE = f"set {CACHE_ENV} to a folder of your own"


def own_folder(folder: Path) -> Path:
    """The folder, made if it is missing. Programs are read from it, so all of its way belongs to
    root or this user. Raises OSError, UserError."""
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.mkdir(mode=0o755, exist_ok=True)
    absolute = folder.absolute()
    for place in sorted({*absolute.parents, absolute, *folder.resolve().parents, folder.resolve()}):
        state = place.lstat()
        if state.st_uid not in (0, os.geteuid()):
            raise UserError(
                f"{place} belongs to user {state.st_uid}, and for {folder} it must belong to root"
                f" or to you; {_OWN_CACHE}"
            )
        open_to_all = state.st_mode & stat.S_IWOTH and not stat.S_ISLNK(state.st_mode)
        if open_to_all and (place == absolute or not state.st_mode & stat.S_ISVTX):
            raise UserError(
                f"everybody can write to {place}, and for {folder} it must be closed to others;"
                f" {_OWN_CACHE}"
            )
    return folder


def link_pynvml(project: Path) -> Path:
    """A link to the installed pynvml.py in a folder of module_utils, so that Ansible packs the
    controller's own nvidia-ml-py. Raises UserError."""
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        raise UserError(f"the Python package nvidia-ml-py is not installed; next: {install_line()}")
    link = links_folder(project) / "pynvml.py"
    beside = link.with_name(f".pynvml-{os.getpid()}.py")
    try:
        if not checkout_of(project):
            own_folder(link.parent)
        if link.is_symlink() and os.readlink(link) == found.origin:  # noqa: PTH115 -- the text of the link is compared, not where it leads
            return link
        link.parent.mkdir(parents=True, exist_ok=True)
        beside.symlink_to(found.origin)
        beside.replace(link)
    except OSError as problem:
        with contextlib.suppress(OSError):
            beside.unlink()
        then = (
            "make it by hand or as the checkout's owner"
            if checkout_of(project)
            else f"set {CACHE_ENV} to a folder that can be written to"
        )
        raise UserError(
            f"could not make the link {link} to {found.origin}: {problem.strerror}; {then}"
        ) from None
    return link
