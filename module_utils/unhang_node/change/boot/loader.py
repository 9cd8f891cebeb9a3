"""Reads which kernel a node boots next, and says it to its boot loader: GRUB, GRUB with loader entries, systemd-boot.

Ways: "menu" (grub.cfg made by grub-mkconfig), "bls" (GRUB that reads /boot/loader/entries), "systemd-boot".
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, NamedTuple

from ...mount_table import read_mounts
from ...parse.grub import parse_default, parse_grubenv
from ...process import FOLDERS, output_of
from ...root import Root
from ...section import Unread
from ...sections.boot import CFG_LIMIT_BYTES, GRUB_FOLDERS, LOADER_FOLDERS, read_boot, read_efi_text, read_loader_entries
from ..files import place_of
from .entries import changed_grubenv, entry_of_release


class Loader(NamedTuple):
    """The configuration of a boot loader."""

    facts: dict[str, Any]  # as section kernel has them under boot
    way: str  # menu, bls or systemd-boot
    folder: str  # of grub.cfg or of the loader's entries
    cfg: str  # text of grub.cfg, or ""
    default: str  # "0", "saved", or the name of an entry
    saved: str | None  # the entry that it boots with default "saved"
    one_shot: str | None  # the entry of the next boot


MKCONFIG = (("update-grub",), ("grub2-mkconfig", "-o"), ("grub-mkconfig", "-o"))
CALL_DEADLINE_S = 900  # grub-mkconfig looks at every file system where os-prober is on


class NotPossible(ValueError):
    """Why this node's next boot cannot be chosen safely: expected, found, what next, in one line."""


def read_loader(rootfs: str) -> Loader:
    """A Loader. Raises NotPossible, OSError; needs to be root to see everything."""
    root, unread = Root([rootfs]), Unread()
    facts = read_boot(root, unread, read_mounts(root))
    if facts["loader"] == "grub":
        return _read_grub(rootfs, root, facts)
    if facts["loader"] == "systemd-boot":
        return _read_systemd_boot(root, facts)
    raise NotPossible(
        "expected GRUB or systemd-boot on the node's disk, found {}; a node that boots from the network or from an image gets its kernel there".format(
            "no boot loader" if facts["loader"] == "none" else "another one"
        )
    )


def _read_grub(rootfs: str, root: Root, facts: dict[str, Any]) -> Loader:
    folder = next(path for path in GRUB_FOLDERS if root.exists(path + "/grub.cfg"))
    cfg = root.text(folder + "/grub.cfg", CFG_LIMIT_BYTES)
    values = parse_grubenv(_grubenv(rootfs, folder))
    if "next_entry" not in cfg:
        raise NotPossible(f"expected a grub.cfg that knows one-shot entries, found none of it in {folder}/grub.cfg; make it with grub-mkconfig")
    return Loader(
        facts=facts,
        way="bls" if "blscfg" in cfg and read_loader_entries(root, "/boot/loader/entries") else "menu",
        folder=folder,
        cfg=cfg,
        default=parse_default(cfg) or "0",
        saved=values.get("saved_entry") or None,
        one_shot=values.get("next_entry") or None,
    )


def _read_systemd_boot(root: Root, facts: dict[str, Any]) -> Loader:
    mounted = next((path for path in LOADER_FOLDERS if root.exists(path + "/entries")), None)
    if mounted is None:
        raise NotPossible("expected systemd-boot's entries in {}, found none; mount its partition".format(" or ".join(LOADER_FOLDERS)))
    chosen = read_efi_text(root, "LoaderEntryDefault")
    return Loader(
        facts=facts,
        way="systemd-boot",
        folder=mounted + "/entries",
        cfg="",
        default=chosen or "",
        saved=chosen,
        one_shot=read_efi_text(root, "LoaderEntryOneShot"),
    )


def check_can_try(loader: Loader) -> None:
    """Raises NotPossible where a one-shot entry would stay for every boot."""
    if loader.facts["can_clear_one_shot"] is not True:
        why = loader.facts["why_not"] or "the place of its environment block is not known"
        raise NotPossible(
            f"expected a boot loader that can clear its one-shot entry, found that it cannot ({why}): a kernel on trial would be started again and again;"
            " boot this node into it with somebody at its console"
        )


