"""Reads the parts of a run folder that a report needs besides its findings: run.json, and one
summary for each node file.

Node files are read one after another and only their summaries are kept, so that a run of ten
thousand nodes fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.audit.report.topology import Topology, text_of, topology_of
from unhang.audit.report.versions import versions_of
from unhang.core.run.documents import MAX_NODE_BYTES, decode_plain
from unhang.core.run.findings import read_run
from unhang.core.run.run_input import node_paths
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import read_bounded, value_at
from unhang.core.text import visible
from unhang_node.base.parse.values import as_list, as_map


@dataclass(frozen=True)
class NodeSummary:
    """The page's data about a node besides its findings."""

    host: str
    groups: tuple[str, ...]
    status: str
    message: str
    gpus: str = ""
    driver: str = ""
    kernel: str = ""
    nccl: str = ""
    unread: tuple[str, ...] = ()  # sections that were not read, as `network (timeout)`
    topology: Topology | None = None
    versions: Mapping[str, str] = field(default_factory=dict)  # result of versions_of


def read_nodes(run_dir: Path) -> Iterator[NodeSummary]:
    """The summary of every node file, by name; a file that the judge does not accept is a node
    without facts."""
    meant = read_run(run_dir).get("hosts")
    hosts = [host for host in as_list(meant) if isinstance(host, str)]
    for host, path in node_paths(run_dir, hosts).items():
        try:
            yield summarise_node(decode_plain(read_bounded(path, MAX_NODE_BYTES)))
        except (OSError, ValueError) as error:
            yield NodeSummary(host, (), "invalid", f"{path.name}: {visible(str(error), 200)}")


def never_asked(run: Mapping[str, Any], nodes: Sequence[NodeSummary]) -> list[NodeSummary]:
    """Hosts of run.json without a node file: the audit was stopped before it reached them."""
    meant = run.get("hosts")
    known = {node.host for node in nodes}
    hosts = [host for host in as_list(meant) if isinstance(host, str) and host not in known]
    return [
        NodeSummary(host, (), "missing", "the audit ended before it asked this node")
        for host in hosts
    ]


def summarise_node(document: Mapping[str, Any]) -> NodeSummary:
    """The summary of one node document (schema unhang/node/1); secrets in its texts are masked."""
    sections = as_map(as_map(document.get("facts")).get("sections"))
    return NodeSummary(
        host=str(document.get("host") or ""),
        groups=tuple(str(group) for group in as_list(document.get("groups"))),
        status=str(document.get("status") or "invalid"),
        message=without_secrets(str(document.get("message") or "")),
        gpus=_gpus(as_map(sections.get("gpus"))),
        driver=text_of(value_at(sections, ("driver", "loaded", "version"))),
        kernel=text_of(value_at(sections, ("kernel", "release"))),
        nccl=_nccl(as_map(sections.get("nccl"))),
        unread=tuple(_unread(sections)),
        topology=topology_of(sections),
        versions=versions_of(sections),
    )


def _gpus(section: Mapping[str, Any]) -> str:
    count, model = section.get("count"), section.get("model")
    if not isinstance(count, int):
        return ""
    return f"{count} × {text_of(model) or 'mixed models'}" if count else "none"


def _nccl(section: Mapping[str, Any]) -> str:
    libraries = section.get("libraries")
    found = (
        [row.get("version") for row in libraries if isinstance(row, dict)]
        if isinstance(libraries, list)
        else []
    )
    return ", ".join(
        sorted({without_secrets(version) for version in found if isinstance(version, str)})
    )


def _unread(sections: Mapping[str, Any]) -> Iterator[str]:
    for name, section in sections.items():
        status = value_at(section, ("probe", "status")) if isinstance(section, dict) else None
        if status not in ("ok", "absent"):
            yield f"{name} ({status})"
