"""Reads one side of a comparison: nodes of a run, one machine's facts, or the environment of a
job."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts
from unhang.core.run.documents import MAX_NODE_BYTES
from unhang.core.run.run_folder import find_run
from unhang.core.run.run_input import natural, read_run_input
from unhang.core.schemas.configuration import probed_sections_type, text_of_section
from unhang.core.schemas.reading import nearest
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.text import visible
from unhang_node.base.parse.allowed_names import allowed_assignments
from unhang_node.base.parse.process_files import parse_environ

# section -> its text -> the nodes that have exactly that
Contents = dict[str, dict[bytes, list[str]]]


@dataclass(frozen=True)
class Side:
    """name: for people. hosts: that were read; contents of them; unread: hosts of this side that
    were not. environment: of a job, instead of nodes."""

    name: str
    hosts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    contents: Contents = field(default_factory=dict)
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Node:
    host: str
    groups: frozenset[str]
    # (section, its text); None for a node that was not read
    texts: tuple[tuple[str, bytes], ...] | None


def read_side(named: str, run: str) -> Side:
    """A file (facts of one machine, or what `env` printed), RUN, RUN:PART, or a part of `run`: an
    inventory group, or nodes. Raises UserError."""
    path = Path(named)
    if path.is_file():
        return _of_file(path)
    whole, colon, part = named.partition(":")
    if colon:
        return _of_run(whole, part, named)
    if (path / "run.json").is_file() or named == "latest" or named[:8].isdigit():
        return _of_run(named, None, named)
    return _of_run(run, named, named)


def _of_file(path: Path) -> Side:
    try:
        data = read_bounded(path, MAX_NODE_BYTES)
    except (OSError, NotStrict) as problem:
        raise UserError(f"{path}: cannot be read: {visible(str(problem), 200)}") from None
    if data.lstrip()[:1] != b"{":
        return Side(f"the environment in {path}", environment=_environment(path, data))
    try:
        document: Any = msgspec.json.decode(data, type=_document_type())
    except (ValueError, RecursionError) as problem:
        raise UserError(
            f"{path} is not a document of unhang collect: {visible(str(problem), 300)}"
        ) from None
    sections = document.sections if document.facts is None else document.facts.sections
    if sections is None:
        raise UserError(f"{path} is a document of unhang collect without sections")
    return _side(str(path), [_Node(document.host or path.stem, frozenset(), _texts(sections, {}))])


def _environment(path: Path, data: bytes) -> dict[str, str]:
    """Variables of a job's communication, by the collector's own list of names; nothing else of an
    environment is kept."""
    lines = data if b"\0" in data else data.replace(b"\n", b"\0")
    assignments = parse_environ(lines)
    if not assignments:
        raise UserError(
            f"{path} is neither what `env` prints (NAME=VALUE) nor a document of unhang collect"
        )
    return {
        row.name: row.value for row in allowed_assignments(assignments) if row.value is not None
    }


def _of_run(named: str, part: str | None, shown: str) -> Side:
    nodes = _nodes(find_run(named))
    if part is not None:
        nodes = _part(nodes, part)
    return _side(shown, nodes)


@lru_cache(maxsize=1)
def _nodes(folder: Path) -> list[_Node]:
    """All nodes of a run; both sides may be of one. What nodes have alike is kept once."""
    given = read_run_input(folder)
    kept: dict[bytes, bytes] = {}
    return [_read(host, given.files.get(host), kept) for host in given.document["hosts"]]


def _part(nodes: list[_Node], part: str) -> list[_Node]:
    """Nodes of a group, else those that a node set or pattern names. Raises UserError when there
    are none."""
    if among := [node for node in nodes if part in node.groups]:
        return among
    patterns = expand_limit(part)
    names = [node.host for node in nodes]
    missing = [one for one in patterns if not fnmatch.filter(names, one)]
    if missing:
        groups = sorted({group for node in nodes for group in node.groups})
        there = (
            f"its groups are {', '.join(groups[:12]) or 'none'}, its nodes {fold_hosts(names)};"
            " --run names another run"
        )
        raise UserError(
            f"{visible(missing[0], 200)!r} is neither a file nor a run, nor a group or node of the"
            f" run{nearest(missing[0], [*names, *groups])}; {visible(there, 600)}"
        )
    return [node for node in nodes if any(fnmatch.fnmatchcase(node.host, one) for one in patterns)]


def _side(name: str, nodes: Iterable[_Node]) -> Side:
    contents: Contents = {}
    read: list[str] = []
    unread: list[str] = []
    for node in nodes:
        (unread if node.texts is None else read).append(node.host)
        for section, text in node.texts or ():
            contents.setdefault(section, {}).setdefault(text, []).append(node.host)
    if not read:
        raise UserError(
            f"no node of {visible(name, 200)} was read ({visible(fold_hosts(unread), 300)})"
        )
    return Side(
        name, tuple(sorted(read, key=natural)), tuple(sorted(unread, key=natural)), contents
    )


def _texts(sections: Any, kept: dict[bytes, bytes]) -> tuple[tuple[str, bytes], ...]:
    """(section, text) of sections of probed_sections_type; kept: texts that are there already."""
    read = ((name, getattr(sections, name)) for name in sections.__struct_fields__)
    texts = ((name, text_of_section(section)) for name, section in read if section is not None)
    return tuple((name, kept.setdefault(text, text)) for name, text in texts)


def _read(host: str, path: Path | None, kept: dict[bytes, bytes]) -> _Node:
    """A node's document in a run; the judge reports files that cannot be read."""
    try:
        document: Any = (
            msgspec.json.decode(read_bounded(path, MAX_NODE_BYTES), type=_document_type())
            if path
            else None
        )
    except (OSError, NotStrict, ValueError, RecursionError):
        document = None
    if document is None or document.facts is None or document.facts.sections is None:
        return _Node(host, frozenset(document.groups if document else ()), None)
    return _Node(host, frozenset(document.groups), _texts(document.facts.sections, kept))


@cache
def _document_type() -> type:
    """A node's file of a run, or the facts of one machine."""
    sections = probed_sections_type() | None
    facts = msgspec.defstruct("Facts", [("sections", sections, None)])
    fields = [
        ("host", str, ""),
        ("groups", list[str], msgspec.field(default_factory=list)),
        ("facts", facts | None, None),
        ("sections", sections, None),
    ]
    return msgspec.defstruct("Document", fields)
