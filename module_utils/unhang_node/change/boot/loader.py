"""Reads and sets the kernel that a node boots next, in its boot loader: GRUB, GRUB with loader
entries, systemd-boot.

Ways: "menu" (grub.cfg made by grub-mkconfig), "bls" (GRUB that reads /boot/loader/entries),
"systemd-boot".
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, NamedTuple

from ...base.mount_table import read_mounts
from ...base.parse.grub import parse_default, parse_grubenv
from ...base.process import FOLDERS, output_of
from ...base.root import Root
from ...base.section import Unread
from ...facts.sections.boot import (
    CFG_LIMIT_BYTES,
    GRUB_FOLDERS,
    LOADER_FOLDERS,
    read_boot,
    read_efi_text,
    read_loader_entries,
    uncounted,
)
from ...facts.sections.reading import line_if_there
from ..atomic_files import place_of
from .entries import changed_grubenv, entry_of_release


class Loader(NamedTuple):
    """The configuration of a boot loader."""

    facts: dict[str, Any]  # `boot` of section kernel
    way: str  # menu, bls or systemd-boot
    folder: str  # folder of grub.cfg or of the loader's entries
    cfg: str  # text of grub.cfg, or ""
    default: str  # "0", "saved", or the name of an entry
    saved: str | None  # the entry that it boots with default "saved"
    one_shot: str | None  # the entry of the next boot


MKCONFIG = (("update-grub",), ("grub2-mkconfig", "-o"), ("grub-mkconfig", "-o"))
CALL_DEADLINE_S = 900  # grub-mkconfig searches every file system if os-prober is enabled


class NotPossible(ValueError):
    """Why this node's next boot cannot be chosen safely, and the next step, in one line."""


def read_loader(rootfs: str) -> Loader:
    """The node's Loader. Raises NotPossible, OSError. Only root can read all of it."""
    root, unread = Root([rootfs]), Unread()
    facts = read_boot(root, unread, read_mounts(root))
    if facts["loader"] == "grub":
        return _read_grub(rootfs, root, facts)
    if facts["loader"] == "systemd-boot":
        return _read_systemd_boot(root, facts)
    raise NotPossible(
        "the node's disk has"
        f" {'no boot loader' if facts['loader'] == 'none' else 'neither GRUB nor systemd-boot'}; a"
        " node that boots from the network or from an image gets its kernel there"
    )


def _read_grub(rootfs: str, root: Root, facts: dict[str, Any]) -> Loader:
    folder = next(path for path in GRUB_FOLDERS if root.exists(path + "/grub.cfg"))
    cfg = root.text(folder + "/grub.cfg", CFG_LIMIT_BYTES)
    values = parse_grubenv(_grubenv(rootfs, folder))
    if "next_entry" not in cfg:
        raise NotPossible(
            f"{folder}/grub.cfg does not know one-shot entries; make it with grub-mkconfig"
        )
    return Loader(
        facts=facts,
        way=(
            "bls"
            if "blscfg" in cfg and read_loader_entries(root, "/boot/loader/entries")
            else "menu"
        ),
        folder=folder,
        cfg=cfg,
        default=parse_default(cfg) or "0",
        saved=values.get("saved_entry") or None,
        one_shot=values.get("next_entry") or None,
    )


def _read_systemd_boot(root: Root, facts: dict[str, Any]) -> Loader:
    mounted = next((path for path in LOADER_FOLDERS if root.exists(path + "/entries")), None)
    if mounted is None:
        raise NotPossible(
            f"systemd-boot's entries are not in {' or '.join(LOADER_FOLDERS)}; mount its partition"
        )
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
    """Raises NotPossible if a one-shot entry would apply to every boot."""
    if loader.facts["can_clear_one_shot"] is not True:
        why = loader.facts["why_not"] or "the place of its environment block is not known"
        raise NotPossible(
            f"the boot loader cannot clear its one-shot entry ({why}): a kernel on trial would be"
            " started again and again; boot this node into it with somebody at its console"
        )


def check_name_stays(loader: Loader, entry: str) -> None:
    """Raises NotPossible for an entry of systemd-boot with a boot counter.

    The loader renames its file at each start and systemd-bless-boot once more after it
    (systemd-bless-boot.service(8)), and until release 258 systemd-boot counts the counter to the
    name where bootctl does not (https://github.com/systemd/systemd/issues/38813): no name starts
    this entry from now on.
    """
    if loader.way == "systemd-boot" and uncounted(entry) != entry:
        plain = uncounted(entry)
        raise NotPossible(
            f"systemd-boot renames the boot entry {entry} while it counts boots; rename it to"
            f" {plain}, and take /etc/kernel/tries away so that new kernels come without"
        )


def entry_for(rootfs: str, loader: Loader, release: str) -> str:
    """The loader's name of the entry that starts `release`. Raises NotPossible."""
    if loader.way == "menu":
        entry = entry_of_release(loader.cfg, release)
    else:
        folder = "/boot/loader/entries" if loader.way == "bls" else loader.folder
        found = [
            name
            for name, known in read_loader_entries(Root([rootfs]), folder)
            if known == release and "rescue" not in name
        ]
        entry = _entry_of_this_system(rootfs, loader, found)
        entry = entry + ".conf" if entry and loader.way == "systemd-boot" else entry
    if not entry:
        raise NotPossible(f"no boot entry starts {release}; its package is only half installed")
    return entry


