"""The space that a change of packages needs on each file system, and whether there is enough."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ..atomic_files import STATE_FOLDER, place_of
from .values import Step

MIB = 1 << 20
ROOM_PLACES = ("/", "/usr", "/var", STATE_FOLDER, "/boot")
KERNEL_IMAGE = "linux-image-"
# Packages whose scripts rebuild the initial ramdisk; the new one is written beside the old one.
REBUILDS: tuple[str, ...] = (
    KERNEL_IMAGE,
    "initramfs-tools",
    "nvidia-kernel",
    "nvidia-dkms",
    "nvidia-open-kernel",
    "nvidia-tesla",
)
REBUILDS += ("linux-modules-nvidia", "firmware-", "dracut")
UNKNOWN_IMAGE_BYTES = 100 * MIB
BUILD_BYTES = 400 * MIB  # a DKMS build of the NVIDIA modules, with its objects


def boot_bytes(steps: Sequence[Step], images: Sequence[int], ramdisks: Sequence[int]) -> int:
    """Bytes that the steps need on /boot. images, ramdisks: sizes of the present ones."""
    changed = [step for step in steps if step.after is not None]
    new = [
        step
        for step in changed
        if step.before is None
        and step.name.startswith(KERNEL_IMAGE)
        and step.name[len(KERNEL_IMAGE) :][:1].isdigit()
    ]
    largest_pair = (max(images) if images else 0) + (max(ramdisks) if ramdisks else 0)
    need = len(new) * (largest_pair or UNKNOWN_IMAGE_BYTES)
    if ramdisks and any(step.name.startswith(REBUILDS) for step in changed):
        need += max(ramdisks)
    return need


def root_bytes(
    steps: Sequence[Step], sizes: Mapping[str, Tuple[int, int]], old_bytes: int
) -> Dict[str, int]:
    """{place: bytes}: unpacked files on /usr, builds on /var, packages where states are kept.

    sizes: {name: (download, installed)}; old_bytes: installed size of the replaced packages.
    """
    unpacked = sum(
        sizes.get(step.name.split(":")[0], (0, 0))[1] for step in steps if step.after is not None
    )
    largest = max([sizes.get(step.name.split(":")[0], (0, 0))[1] for step in steps] or [0])
    fetched = sum(
        sizes.get(step.name.split(":")[0], (0, 0))[0] for step in steps if step.after is not None
    )
    building = (
        BUILD_BYTES if any("dkms" in step.name and step.after is not None for step in steps) else 0
    )
    # A package to remove is packed first, to about half its size; its own space becomes free only
    # afterwards.
    return {
        "/usr": max(0, unpacked - old_bytes) + largest,
        "/var": building,
        STATE_FOLDER: fetched + old_bytes // 2,
    }


def lacking(
    needs: Mapping[str, int], rooms: Mapping[str, Tuple[int, int]], minima: Mapping[str, int]
) -> List[str]:
    """A line for each file system that would have less than its minimum.

    needs: {place: bytes}; rooms: {place: (device, free bytes)}; minima: {place: bytes}.
    """
    by_device: Dict[int, Dict[str, Any]] = {}
    for place in sorted(rooms):
        device, free = rooms[place]
        known = by_device.setdefault(device, {"places": [], "free": free, "need": 0, "minimum": 0})
        known["places"].append(place)
        known["need"] += needs.get(place, 0)
        known["minimum"] = max(known["minimum"], minima.get(place, 0))
    return [
        f"the file system of {' and '.join(row['places'])} has {row['free'] / MIB:.0f} MiB free and"
        f" needs {(row['need'] + row['minimum']) / MIB:.0f} ({row['need'] / MIB:.0f} for the"
        f" change, {row['minimum'] / MIB:.0f} to be left); make room there"
        for row in by_device.values()
        if row["need"] and row["free"] < row["need"] + row["minimum"]
    ]


def read_rooms(rootfs: str) -> Dict[str, Tuple[int, int]]:
    """{place: (device, free bytes)}; for a folder that does not exist yet, of its nearest existing
    parent. Raises OSError."""
    rooms = {}
    for path in ROOM_PLACES:
        place = place_of(rootfs, path)
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        space = os.statvfs(place)
        rooms[path] = (os.stat(place).st_dev, space.f_bavail * space.f_frsize)
    return rooms


def read_boot_sizes(rootfs: str) -> Tuple[List[int], List[int]]:
    """(sizes of kernels, sizes of initial ramdisks) in /boot, in bytes."""
    place = place_of(rootfs, "/boot")
    images, ramdisks = [], []
    for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
        known = os.path.join(place, name)
        if os.path.isfile(known) and not os.path.islink(known):
            if name.startswith(("vmlinuz", "vmlinux")):
                images.append(os.path.getsize(known))
            elif name.startswith(("initrd", "initramfs")):
                ramdisks.append(os.path.getsize(known))
    return images, ramdisks