def entry_for(rootfs: str, loader: Loader, release: str) -> str:
    """The loader's name of the entry that starts `release`. Raises NotPossible."""
    if loader.way == "menu":
        entry = entry_of_release(loader.cfg, release)
    else:
        folder = "/boot/loader/entries" if loader.way == "bls" else loader.folder
        found = [name for name, known in read_loader_entries(Root([rootfs]), folder) if known == release and "rescue" not in name]
        entry = found[0] if found else None
        entry = entry + ".conf" if entry and loader.way == "systemd-boot" else entry
    if not entry:
        raise NotPossible(f"expected a boot entry that starts {release}, found none; its package is only half installed")
    return entry


def entry_file(loader: Loader, entry: str) -> str | None:
    """Path of the file of a loader entry, None where entries stand in grub.cfg."""
    if loader.way == "menu":
        return None
    stem = entry[: -len(".conf")] if entry.endswith(".conf") else entry
    return "{}/{}.conf".format("/boot/loader/entries" if loader.way == "bls" else loader.folder, stem)


def set_default(rootfs: str, loader: Loader, entry: str | None) -> None:
    """From now on the loader starts `entry`. Raises OSError, ValueError."""
    if loader.way == "systemd-boot":
        run_command(rootfs, ["bootctl", "set-default", entry or ""])
    else:
        write_grubenv(rootfs, loader.folder, {"saved_entry": entry})


def set_one_shot(rootfs: str, loader: Loader, entry: str | None) -> None:
    """The next boot, and only that, takes `entry`; None for no such boot. Raises OSError, ValueError."""
    if loader.way == "systemd-boot":
        run_command(rootfs, ["bootctl", "set-oneshot", entry or ""])
    else:
        write_grubenv(rootfs, loader.folder, {"next_entry": entry})


def write_grubenv(rootfs: str, folder: str, values: dict[str, str | None]) -> None:
    """Changes GRUB's environment block in place: its blocks on the disk are what GRUB reads, and it does not replay a journal."""
    data = changed_grubenv(_grubenv(rootfs, folder), values)
    descriptor = os.open(place_of(rootfs, folder + "/grubenv"), os.O_WRONLY)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_command(rootfs: str, loader: Loader) -> str:
    """The shell command with which the node itself takes a one-shot entry away."""
    if loader.way == "systemd-boot":
        return "bootctl set-oneshot ''"
    tool = next((name for name in ("grub-editenv", "grub2-editenv") if _which(rootfs, name)), "grub-editenv")
    return f"{tool} {loader.folder}/grubenv unset next_entry"


def make_config(rootfs: str, loader: Loader) -> None:
    """Has grub.cfg made anew. Raises OSError, ValueError with what the tool printed."""
    if loader.way != "menu":
        return
    command = next((list(argv) for argv in MKCONFIG if _which(rootfs, argv[0])), None)
    if command is None:
        raise NotPossible("expected update-grub or grub2-mkconfig on the node, found neither")
    run_command(rootfs, command if len(command) == 1 else [*command, loader.folder + "/grub.cfg"])


def run_command(rootfs: str, argv: list[str]) -> str:
    """What a tool of the node printed. Raises ProgramFailed, TimeoutError, OSError."""
    return output_of(argv, CALL_DEADLINE_S, rootfs, merged=True, variables={"PATH": _search_path()})


def _search_path() -> str:
    """The caller's folders first, for a distribution may keep its boot loader's tools elsewhere."""
    return f"{os.environ.get('PATH', FOLDERS)}:{FOLDERS}"


def _grubenv(rootfs: str, folder: str) -> bytes:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open(place_of(rootfs, folder + "/grubenv"), "rb") as source:
        return source.read(65536)
    return b""


def _which(rootfs: str, name: str) -> str | None:
    if rootfs == "/":
        return shutil.which(name, path=_search_path())
    return next((path for path in (folder + "/" + name for folder in FOLDERS.split(":")) if os.path.exists(place_of(rootfs, path))), None)
