"""Source software: driver, fabric manager, CUDA and packages, from local files that belong to the
system."""

from __future__ import annotations

import errno

from ...base.section import Unread, read_section
from ...base.untrusted_files import read_mounts_or_none
from ..sections.cuda import read_cuda
from ..sections.driver import read_driver, read_running
from ..sections.fabric_manager import read_fabric_manager
from ..sections.loader import read_loader
from ..sections.package_database import read_database
from ..sections.packages import read_packages
from .path_thread import read_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ...base.context import Context
    from ...base.root import Root
    from ...base.section import SectionPiece, SourcePiece, UnreadRow

SECTIONS = ("driver", "fabric_manager", "cuda", "packages")
MORE = "more of this section follows"
LIBRARIES = ("libnvidia-ml.so", "libcuda.so", "libcudnn.so")


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields (section, fields or exception, unread rows) for those of SECTIONS that are wanted."""
    root = ctx.root
    root.watch = ctx.mark
    if ctx.wanted("driver"):
        # Read first and alone: a package database that blocks must not cost the loaded version.
        running = read_section("driver", read_running, root)
        if isinstance(running[1], dict):
            yield (*running, MORE)
    mounts = read_mounts_or_none(root)
    # values that several sections need are read once; each section reports the values that it lacks
    shared = Unread()
    loader = read_loader(root, shared, "userspace", mounts, LIBRARIES)
    # A package database that blocks costs section packages, and the fields of other sections that
    # need it.
    _name, found, database_rows = read_alone(ctx, "packages", "installed", _read_database)
    manager, database = (
        found.get("database", (None, None)) if isinstance(found, dict) else (None, None)
    )
    rows = shared.rows + database_rows
    if ctx.wanted("driver"):
        yield _with(
            read_section("driver", read_driver, root, loader, mounts, database),
            [row for row in rows if row["field"] == "userspace"],
        )
    if ctx.wanted("fabric_manager"):
        yield read_section("fabric_manager", read_fabric_manager, root, database)
    if ctx.wanted("cuda"):
        yield read_section("cuda", read_cuda, root, loader, mounts, database)
    if ctx.wanted("packages"):
        late = [row["reason"] for row in database_rows if row["status"] == "timeout"]
        if late:
            yield "packages", OSError(errno.ETIMEDOUT, late[0]), []
        else:
            yield _with(
                read_section("packages", read_packages, root, manager, database),
                [row for row in rows if row["field"] == "installed"],
            )


def _read_database(root: Root, unread: Unread) -> dict[str, Any]:
    return {"database": read_database(root, unread, "installed")}


def _with(piece: SectionPiece, rows: Iterable[UnreadRow]) -> SectionPiece:
    name, fields, unread = piece
    return name, fields, list(rows) + list(unread)