def _entry_of_this_system(rootfs: str, loader: Loader, names: list[str]) -> str | None:
    """Of several entries of one release the default, or that of this machine: an image leaves
    entries of the machine that it was made on.

    Their names begin with the machine's id (kernel-install(8)), and their options name the disks of
    that machine.
    """
    saved = (
        loader.saved[: -len(".conf")]
        if loader.saved and loader.saved.endswith(".conf")
        else loader.saved
    )
    machine = line_if_there(Root([rootfs]), "/etc/machine-id")
    own = [name for name in names if name == saved] + [
        name for name in names if machine and name.startswith(machine)
    ]
    return next(iter([*own, *names]), None)


def check_boots_by_loader(rootfs: str) -> None:
    """Raises NotPossible where a kernel is loaded for kexec: "a kexec will be performed instead of
    a reboot" (reboot of systemctl(1)), past the loader."""
    if line_if_there(Root([rootfs]), "/sys/kernel/kexec_loaded") == "1":
        raise NotPossible(
            "a kernel is loaded for kexec, which `systemctl reboot` would start in place of the"
            " boot loader; unload it (kexec -u), and keep kexec-tools from loading one before a"
            " reboot"
        )


def entry_file(loader: Loader, entry: str) -> str | None:
    """Path of the file of a loader entry, None if the entries are in grub.cfg."""
    if loader.way == "menu":
        return None
    stem = entry[: -len(".conf")] if entry.endswith(".conf") else entry
    return f"{'/boot/loader/entries' if loader.way == 'bls' else loader.folder}/{stem}.conf"


def set_default(rootfs: str, loader: Loader, entry: str | None) -> None:
    """Makes `entry` the loader's default. Raises OSError, ValueError."""
    _set(rootfs, loader, entry, "set-default", "saved_entry")


def set_one_shot(rootfs: str, loader: Loader, entry: str | None) -> None:
    """Sets the entry for the next boot only; None removes that setting. Raises OSError,
    ValueError."""
    _set(rootfs, loader, entry, "set-oneshot", "next_entry")


def _set(rootfs: str, loader: Loader, entry: str | None, verb: str, variable: str) -> None:
    if loader.way == "systemd-boot":
        run_command(rootfs, ["bootctl", verb, entry or ""])
    else:
        write_grubenv(rootfs, loader.folder, {variable: entry})


def write_grubenv(rootfs: str, folder: str, values: dict[str, str | None]) -> None:
    """Changes GRUB's environment block in place, because GRUB reads its blocks on the disk and does
    not replay a journal."""
    data = changed_grubenv(_grubenv(rootfs, folder), values)
    descriptor = os.open(place_of(rootfs, folder + "/grubenv"), os.O_WRONLY)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_command(rootfs: str, loader: Loader) -> str:
    """The shell command that removes a one-shot entry on the node."""
    if loader.way == "systemd-boot":
        return "bootctl set-oneshot ''"
    tool = next(
        (name for name in ("grub-editenv", "grub2-editenv") if _which(rootfs, name)), "grub-editenv"
    )
    return f"{tool} {loader.folder}/grubenv unset next_entry"


def make_config(rootfs: str, loader: Loader, needs: str = "") -> None:
    """Generates grub.cfg again. needs: parameters that it has to hold then. Raises OSError,
    ValueError with the tool's output, NotPossible without them.

    Not every grub-mkconfig reads /etc/default/grub.d: that of Debian and Ubuntu does, that of Red
    Hat and SUSE reads /etc/default/grub alone. Without panic= a kernel on trial that panics would
    stay where it is.
    """
    if loader.way != "menu":
        return
    command = next((list(argv) for argv in MKCONFIG if _which(rootfs, argv[0])), None)
    if command is None:
        raise NotPossible("the node has neither update-grub nor grub2-mkconfig")
    run_command(rootfs, command if len(command) == 1 else [*command, loader.folder + "/grub.cfg"])
    if needs and needs not in Root([rootfs]).text(loader.folder + "/grub.cfg", CFG_LIMIT_BYTES):
        read = "this node's grub-mkconfig does not read /etc/default/grub.d"
        raise NotPossible(
            f"{loader.folder}/grub.cfg lacks {needs}: {read}; add it to GRUB_CMDLINE_LINUX in"
            " /etc/default/grub while kernels are tried"
        )


def run_command(rootfs: str, argv: list[str]) -> str:
    """The output of a program on the node. Raises ProgramFailed, TimeoutError, OSError."""
    return output_of(argv, CALL_DEADLINE_S, rootfs, merged=True, variables={"PATH": _search_path()})


def _search_path() -> str:
    """The PATH for these programs: the caller's folders first, because a distribution may have its
    boot loader's tools in another folder."""
    return f"{os.environ.get('PATH', FOLDERS)}:{FOLDERS}"


def _grubenv(rootfs: str, folder: str) -> bytes:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open(
        place_of(rootfs, folder + "/grubenv"), "rb"
    ) as source:
        return source.read(65536)
    return b""


def _which(rootfs: str, name: str) -> str | None:
    if rootfs == "/":
        return shutil.which(name, path=_search_path())
    return next(
        (
            path
            for path in (folder + "/" + name for folder in FOLDERS.split(":"))
            if os.path.exists(place_of(rootfs, path))
        ),
        None,
    )
