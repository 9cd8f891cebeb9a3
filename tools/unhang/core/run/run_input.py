"""Reads a run folder for the judge: one node document after another, in whatever state the files
are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unhang.core.errors import UserError
from unhang.core.run.documents import MAX_NODE_BYTES, InvalidNode, NodeDocument, decode_node
from unhang.core.run.run_folder import file_stem
from unhang.core.schemas.check import check_schema
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded

MAX_RUN_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class RunInput:
    """run.json of a folder, and its node files as host -> path."""

    folder: Path
    document: dict[str, Any]
    files: dict[str, Path]


def read_run_input(folder: Path) -> RunInput:
    """Raises UserError if this is no run folder."""
    path = folder / "run.json"
    try:
        document = parse_strictly(read_bounded(path, MAX_RUN_BYTES))
    except OSError as problem:
        raise UserError(
            f"{path} cannot be read: {problem.strerror}; make a run folder with: unhang audit"
        ) from None
    except NotStrict as problem:
        raise UserError(f"{path}: {problem}") from None
    for fault in check_schema(document, "run-1"):
        raise UserError(
            f"{path}: {'.'.join(str(part) for part in fault.path) or 'run'}: {fault.message}"
        )
    return RunInput(folder, document, node_paths(folder, document["hosts"]))


def of_one_host(run: RunInput, host: str) -> RunInput:
    """The run as if it had asked this host alone. Raises UserError for a host that is not of it."""
    if host not in run.document["hosts"] and host not in run.files:
        raise UserError(f"{host!r} is not a host of the run {run.folder}")
    files = {name: path for name, path in run.files.items() if name == host}
    return RunInput(run.folder, {**run.document, "hosts": [host]}, files)


def node_paths(folder: Path, meant: Iterable[str]) -> dict[str, Path]:
    """host -> its file in a run folder, in the natural order of the hosts. meant: the run's hosts,
    because the file name of a very long host name does not contain it."""
    try:
        names = [
            entry.name for entry in os.scandir(folder / "nodes") if entry.name.endswith(".json")
        ]
    except OSError:
        return {}
    known = {file_stem(host): host for host in meant}
    stems = {name: name.removesuffix(".json") for name in names}
    files = {
        known.get(stem) or unquote(stem, errors="replace"): folder / "nodes" / name
        for name, stem in sorted(stems.items())
    }
    return {host: files[host] for host in sorted(files, key=natural)}


def read_nodes(run: RunInput) -> Iterator[NodeDocument]:
    """Every host of the run in natural order; hosts without a file come last, with status
    missing."""
    for host, path in run.files.items():
        yield read_node(host, path)
    for host in sorted(set(run.document["hosts"]) - set(run.files), key=natural):
        yield NodeDocument(
            host, (), {}, "missing", "the audit ended before it asked this node", None
        )


def read_node(host: str, path: Path) -> NodeDocument:
    """One node file; an unusable file becomes a node with status invalid and the reason as its
    message."""
    try:
        document = decode_node(read_bounded(path, MAX_NODE_BYTES))
        if document.host != host:
            raise InvalidNode(
                f"the file is called {host[:80]!r} and contains {document.host[:80]!r}"
            )
    except OSError as problem:
        return _invalid(host, f"{path.name} cannot be read: {problem.strerror}")
    except (InvalidNode, NotStrict) as problem:
        return _invalid(host, str(problem))
    return document


def _invalid(host: str, reason: str) -> NodeDocument:
    return NodeDocument(host, (), {}, "invalid", reason, None)


_DIGITS = re.compile(r"([0-9]+)")


def natural(host: str) -> list[Any]:
    """Sort key: gpu9 before gpu10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in _DIGITS.split(host)
        if part
    ]
