"""Reads the catalogue's own files strictly once, and caches their values for the next start, as
long as file, reader and Python are the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import unhang
from unhang.core.kept_files import digest_of, digest_of_files, keep, read_kept
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.strict_yaml import MAX_BYTES, Place, load_yaml, parse_yaml

PACKAGE = Path(unhang.__file__).resolve().parent
# the lines of a file's tables and rows are cached; lines inside them are found by reading the file
# again
DEEP = 2
_READERS = (
    "core/kept_files.py",
    "core/strict_json.py",
    "core/strict_yaml.py",
    "core/catalogue/kept_yaml.py",
)


class ReadFile(NamedTuple):
    """A file's values, their lines, and a digest of its bytes (b"" for a file that is not
    cached)."""

    content: Any
    places: Mapping[tuple, Place]
    digest: bytes = b""


class _Places(Mapping[tuple, Place]):
    """Lines of values: of tables and rows from the cache, of all other values by reading the file
    again for an error message."""

    def __init__(self, data: bytes, name: str, near: dict[tuple, Place]):
        self._data, self._name, self._near = data, name, near

    @cached_property
    def _all(self) -> Mapping[tuple, Place]:
        return parse_yaml(self._data, self._name)[1]

    def __getitem__(self, path: tuple) -> Place:
        return self._near[path] if path in self._near else self._all[path]

    def __contains__(self, path: object) -> bool:
        return path in self._near or (
            isinstance(path, tuple) and len(path) > DEEP and path in self._all
        )

    def __iter__(self) -> Iterator[tuple]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def folders_of(kind: str) -> list[Path]:
    """The folders of one kind of rows (rules, tables, entries, signatures, causes): a wing keeps
    its own in its catalogue/."""
    return sorted(PACKAGE.glob(f"*/catalogue/{kind}"))


def is_built_in(path: Path) -> bool:
    """True for a file or folder of the project's own catalogue."""
    return path.is_relative_to(PACKAGE) and "catalogue" in path.relative_to(PACKAGE).parts


def read_yaml(path: Path) -> ReadFile:
    """load_yaml with a cache for the files of the project's own catalogue. Raises YamlFault."""
    if not is_built_in(path):
        return ReadFile(*load_yaml(path))
    try:
        data = read_bounded(path, MAX_BYTES)
    except (OSError, NotStrict):
        return ReadFile(*load_yaml(path))  # reports the fault
    name, digest = (
        "-".join((*path.relative_to(PACKAGE).parts, sys.implementation.cache_tag or "")),
        digest_of(data),
    )
    key = digest_of(_reader(), digest)
    if (kept := read_kept(name, key)) is not None:
        content, near = json.loads(kept)
        return ReadFile(
            content,
            _Places(data, str(path), {tuple(at): Place(line, column) for at, line, column in near}),
            digest,
        )
    content, places = load_yaml(path)
    _keep(name, key, content, places)
    return ReadFile(content, places, digest)


def code_digest(*names: str) -> bytes:
    """A digest of this Python and of the named files and folders of the package unhang. Raises
    OSError."""
    paths = [PACKAGE / name for name in names]
    files = [
        one
        for path in paths
        for one in (
            sorted(path.glob("*.py")) + sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        )
    ]
    return digest_of(unhang.__version__.encode(), sys.version.encode(), digest_of_files(files))


@cache
def _reader() -> bytes:
    return digest_of(code_digest(*_READERS), yaml.__version__.encode())


def _keep(name: str, key: bytes, content: Any, places: Mapping[tuple, Place]) -> None:
    near = [(path, place.line, place.column) for path, place in places.items() if len(path) <= DEEP]
    keep(name, key, json.dumps((content, near), separators=(",", ":")).encode())
