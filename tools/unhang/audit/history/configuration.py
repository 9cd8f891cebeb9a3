"""What a run read of its nodes' configuration, section by section; equal contents are kept once."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from unhang.audit.history.runs import PastRun
from unhang.core.run.documents import MAX_NODE_BYTES, READ
from unhang.core.run.run_input import node_paths
from unhang.core.schemas.configuration import (
    digest_of_section,
    probed_sections_type,
    text_of_section,
)
from unhang.core.strict_json import NotStrict, read_bounded

NOTHING = b"{}"  # a section that was read, and in which there is nothing
# What an inventory calls the machine that Ansible runs on: homes are shared, and every container
# has one, so that two runs may mean two machines.
OF_ANY_MACHINE = frozenset(
    ("localhost", "localhost.localdomain", "localhost4", "localhost6", "127.0.0.1", "::1")
)


@dataclass(frozen=True)
class Configuration:
    """Sections: name -> JSON; one that could not be read has no key."""

    sections: dict[str, bytes]
    machine_id: str | None


@cache
def _node_decoder() -> msgspec.json.Decoder:
    facts = msgspec.defstruct("Facts", [("sections", probed_sections_type() | None, None)])
    return msgspec.json.Decoder(
        msgspec.defstruct("Node", [("host", str), ("status", str), ("facts", facts | None, None)])
    )


def read_configurations(
    run: PastRun, hosts: Container[str], texts: dict[bytes, bytes]
) -> Iterator[tuple[str, Configuration]]:
    """(host, its configuration) of each node among `hosts` that the run has read. texts: digest ->
    text, shared between runs."""
    for host, path in node_paths(run.folder, run.hosts).items():
        if host in hosts and (found := _read(host, path, texts)):
            yield host, found


def _read(host: str, path: Path, texts: dict[bytes, bytes]) -> Configuration | None:
    try:
        document = _node_decoder().decode(read_bounded(path, MAX_NODE_BYTES))
    except (OSError, NotStrict, ValueError, RecursionError):
        return None  # the judge has reported a file that cannot be read
    if document.host != host or document.status not in READ or document.facts is None:
        return None
    sections = document.facts.sections
    node = getattr(sections, "node", None)
    return Configuration(_texts(sections, texts), node.machine_id if node is not None else None)


def _texts(sections: object, texts: dict[bytes, bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in getattr(sections, "__struct_fields__", ()):
        section = getattr(sections, name)
        status = section.probe.status if section is not None and section.probe is not None else None
        if status not in ("ok", "absent"):
            continue
        digest = digest_of_section(section)
        if digest is not None:
            found[name] = texts.get(digest) or texts.setdefault(digest, text_of_section(section))
        elif not section.probe.unread:  # a section that could not be read need not be empty
            found[name] = NOTHING
    return found
