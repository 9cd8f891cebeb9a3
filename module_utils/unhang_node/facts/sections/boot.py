"""The kernel that the next boot starts, and whether a one-shot entry is set. Part of section
`kernel`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from ...base.parse.grub import (
    find_entry,
    parse_default,
    parse_grubenv,
    parse_loader_entry,
    parse_menu,
    release_of_image,
)
from ...base.parse.mounts import mount_of
from ...base.parse.values import clean_or_none, integer_or_none, release_key
from .reading import first_there, names_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

GRUB_FOLDERS = ("/boot/grub", "/boot/grub2")
LOADER_FOLDERS = ("/efi/loader", "/boot/loader", "/boot/efi/loader")
OTHER_MARKS = (
    "/boot/extlinux/extlinux.conf",
    "/boot/syslinux/syslinux.cfg",
    "/boot/refind_linux.conf",
    "/etc/zipl.conf",
)
# vendor id of the EFI variables that systemd-boot and other boot loaders share with the system
VENDOR_UUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
EFIVARS = "/sys/firmware/efi/efivars/"
CFG_LIMIT_BYTES = 4 * 1024 * 1024
ENTRY_FILES = 256
_COUNTER = re.compile(r"\+\d+(?:-\d+)?(?=(?:\.conf)?$)")


def read_boot(root: Root, unread: Unread, mounts: list[Mount] | None) -> dict[str, Any]:
    """{loader, default_entry, default_release, one_shot_pending, one_shot_entry,
    can_clear_one_shot, why_not}. Raises OSError."""
    empty = dict.fromkeys(
        (
            "default_entry",
            "default_release",
            "one_shot_pending",
            "one_shot_entry",
            "can_clear_one_shot",
            "why_not",
        )
    )
    if (read_efi_text(root, "LoaderInfo") or "").startswith("systemd-boot"):
        return dict(empty, **read_systemd_boot(root, unread, first_there(root, LOADER_FOLDERS)))
    grub = first_there(root, [folder + "/grub.cfg" for folder in GRUB_FOLDERS])
    if grub:
        return dict(empty, **read_grub(root, unread, mounts, grub))
    folder = first_there(root, [folder + "/loader.conf" for folder in LOADER_FOLDERS])
    if folder:
        return dict(empty, **read_systemd_boot(root, unread, folder.rpartition("/")[0]))
    other = first_there(root, OTHER_MARKS)
    if other is None:
        for field in ("default_entry", "default_release", "can_clear_one_shot"):
            unread.add("boot." + field, "absent", "no boot loader lies on this machine's disk")
        return dict(empty, loader="none", one_shot_pending=False)
    unread.add(
        "boot.default_release",
        "absent",
        "only GRUB's and systemd-boot's configuration is read, found " + other,
    )
    return dict(empty, loader="other")


def read_grub(root: Root, unread: Unread, mounts: list[Mount] | None, cfg: str) -> dict[str, Any]:
    """GRUB's part of the boot facts. cfg: path of grub.cfg."""
    folder = cfg.rpartition("/")[0]
    environment = unread.attempt("boot.one_shot_entry", read_grubenv, root, folder)
    text = unread.attempt("boot.default_entry", root.text, cfg, CFG_LIMIT_BYTES)
    choice = None
    if text is not None:
        choice = parse_default(text) or "0"
        if choice == "saved":
            # If the environment block cannot be read, the saved entry is unknown; it is not entry
            # 0.
            choice = None if environment is None else environment.get("saved_entry") or "0"
    release = (
        release_of_choice(root, unread, text, choice)
        if text is not None and choice is not None
        else None
    )
    can_clear, why_not = can_grub_write(root, mounts, folder)
    one_shot = None if environment is None else environment.get("next_entry", "")
    return {
        "loader": "grub",
        "default_entry": clean_or_none(choice or "", 1024),
        "default_release": release,
        "one_shot_pending": None if one_shot is None else bool(one_shot),
        "one_shot_entry": clean_or_none(one_shot or "", 1024),
        "can_clear_one_shot": can_clear,
        "why_not": why_not,
    }


def read_grubenv(root: Root, folder: str) -> dict[str, str]:
    """{name: value} of the environment block; {} when there is none. Raises OSError if it cannot be
    read."""
    try:
        return parse_grubenv(root.data(folder + "/grubenv", 65536))
    except (FileNotFoundError, NotADirectoryError):
        return {}


def release_of_choice(root: Root, unread: Unread, text: str, choice: str) -> str | None:
    """The kernel release of the entry that GRUB chooses, or None with the reason noted."""
    entry = find_entry(parse_menu(text), choice)
    release = release_of_image(entry.kernel) if entry else None
    if release is None and "blscfg" in text:
        release = release_of_loader_choice(
            read_loader_entries(root, "/boot/loader/entries"), choice
        )
    if release is None:
        unread.add(
            "boot.default_release",
            "absent",
            f"no menu entry with a versioned kernel image answers to {choice!r}"[:512],
        )
    return release


