"""Reads the parts of a run folder that a report needs: findings.json, run.json, and one summary for each node file. Node files are read one after another and
only their summaries are kept, so that a run of ten thousand nodes fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from unhang.audit.judge.documents import MAX_NODE_BYTES, decode_plain
from unhang.audit.judge.run_input import node_paths
from unhang.base.errors import UserError
from unhang.base.secrets_in_text import masked_document, without_secrets
from unhang.base.strict_json import read_bounded
from unhang.base.text import visible
from unhang.show.report.topology import Topology, topology_of
from unhang.show.report.versions import versions_of

SIZE_LIMIT_BYTES = 512 * 1024 * 1024
MOST_SHARED = 4096  # parts of findings that are remembered, to be kept once


class Unreadable(UserError):
    """A run folder without a possible report; the text has what was found, where, and what to do."""


@dataclass(frozen=True)
class NodeSummary:
    """The page's data about a node besides its findings."""

    host: str
    groups: tuple[str, ...]
    status: str
    message: str
    gpus: str
    driver: str
    kernel: str
    nccl: str
    unread: tuple[str, ...]  # sections that were not read, as `network (timeout)`
    topology: Topology | None
    versions: Mapping[str, str] = field(default_factory=dict)  # result of versions_of


class _Cause(msgspec.Struct):
    rule: str
    severity: str
    title: str
    nodes: list[str]
    findings: list[int]
    remedy: dict[str, Any]


class _Finding(msgspec.Struct):
    rule: str
    severity: str
    verdict: str
    title: str
    expected: str
    found: str


class _Catalogue(msgspec.Struct):
    rules: int | None = None


class _Findings(msgspec.Struct):
    causes: list[_Cause]
    findings: list[_Finding]
    host_count: int = 0
    node_verdicts: dict[str, list[str]] = {}
    totals_by_rule: dict[str, dict[str, int]] = {}
    totals_by_severity: dict[str, int] = {}
    totals: dict[str, int] = {}
    nodes: dict[str, int] = {}
    catalogue: _Catalogue | None = None


def read_findings(run_dir: Path, beside: Path | None = None, fields: Any = Any) -> dict[str, Any]:
    """The object of findings.json, or of another judgement's file `beside` it, to be shown: secrets are masked. fields: a type with the wanted fields, for the
    plan, which needs the texts as they are."""
    path = beside or run_dir / "findings.json"
    if not run_dir.is_dir():
        raise Unreadable(f"expected a run folder at {run_dir}, found {'a file' if run_dir.exists() else 'nothing'}; make one with: unhang audit")
    if not path.is_file():
        raise Unreadable(f"expected what the judge found at {path}, found nothing; next: unhang judge {run_dir}")
    found = _read_json(path, fields) if fields is not Any else _read_shown(path)
    if not isinstance(found, dict) or found.get("schema") != "unhang/findings/1":
        schema = found.get("schema") if isinstance(found, dict) else type(found).__name__
        raise Unreadable(f"expected schema unhang/findings/1 in {path}, found {visible(schema, 80)!r}; next: unhang judge {run_dir}")
    if "causes" not in found:
        raise Unreadable(f"expected causes in {path}, found none: an older unhang judged this run; next: unhang judge {run_dir}")
    if fields is Any:
        _check_shape(found, path, run_dir)
    return found


def _check_shape(found: dict[str, Any], path: Path, run_dir: Path) -> None:
    """Raises Unreadable if what every report reads is missing, or of another type: a run may be of somebody else."""
    try:
        msgspec.convert(found, _Findings)
    except msgspec.ValidationError as problem:
        raise Unreadable(f"expected what the judge writes in {path}, found: {visible(str(problem), 200)}; next: unhang judge {run_dir}") from None


def read_run(run_dir: Path) -> dict[str, Any]:
    """The object of run.json, {} if it cannot be read, because a report is useful without it."""
    try:
        found = _read_json(run_dir / "run.json")
    except Unreadable:
        return {}
    return found if isinstance(found, dict) else {}


