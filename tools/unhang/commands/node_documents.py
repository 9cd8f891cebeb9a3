"""`unhang judge` without a run: makes a run folder from node documents, which are files, folders of files, or standard input."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unhang.ansible.run_files import node_document, utc_now, write_node
from unhang.audit.collect.documents import split_documents
from unhang.audit.judge.documents import MAX_NODE_BYTES
from unhang.base.errors import UserError
from unhang.base.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.base.text import visible
from unhang.run import run_folder

STDIN = "-"
MOST_PIPED_BYTES = 512 << 20


def is_document(named: str) -> bool:
    """True for standard input, a file or the name of one that is not there, and a folder of files that is no run folder."""
    path = Path(named)
    return (
        named == STDIN
        or path.is_file()
        or (path.suffix == ".json" and not path.is_dir())
        or (path.is_dir() and not (path / "run.json").is_file() and any(path.glob("*.json")))
    )


def run_of_documents(named: Sequence[str]) -> Path:
    """A run folder with the nodes of these documents. Raises UserError for a file that is no node document, and for a duplicate host."""
    nodes: dict[str, dict[str, Any]] = {}
    for place, document in _documents(named):
        host = str(document["host"])
        if host in nodes:
            raise UserError(f"{place}: expected each node once, found {visible(host, 200)} again")
        nodes[host] = document
    folder = _new_folder()
    for document in nodes.values():
        write_node(folder, document)
    now = utc_now()
    head = {"schema": "unhang/run/1", "id": folder.name, "started": now, "finished": now, "inventory": None, "limit": None, "hosts": list(nodes)}
    run_folder.write_document(folder / "run.json", head)
    return folder


def _new_folder() -> Path:
    """A new run folder among the other runs, or in the folder for temporary files if that cannot be written."""
    folder = run_folder.runs_folder() / run_folder.new_run_id()
    try:
        run_folder.make_folder(folder)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="unhang-run-"))
        (folder / "nodes").mkdir()
    return folder


def _documents(named: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in named:
        if one == STDIN:
            yield from _piped_documents()
            continue
        for path in sorted(Path(one).glob("*.json")) if Path(one).is_dir() else [Path(one)]:
            yield str(path), _node(str(path), path.stem, _read(str(path), path))


def _piped_documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents on standard input, one after another, with or without line breaks between them."""
    data = sys.stdin.buffer.read(MOST_PIPED_BYTES + 1)
    if len(data) > MOST_PIPED_BYTES:
        raise UserError(f"standard input: expected at most {MOST_PIPED_BYTES >> 20} MiB, found more; put the documents into a folder and judge that")
    parts = list(split_documents(io.BytesIO(data))) or [b""]
    for number, part in enumerate(parts, 1):
        place = "standard input" if len(parts) == 1 else f"standard input, document {number}"
        yield place, _node(place, "", _read(place, part))


def _read(place: str, source: Path | bytes) -> Any:
    try:
        data = read_bounded(source, MAX_NODE_BYTES) if isinstance(source, Path) else source
        if len(data) > MAX_NODE_BYTES:
            raise UserError(f"{place}: expected at most {MAX_NODE_BYTES:,} bytes, found {len(data):,}")
        return parse_strictly(data)
    except OSError as problem:
        raise UserError(f"{place}: cannot be read: {problem.strerror}") from None
    except NotStrict as problem:
        raise UserError(f"{place}: expected a document of unhang collect, found: {visible(str(problem), 300)}") from None


def _node(place: str, stem: str, document: Any) -> dict[str, Any]:
    """A node document (unhang/node/1), from such a document or from the facts of one machine."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == "unhang/node/1" and isinstance(document.get("host"), str):
        return dict(document)
    if schema != "unhang/node-facts/1":
        found = f"schema {visible(schema, 80)}" if schema else type(document).__name__
        raise UserError(f"{place}: expected a document of unhang collect (unhang/node-facts/1) or a node's file of a run (unhang/node/1), found {found}")
    sections = document.get("sections")
    node = sections.get("node") if isinstance(sections, dict) else None
    hostname = node.get("hostname") if isinstance(node, dict) else None
    return node_document(hostname if isinstance(hostname, str) and hostname else stem.strip("-") or "localhost", [], {}, "ok", None, document)
