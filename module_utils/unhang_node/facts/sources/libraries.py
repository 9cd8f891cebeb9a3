"""Source libraries: NCCL and torch on the disk, and the settings that affect them. Local files come
first: a path that a policy names may be on a file system that hangs, and the pieces that were
yielded before it are kept."""

from __future__ import annotations

from ...base.section import Unread, read_section
from ...base.untrusted_files import read_mounts_or_none
from ..sections.extension_caches import CACHE, megatron_builds, read_cache
from ..sections.nccl import read_libraries, read_local_nccl, read_named_nccl
from ..sections.nccl_libraries import site_libraries
from ..sections.torch import named_site_packages, read_environment, system_site_packages
from ..sections.users import read_users, user_of_home
from .path_thread import read_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ...base.context import Context
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import SectionPiece, SourcePiece

SECTIONS = ("nccl", "torch")


def read(ctx: Context) -> Iterator[SourcePiece]:
    """Yields (section, fields or exception, unread rows), each section once for the local files and
    once for each named path; a fourth item means that more of that section follows. The lists of
    the pieces are joined. Options: torch_environments and nccl_roots (named paths), hash_libraries.
    """
    roots, environments = (
        ctx.options.get("nccl_roots") or [],
        ctx.options.get("torch_environments") or [],
    )
    remaining = {"nccl": len(roots) + len(environments), "torch": len(environments)}
    for piece in _pieces(ctx, roots, environments):
        yield piece if remaining[piece[0]] == 0 else (*piece, "more")
        remaining[piece[0]] -= 1


def _pieces(ctx: Context, roots: list[str], environments: list[str]) -> Iterator[SectionPiece]:
    root = ctx.root
    root.watch = ctx.mark
    mounts = read_mounts_or_none(root)
    sha256 = bool(ctx.options.get("hash_libraries"))
    shared = Unread()
    sites = system_site_packages(root, shared, mounts)
    libraries: list[dict[str, Any]] = []
    if ctx.wanted("nccl"):
        piece = read_section("nccl", read_local_nccl, root, sites, sha256)
        if isinstance(piece[1], dict):
            libraries = list(piece[1]["libraries"])
        yield piece
    if ctx.wanted("torch"):
        name, fields, rows = read_section(
            "torch", _read_local_torch, root, sites, libraries, mounts, ctx.now_s
        )
        yield name, fields, shared.rows + rows
    for path in roots:
        if ctx.wanted("nccl"):
            yield _remembering(
                libraries,
                read_alone(
                    ctx,
                    "nccl",
                    f"libraries[{path}]",
                    read_named_nccl,
                    path,
                    tuple(libraries),
                    sha256,
                ),
            )
    for path in environments:
        hangs = None
        if ctx.wanted("nccl"):
            piece = read_alone(
                ctx, "nccl", f"libraries[{path}]", _read_wheels, path, tuple(libraries), sha256
            )
            hangs = next((row["reason"] for row in piece[2] if row["status"] == "timeout"), None)
            yield _remembering(libraries, piece)
        if ctx.wanted("torch") and hangs:
            yield (
                "torch",
                {},
                [{"field": f"environments[{path}]", "status": "timeout", "reason": hangs}],
            )
        elif ctx.wanted("torch"):
            yield read_alone(
                ctx,
                "torch",
                f"environments[{path}]",
                _read_named_torch,
                path,
                tuple(libraries),
                ctx.now_s,
            )


def _remembering(libraries: list[dict[str, Any]], piece: SectionPiece) -> SectionPiece:
    """Returns the piece, after adding the libraries in it to `libraries`, so that no file is read
    twice."""
    if isinstance(piece[1], dict):
        libraries.extend(piece[1].get("libraries") or [])
    return piece


def _read_local_torch(
    root: Root,
    unread: Unread,
    sites: Iterable[str],
    libraries: Iterable[dict[str, Any]],
    mounts: Sequence[Mount],
    now_s: float,
) -> dict[str, Any]:
    environments = [
        read_environment(root, unread, folder, "system", libraries=libraries) for folder in sites
    ]
    cache = read_cache(root, unread, mounts, "/root" + CACHE, "root", now_s, owner=0)
    return {"environments": environments, "extension_caches": [cache] if cache else []}


def _read_wheels(
    root: Root, _unread: Unread, path: str, libraries: Iterable[dict[str, Any]], sha256: bool
) -> dict[str, Any]:
    """The NCCL in a named environment; an environment without one is not at fault."""
    try:
        folders = named_site_packages(root, path)
    except (OSError, ValueError):
        return {"libraries": []}  # section torch reports this error already
    rows: list[dict[str, Any]] = []
    for folder in folders:
        rows.extend(
            read_libraries(
                root,
                Unread(),
                site_libraries(root, folder),
                (*libraries, *rows),
                "site_packages",
                sha256,
            )
        )
    return {"libraries": rows}


def _read_named_torch(
    root: Root, unread: Unread, path: str, libraries: Iterable[dict[str, Any]], now_s: float
) -> dict[str, Any]:
    """A named path is an environment, a home folder (its extension cache is read), or a Megatron
    checkout (its fused kernels' build folder is)."""
    user = user_of_home(read_users(root), path)
    builds = unread.attempt(f"extension_caches[{path}]", megatron_builds, root, path) or []
    folders = []
    try:
        folders = named_site_packages(root, path)
    except (OSError, ValueError) as problem:
        if not (user or builds):
            unread.of_error(f"environments[{path}]", problem)
    caches = [read_cache(root, unread, (), build, None, now_s) for build in builds]
    if user:
        caches.append(
            read_cache(root, unread, (), path.rstrip("/") + CACHE, user.name, now_s, owner=user.uid)
        )
    environments = [
        read_environment(root, unread, folder, "policy", libraries=libraries) for folder in folders
    ]
    return {"environments": environments, "extension_caches": [cache for cache in caches if cache]}