def can_grub_write(
    root: Root, mounts: list[Mount] | None, folder: str
) -> tuple[bool | None, str | None]:
    """(True, None) when GRUB can clear next_entry itself; (False, reason); (None, None) when the
    mounts do not show it.

    GRUB writes its environment block through plain partitions only, never through LVM, RAID,
    encryption, ZFS or btrfs: there a one-shot entry would apply to every boot.
    """
    if mounts is None or not mounts:
        return None, None
    if not there(root, folder + "/grubenv"):
        return False, f"no {folder}/grubenv"
    mount = mount_of(mounts, folder + "/grubenv")
    if mount is None:
        return None, None
    where = f"{folder}/grubenv lies on {mount.source} ({mount.fs_type})"
    if mount.fs_type in ("zfs", "btrfs"):
        return False, clean_or_none(where + ": GRUB does not write to this file system", 512)
    if not mount.source.startswith("/dev/"):
        return False, clean_or_none(where + ": no block device", 512)
    block = "/sys/dev/block/" + mount.device
    if mount.source.startswith(("/dev/mapper/", "/dev/dm-")) or there(root, block + "/dm"):
        return False, clean_or_none(
            where + ": GRUB does not write through device mapper (LVM, encryption)", 512
        )
    if mount.source.startswith("/dev/md") or there(root, block + "/md"):
        return False, clean_or_none(where + ": GRUB does not write through software RAID", 512)
    return True, None


def read_systemd_boot(root: Root, unread: Unread, folder: str | None) -> dict[str, Any]:
    """systemd-boot's part of the boot facts. It removes a one-shot entry before it starts it, on
    any disk."""
    one_shot = read_efi_text(root, "LoaderEntryOneShot")
    entries = read_loader_entries(root, folder + "/entries") if folder else []
    choice = read_efi_text(root, "LoaderEntryDefault")
    if not choice and folder:
        text = unread.attempt("boot.default_entry", root.text, folder + "/loader.conf", 65536)
        choice = parse_loader_entry(text or "").get("default")
    release = release_of_loader_choice(entries, choice)
    if release is None:
        unread.add(
            "boot.default_release",
            "absent",
            f"no loader entry with a version answers to {choice!r}"[:512],
        )
    efi = there(root, EFIVARS)
    return {
        "loader": "systemd-boot",
        "default_entry": clean_or_none(choice or "", 1024),
        "default_release": release,
        "one_shot_pending": bool(one_shot) if efi else None,
        "one_shot_entry": clean_or_none(one_shot or "", 1024),
        "can_clear_one_shot": True if efi else None,
    }


def read_efi_text(root: Root, name: str) -> str | None:
    """The text of one of the loader's EFI variables (4 attribute bytes, then UTF-16), or None
    without it."""
    try:
        return (
            root.data(EFIVARS + name + "-" + VENDOR_UUID, 8192)[4:]
            .decode("utf-16-le", "replace")
            .rstrip("\0")
            or None
        )
    except (OSError, ValueError):
        return None


def read_loader_entries(root: Root, folder: str) -> list[tuple[str, str | None]]:
    """[(file name without .conf, release or None)] of Boot Loader Specification entries, newest
    release first."""
    entries = []
    for name in names_if_there(root, folder)[:ENTRY_FILES]:
        if not name.endswith(".conf"):
            continue
        try:
            values = parse_loader_entry(root.text(folder + "/" + name, 65536))
        except (OSError, ValueError):
            continue
        entries.append(
            (name[: -len(".conf")], values.get("version") or release_of_image(values.get("linux")))
        )
    return sorted(entries, key=lambda entry: release_key(entry[1] or ""), reverse=True)


def uncounted(entry: str) -> str:
    """The name of a loader entry without its boot counter, "+LEFT-DONE" at the end: Boot Loader
    Specification, boot counting."""
    return _COUNTER.sub("", entry)


def release_of_loader_choice(
    entries: list[tuple[str, str | None]], choice: str | None
) -> str | None:
    """The release of the entry that a number, a name or a pattern selects; without a choice the
    newest."""
    if not entries:
        return None
    number = integer_or_none(choice or "0")
    if number is not None and 0 <= number < len(entries):
        return clean_or_none(entries[number][1] or "", 256)
    wanted = (choice or "")[:256]
    wanted = wanted[: -len(".conf")] if wanted.endswith(".conf") else wanted
    for name, release in entries:
        if wanted in (name, uncounted(name)) or (
            "*" in wanted and wanted.count("*") < 3 and fnmatchcase(name, wanted)
        ):
            return clean_or_none(release or "", 256)
    return None