def read_nodes(run_dir: Path) -> Iterator[NodeSummary]:
    """The summary of every node file, by name; a file that the judge does not accept is a node without facts."""
    meant = read_run(run_dir).get("hosts")
    hosts = [host for host in meant if isinstance(host, str)] if isinstance(meant, list) else []
    for host, path in node_paths(run_dir, hosts).items():
        try:
            yield summarise_node(decode_plain(read_bounded(path, MAX_NODE_BYTES)))
        except (OSError, ValueError) as error:
            yield NodeSummary(host, (), "invalid", f"{path.name}: {visible(str(error), 200)}", "", "", "", "", (), None)


def never_asked(run: Mapping[str, Any], nodes: Sequence[NodeSummary]) -> list[NodeSummary]:
    """Hosts of run.json without a node file: the audit was stopped before it reached them."""
    meant = run.get("hosts")
    known = {node.host for node in nodes}
    hosts = [host for host in meant if isinstance(host, str) and host not in known] if isinstance(meant, list) else []
    return [NodeSummary(host, (), "missing", "the audit ended before it asked this node", "", "", "", "", (), None) for host in hosts]


def _read_json(path: Path, fields: Any = Any) -> Any:
    with _unreadable(path):
        data = read_bounded(path, SIZE_LIMIT_BYTES)
        with suppress(msgspec.ValidationError):  # the reader of the value reports another type
            return msgspec.json.decode(data, type=fields)
        return msgspec.json.decode(data)


def _read_shown(path: Path) -> Any:
    """A document of findings with its secrets masked. Findings of a rule differ in little but their host: equal parts are read, masked and kept once, so that
    those of ten thousand nodes fit in memory."""
    with _unreadable(path):
        data = read_bounded(path, SIZE_LIMIT_BYTES)
        try:
            parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            findings = msgspec.json.decode(parts.pop("findings", b"[]"), type=list[dict[str, msgspec.Raw]])
        except msgspec.ValidationError:  # _check_shape says what is of another type
            return masked_document(msgspec.json.decode(data))
        part = lru_cache(MOST_SHARED)(_masked_part)
        head = {key: _masked_part(key, bytes(one)) for key, one in parts.items()}
        return head | {"findings": [{key: part(key, bytes(one)) for key, one in finding.items()} for finding in findings]}


def _masked_part(key: str, data: bytes) -> Any:
    return masked_document({key: msgspec.json.decode(data)})[key]


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"expected JSON in {path}, found: {visible(str(error), 200)}") from None


def summarise_node(document: Mapping[str, Any]) -> NodeSummary:
    """The summary of one node document (schema unhang/node/1); secrets in its texts are masked."""
    facts = document.get("facts")
    sections = facts.get("sections") if isinstance(facts, dict) else None
    sections = sections if isinstance(sections, dict) else {}
    groups = document.get("groups")
    return NodeSummary(
        host=str(document.get("host") or ""),
        groups=tuple(str(group) for group in groups) if isinstance(groups, list) else (),
        status=str(document.get("status") or "invalid"),
        message=without_secrets(str(document.get("message") or "")),
        gpus=_gpus(_section(sections, "gpus")),
        driver=_text(_inside(_section(sections, "driver"), "loaded", "version")),
        kernel=_text(_section(sections, "kernel").get("release")),
        nccl=_nccl(_section(sections, "nccl")),
        unread=tuple(_unread(sections)),
        topology=topology_of(sections),
        versions=versions_of(sections),
    )


def _section(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = sections.get(name)
    return section if isinstance(section, dict) else {}


def _inside(section: Mapping[str, Any], *path: str) -> Any:
    value: Any = section
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    return without_secrets(value) if isinstance(value, str) else ""


def _gpus(section: Mapping[str, Any]) -> str:
    count, model = section.get("count"), section.get("model")
    if not isinstance(count, int):
        return ""
    return f"{count} × {_text(model) or 'mixed models'}" if count else "none"


def _nccl(section: Mapping[str, Any]) -> str:
    libraries = section.get("libraries")
    found = [row.get("version") for row in libraries if isinstance(row, dict)] if isinstance(libraries, list) else []
    return ", ".join(sorted({without_secrets(version) for version in found if isinstance(version, str)}))


def _unread(sections: Mapping[str, Any]) -> Iterator[str]:
    for name, section in sections.items():
        status = _inside(section, "probe", "status") if isinstance(section, dict) else None
        if status not in ("ok", "absent"):
            yield f"{name} ({status})"
