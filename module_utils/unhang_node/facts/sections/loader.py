"""The run-time linker's view of this node: the folders that it searches, and the file that it would
load for a library's name."""

from __future__ import annotations

import fnmatch
import os

from ...base.named_tuple import NamedTuple
from ...base.untrusted_files import (
    CONFIG_LIMIT_BYTES,
    names_or_none,
    read_file,
    read_text,
    resolve_local,
)
from ..parse.ld_so import CACHE_LIMIT_BYTES, parse_cache, parse_conf
from .reading import there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

CACHE = "/etc/ld.so.cache"
CONF = "/etc/ld.so.conf"
DEFAULT_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
MAX_FOLDERS = 256
MAX_CONF_FILES = 128


class Loader(NamedTuple):
    """cached: (soname, path) in the linker's order; folders: those of ld.so.conf, then the built-in
    ones, links followed, each once; listed: {folder: names} of the folders that changed after the
    cache was written, so that the cache may be wrong about them."""

    cached: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    listed: dict[str, list[str]]


def read_loader(
    root: Root, unread: Unread, field: str, mounts: list[Mount], prefixes: tuple[str, ...]
) -> Loader:
    """Loader for libraries whose file names begin with one of `prefixes`. field: the field to note
    as unread when something cannot be read."""
    cached: tuple[tuple[str, str], ...] = ()
    cache_time = None
    try:
        cached = tuple(parse_cache(read_file(root, CACHE, CACHE_LIMIT_BYTES), prefixes))
        cache_time = root.stat(CACHE).st_mtime
    except (OSError, ValueError) as problem:
        if not isinstance(problem, FileNotFoundError):
            unread.of_error(field, problem)
    folders: list[str] = []
    listed = {}
    for folder in _conf_folders(root, unread, field) + list(DEFAULT_FOLDERS):
        try:
            place = resolve_local(root, mounts, folder)
            if place in folders or len(folders) >= MAX_FOLDERS:
                continue
            changed = root.stat(place).st_mtime
            folders.append(place)
            # In a recorded tree the times of files mean nothing.
            if cache_time is None or changed > cache_time or not root.is_live:
                listed[place] = [
                    name for name in names_or_none(root, place) if name.startswith(prefixes)
                ]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            unread.of_error(field, problem)
    return Loader(cached=cached, folders=tuple(folders), listed=listed)


def _conf_folders(root: Root, unread: Unread, field: str) -> list[str]:
    """Folders that ld.so.conf and what it includes name, in order."""
    seen: set[str] = set()
    folders, pending = [], [CONF]
    while pending and len(seen) < MAX_CONF_FILES:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            rows = parse_conf(read_text(root, path, CONFIG_LIMIT_BYTES))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as problem:
            unread.of_error(field, problem)
            continue
        for kind, word in rows:
            if kind == "folder" and word.startswith("/"):
                folders.append(word)
            elif kind == "include":
                pending.extend(_matching(root, os.path.join(os.path.dirname(path), word)))
    return folders


def _matching(root: Root, pattern: str) -> list[str]:
    """Files of one folder that a pattern such as /etc/ld.so.conf.d/*.conf names."""
    folder, name = os.path.split(pattern)
    try:
        return [folder + "/" + each for each in fnmatch.filter(names_or_none(root, folder), name)]
    except OSError:
        return []


def find_in_loader(loader: Loader, prefix: str) -> list[str]:
    """Paths of files whose name begins with `prefix`, first those of the cache in the linker's
    order, then files that are only in a folder."""
    paths = [
        path
        for soname, path in loader.cached
        if soname.startswith(prefix) or os.path.basename(path).startswith(prefix)
    ]
    for folder in loader.folders:
        paths.extend(
            folder + "/" + name for name in loader.listed.get(folder, ()) if name.startswith(prefix)
        )
    return list(dict.fromkeys(paths))


def taken_for(root: Root, loader: Loader, soname: str) -> str | None:
    """The path that a plain dlopen(soname) loads without LD_LIBRARY_PATH, or None. The cache
    decides; a file that was added after the last ldconfig is found only in the built-in folders.
    """
    for name, path in loader.cached:
        if name == soname and there(root, path):
            return path
    for folder in loader.folders:
        if folder in DEFAULT_FOLDERS and soname in loader.listed.get(folder, ()):
            return folder + "/" + soname
    return None
