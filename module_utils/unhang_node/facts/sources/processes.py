"""Source processes: the processes that hold GPUs, their libraries and settings. A source of its
own, because its calls may wait for a stuck process."""

from __future__ import annotations

import os

from ...base.section import Unread, read_section
from ...base.untrusted_files import read_mounts_or_none
from ..sections.extension_caches import CACHE, read_cache
from ..sections.processes import (
    holder_rows,
    read_holders,
    read_mapped,
    read_mapped_nccl,
    read_mapped_torch,
)
from ..sections.settings_files import SettingsReader, read_user_conf
from ..sections.users import read_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ...base.context import Context
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import SourcePiece, UnreadRow
    from ..sections.processes import Holder
    from ..sections.users import User

SECTIONS = ("gpus", "nccl", "torch")


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields pieces of gpus (holders), nccl (mapped libraries, plugins, settings) and torch (mapped
    environments, caches of the processes' users)."""
    root = ctx.root
    root.watch = ctx.mark
    unread = Unread()
    users = read_users(root)
    try:
        holders = read_holders(
            root, unread, users, collector=os.getppid() if root.is_live else None
        )
    except OSError as problem:
        if ctx.wanted("gpus"):
            yield "gpus", {"holders": None}, _row_of("holders", problem)
        return
    if ctx.wanted("gpus"):
        yield "gpus", {"holders": holder_rows(holders)}, unread.rows
    if not (ctx.wanted("nccl") or ctx.wanted("torch")):
        return
    not_mapped = Unread()
    mapped = read_mapped(root, not_mapped, holders)
    if ctx.wanted("nccl"):
        name, fields, rows = read_section("nccl", read_mapped_nccl, root, mapped, holders)
        yield name, fields, not_mapped.rows + rows
    if ctx.wanted("torch"):
        yield read_section("torch", read_mapped_torch, root, mapped)
    # Home folders come last, because they are the most likely to hang.
    mounts = read_mounts_or_none(root)
    for user in _other_users(holders, users):
        if ctx.wanted("nccl"):
            yield read_section("nccl", _read_conf, root, mounts, user)
        if ctx.wanted("torch"):
            yield read_section("torch", _read_cache, root, mounts, user, ctx.now_s)


def _other_users(holders: list[Holder], users: dict[int, User]) -> list[User]:
    """Users of the holders on the host, except root, whose files the source `libraries` reads."""
    uids = sorted({holder.uid for holder in holders if holder.uid and holder.where != "container"})
    return [users[uid] for uid in uids if uid in users and users[uid].home.startswith("/")][:64]


def _read_conf(root: Root, unread: Unread, mounts: list[Mount], user: User) -> dict[str, Any]:
    reader = SettingsReader(root, unread, mounts)
    read_user_conf(reader, user.home, user.uid)
    return {"settings": [setting.row() for setting in reader.settings]}


def _read_cache(
    root: Root, unread: Unread, mounts: list[Mount], user: User, now_s: float
) -> dict[str, Any]:
    cache = read_cache(root, unread, mounts, user.home + CACHE, user.name, now_s, owner=user.uid)
    return {"extension_caches": [cache] if cache else []}


def _row_of(field: str, problem: BaseException) -> list[UnreadRow]:
    unread = Unread()
    unread.of_error(field, problem)
    return unread.rows
