"""Processes that hold a GPU: their users, the NCCL and torch that they have mapped, and the
settings in their environment.

Only processes with /dev/nvidia* open are inspected. A command line is never read; of an environment
only the allowed variables leave the node.
"""

from __future__ import annotations

import os

from ...base.named_tuple import NamedTuple
from ...base.parse.allowed_names import allowed_assignments
from ...base.parse.process_files import (
    container_of,
    held_devices,
    mapped_libraries,
    parse_environ,
    parse_parent,
    parse_uid,
    site_packages_of,
)
from ...base.parse.values import clean_or_none
from ...base.root import Root
from ...base.section import Unread
from ...base.untrusted_files import lstat_place
from ..parse.launch_paths import Setting
from .nccl_libraries import is_plugin, plugin_name, read_library
from .reading import kernel_threads, text_if_there
from .torch import read_environment
from .users import user_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .users import User

    Mapped = dict[tuple[str | None, str], tuple[list["Holder"], bool]]

MAX_HOLDERS = 512
MAX_PROCESSES = 256
MAX_DESCRIPTORS = 200000
MAX_SETTINGS = 512
MAPS_LIMIT_BYTES = 16 << 20
ENVIRON_LIMIT_BYTES = 2 << 20


class Holder(NamedTuple):
    """One process with a GPU open. where: host or container, None if that could not be determined;
    container: its runtime and id, if its control group shows them."""

    pid: str
    uid: int | None
    user: str | None
    command: str | None
    where: str | None
    container: str | None
    devices: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """As the schema's process_list has it."""
        return {
            "pid": int(self.pid),
            "user": self.user,
            "command": self.command,
            "where": self.where,
            "memory_mib": None,
            "use": None,
        }


def read_holders(
    root: Root, unread: Unread, users: dict[int, User], collector: int | None = None
) -> list[Holder]:
    """[Holder] of the whole node, by pid. Raises OSError when the processes cannot be listed.

    collector: process id of the collector; its children (one of them has the driver open) belong to
    no job and are skipped.
    """
    held, denied, looked_at = {}, 0, 0
    of_the_kernel = kernel_threads(root)
    for pid in sorted(
        (name for name in root.names("/proc") if name.isdigit() and name not in of_the_kernel),
        key=int,
    ):
        try:
            targets = _open_devices(root, pid)
        except PermissionError:
            denied += 1
            continue
        except OSError:
            continue  # the process has ended meanwhile
        looked_at += targets[1]
        devices = held_devices(targets[0])
        if devices and not (
            collector and parse_parent(text_if_there(root, "/proc/" + pid + "/status")) == collector
        ):
            held[pid] = devices
        if looked_at > MAX_DESCRIPTORS or len(held) >= MAX_HOLDERS:
            unread.add(
                "holders",
                "error",
                f"cut after {len(held)} processes that hold a GPU and {looked_at} open files",
            )
            break
    if denied:
        unread.add(
            "holders", "denied", f"open files of other users' processes ({denied}) need root"
        )
    return [_identify(root, pid, devices, users) for pid, devices in held.items()]


def _place(root: Root, path: str) -> str:
    """This machine's path of a path below the node's /proc. The text of a magic link
    (/proc/<pid>/root) is never used."""
    places = root.candidates(path)
    return places[0] if len(places) == 1 else lstat_place(root, path)


def _open_devices(root: Root, pid: str) -> tuple[list[str], int]:
    """([targets that are NVIDIA devices], number of descriptors)."""
    folder = _place(root, "/proc/" + pid + "/fd")
    names = os.listdir(folder)
    targets = []
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            targets.append(target)
    return targets, len(names)


def _identify(root: Root, pid: str, devices: Iterable[str], users: dict[int, User]) -> Holder:
    folder = "/proc/" + pid
    uid = parse_uid(text_if_there(root, folder + "/status"))
    container = container_of(text_if_there(root, folder + "/cgroup"))
    command = clean_or_none(text_if_there(root, folder + "/comm"), 64)
    return Holder(
        pid=pid,
        uid=uid,
        user=user_name(users, uid),
        command=command,
        where=_where(root, pid, container),
        container=container,
        devices=tuple(devices),
    )


def _where(root: Root, pid: str, container: str | None) -> str | None:
    """host or container: a process whose root folder is not the collector's is in a container, of
    any runtime; if that cannot be read, its control group decides."""
    if container:
        return "container"
    try:
        status = os.stat(_place(root, "/proc/" + pid + "/root"))
        own = root.stat("/")
    except FileNotFoundError:
        return None if root.is_live else "host"
    except OSError:
        return None
    return "host" if (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino) else "container"


def holder_rows(holders: list[Holder]) -> list[dict[str, Any]]:
    """Rows of gpus.holders: one for each device that a process holds."""
    rows = []
    for holder in holders:
        for device in holder.devices:
            rows.append(
                {
                    "device": device,
                    "pid": int(holder.pid),
                    "user": holder.user,
                    "command": holder.command,
                    "where": holder.where,
                }
            )
    return rows[:MAX_HOLDERS]


