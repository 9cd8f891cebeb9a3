"""Versions on each node, and their distribution over the fleet: sections of a node in, rows for the
page out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.report.topology import rows_at
from unhang.core.run.run_input import natural
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import value_at
from unhang.core.text import visible

LONGEST = 80  # characters of one version
MOST_VALUES = 8  # different versions of one thing on one node
# In the order of interest to people; other things follow by name.
ORDER = (
    "driver",
    "fabric manager",
    "kernel",
    "NCCL",
    "CUDA toolkit",
    "torch",
    "GSP firmware",
    "VBIOS",
    "NIC firmware",
    "BIOS",
)


@dataclass(frozen=True)
class Spread:
    """One version of a thing. hosts: with this version; usual: whether more nodes have it than any
    other version."""

    version: str
    hosts: tuple[str, ...]
    usual: bool


@dataclass(frozen=True)
class Drift:
    """A thing and its versions, the most frequent first. nodes: on which any version of it was
    read."""

    name: str
    nodes: int
    versions: tuple[Spread, ...]

    @property
    def drifts(self) -> bool:
        return len(self.versions) > 1


def versions_of(sections: Mapping[str, Any]) -> dict[str, str]:
    """Thing -> version on one node, without things that were not read or do not exist. Several
    versions are joined by commas."""
    found = {}
    for name, values in _read(sections):
        texts = sorted({value for value in values if isinstance(value, str) and value})
        if texts:
            found[name] = ", ".join(
                visible(without_secrets(text), LONGEST) for text in texts[:MOST_VALUES]
            )
    return found


def drift(versions: Mapping[str, Mapping[str, str]]) -> list[Drift]:
    """The hosts of each version of each thing, from host -> thing -> version; things that differ
    come first, then the order of ORDER."""
    hosts: dict[str, dict[str, list[str]]] = {}
    for host, own in versions.items():
        for name, version in own.items():
            hosts.setdefault(name, {}).setdefault(version, []).append(host)
    rows = [_drift(name, found) for name, found in hosts.items()]
    return sorted(rows, key=lambda one: (not one.drifts, _rank(one.name), one.name))


def _drift(name: str, hosts: Mapping[str, Sequence[str]]) -> Drift:
    ordered = sorted(hosts.items(), key=lambda row: (-len(row[1]), row[0]))
    most = len(ordered[0][1])
    alone = sum(len(found) == most for found in hosts.values()) == 1
    rows = [
        Spread(version, tuple(sorted(found, key=natural)), alone and len(found) == most)
        for version, found in ordered
    ]
    return Drift(name, sum(len(found) for found in hosts.values()), tuple(rows))


def _rank(name: str) -> int:
    head = name.partition(",")[0]
    return ORDER.index(head) if head in ORDER else len(ORDER)


def _read(sections: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """(thing, its value). Firmware is compared by model, because different cards have different
    firmware."""
    yield "driver", [value_at(sections, ("driver", "loaded", "version"))]
    yield "fabric manager", [value_at(sections, ("fabric_manager", "version"))]
    yield "kernel", [value_at(sections, ("kernel", "release"))]
    yield "NCCL", [row.get("version") for row in rows_at(sections, "nccl", "libraries")]
    yield "CUDA toolkit", [value_at(sections, ("cuda", "default", "version"))]
    yield "torch", [row.get("torch") for row in rows_at(sections, "torch", "environments")]
    yield "GSP firmware", [value_at(sections, ("driver", "gsp_firmware", "version"))]
    yield "BIOS", [value_at(sections, ("node", "dmi", "bios_version"))]
    yield from _by_model("VBIOS", rows_at(sections, "gpus", "devices"), "model", "vbios")
    yield from _by_model("NIC firmware", rows_at(sections, "network", "rdma"), "board", "firmware")


def _by_model(
    name: str, rows: Sequence[Mapping[str, Any]], model: str, version: str
) -> Iterator[tuple[str, list[Any]]]:
    models: dict[str, list[Any]] = {}
    for row in rows:
        named = row.get(model)
        models.setdefault(
            visible(without_secrets(named), LONGEST) if isinstance(named, str) and named else "", []
        ).append(row.get(version))
    for named, found in list(models.items())[:MOST_VALUES]:
        yield f"{name}, {named}" if named else name, found