def read_mapped(root: Root, unread: Unread, holders: list[Holder]) -> Mapped:
    """{(container or None, path): ([Holder], replaced)} of the libraries of interest that the
    holders have mapped."""
    mapped: Mapped = {}
    for holder in holders[:MAX_PROCESSES]:
        path = f"/proc/{holder.pid}/maps"
        try:
            maps = root.data(path, MAPS_LIMIT_BYTES)
        except FileNotFoundError:
            continue
        except OSError as problem:
            unread.of_error("libraries", problem)
            continue
        for library, replaced in mapped_libraries(maps).items():
            key = (_container_key(root, holder), library)
            users_of_it, before = mapped.get(key, ([], False))
            mapped[key] = ([*users_of_it, holder], before or replaced)
    return mapped


def _container_key(root: Root, holder: Holder) -> str | None:
    """A key for the file tree of a process: None on the host, the container's name, or, without a
    name, its root folder."""
    if holder.where != "container":
        return None
    if holder.container:
        return holder.container
    try:
        status = os.stat(_place(root, f"/proc/{holder.pid}/root"))
        return f"root:{status.st_dev}:{status.st_ino}"
    except OSError:
        return "pid:" + holder.pid


def process_root(root: Root, holder: Holder) -> Root:
    """The file tree that a process sees. Symbolic links are followed inside it, so that a link in a
    container never leads to the host's files."""
    if holder.where != "container":
        return root
    inside = Root([_place(root, f"/proc/{holder.pid}/root")])
    inside.watch = root.watch
    return inside


def read_mapped_nccl(
    root: Root, unread: Unread, mapped: Mapped, holders: list[Holder]
) -> dict[str, Any]:
    """A fragment of section nccl: libraries and plugins that are mapped, and settings in the
    environments of the processes."""
    libraries, plugins = [], []
    for (container, path), (owners, replaced) in mapped.items():
        where = "host" if container is None else "container"
        if is_plugin(path):
            plugins.append({"path": path, "name": plugin_name(path), "where": where})
        elif os.path.basename(path).startswith("libnccl.so"):
            libraries.append(_mapped_library(root, unread, container, path, owners, replaced))
    return {
        "libraries": libraries,
        "net_plugins": plugins,
        "settings": read_process_settings(root, unread, holders),
    }


def _mapped_library(
    root: Root,
    unread: Unread,
    container: str | None,
    path: str,
    owners: list[Holder],
    replaced: bool,
) -> dict[str, Any]:
    field = f"libraries[{path}]"
    inside = process_root(root, owners[0])
    hidden = Unread()
    row = read_library(
        inside, hidden, path, "mapped", "host" if container is None else "container", field=field
    )
    if replaced:
        # The file at this path now is not the one that is mapped.
        row.update(version=None, cuda=None, build_id=None, size_bytes=None)
        unread.add(
            field + ".version",
            "absent",
            "the file was replaced or removed since these processes mapped it",
        )
    else:
        for each in hidden.rows:
            unread.add(each["field"], each["status"], each["reason"])
    row["container"] = container
    row["mapped_by"] = [owner.row() for owner in owners[:MAX_PROCESSES]]
    return row


def read_process_settings(
    root: Root, unread: Unread, holders: list[Holder]
) -> list[dict[str, Any]]:
    """Rows of nccl.settings with source process: each name and value once, under the first process
    that has it."""
    rows: list[dict[str, Any]] = []
    seen = set()
    for holder in holders[:MAX_PROCESSES]:
        path = f"/proc/{holder.pid}/environ"
        try:
            assignments = parse_environ(root.data(path, ENVIRON_LIMIT_BYTES))
        except FileNotFoundError:
            continue
        except OSError as problem:
            unread.of_error("settings", problem)
            continue
        for each in allowed_assignments(assignments):
            if (each.name, each.value) not in seen and len(rows) < MAX_SETTINGS:
                seen.add((each.name, each.value))
                rows.append(
                    Setting(
                        name=each.name,
                        value=each.value,
                        file=path,
                        line=None,
                        source="process",
                        launch_paths=(),
                    ).row()
                )
    return rows


def read_mapped_torch(root: Root, unread: Unread, mapped: Mapped) -> dict[str, Any]:
    """A fragment of section torch: the environments whose torch the holders have mapped."""
    rows, seen = [], set()
    for (container, path), (owners, _replaced) in mapped.items():
        folder = site_packages_of(path)
        if folder is None or (container, folder) in seen:
            continue
        seen.add((container, folder))
        rows.append(
            read_environment(process_root(root, owners[0]), unread, folder, "mapped", container)
        )
    return {"environments": rows[:64]}
