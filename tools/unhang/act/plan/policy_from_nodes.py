"""Writes a policy from nodes that are known to be good: values that all of them share are pinned,
other keys are not set. Values in, values out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.ansible.plain_data import data_for_ansible, why_not_plain
from unhang.core.strict_json import value_at
from unhang.core.text import visible
from unhang_node.base.parse.values import as_maps
from unhang_node.base.versions.compare import check_version

Sections = Mapping[str, Any]
UNLIMITED = -1
LONGEST_COMMENT = 2000


@dataclass(frozen=True)
class Key:
    """One key of a policy. read: sections of a node -> its value, None for none. least: the policy
    gets the smallest value of all nodes, which may differ."""

    section: str
    name: str
    read: Callable[[Sections], Any]
    why: str
    least: bool = False
    version: str | None = None


@dataclass(frozen=True)
class Pin:
    """A key that is written, with the reason as its comment."""

    section: str
    name: str
    value: Any
    why: str


@dataclass(frozen=True)
class Undecided:
    """A key that is not written, and why: the nodes differ, or a person must decide."""

    key: str
    why: str


@dataclass(frozen=True)
class Draft:
    """A policy's values for the nodes that it was made from."""

    pins: tuple[Pin, ...]
    undecided: tuple[Undecided, ...]


def policy_from_nodes(nodes: Mapping[str, Sections]) -> Draft:
    """nodes: host -> sections of its facts (unhang/node-facts/1), at least one."""
    pins: list[Pin] = []
    undecided: list[Undecided] = []
    for key in KEYS:
        values = {host: key.read(sections) for host, sections in nodes.items()}
        decided = _decide(key, values)
        if isinstance(decided, Pin):
            pins.append(decided)
        elif decided is not None:
            undecided.append(decided)
    return Draft(tuple(pins), (*undecided, *BY_HAND))


def _decide(key: Key, values: Mapping[str, Any]) -> Pin | Undecided | None:
    path, known = (
        f"{key.section}.{key.name}",
        [value for value in values.values() if value is not None],
    )
    if not known:
        return None
    if len(known) < len(values):
        lacking = sorted(host for host, value in values.items() if value is None)
        return Undecided(path, f"no value on {', '.join(lacking[:5])}")
    if unplain := {
        host: problem for host, value in values.items() if (problem := why_not_plain(value))
    }:
        host, problem = next(iter(unplain.items()))
        return Undecided(
            path,
            f"the text of {', '.join(sorted(unplain)[:5])} is none to write down: on {host} it"
            f" {problem}",
        )
    if key.least:
        return Pin(key.section, key.name, _least(known), key.why)
    distinct = {json.dumps(value): value for value in known}
    if len(distinct) > 1:
        described = "; ".join(
            f"{value} on {', '.join(_hosts_with(values, value)[:5])}" for value in distinct.values()
        )
        return Undecided(path, f"the nodes differ: {described}")
    [value] = distinct.values()
    if key.version and (problem := check_version(value, key.version)):
        return Undecided(path, f"{value!r} has no order that could be compared: {problem}")
    return Pin(key.section, key.name, value, key.why)


def render_policy(
    draft: Draft, head: Sequence[str], bandwidth: Sequence[Mapping[str, Any]] = ()
) -> str:
    """YAML with comments for group_vars. head: comment lines before it; bandwidth: rows of the
    policy's key `bandwidth`.

    Ansible takes every text in group_vars for a template, so nothing of a node is written here but
    through data_for_ansible and visible.
    """
    lines = [*(f"# {visible(line, LONGEST_COMMENT)}" for line in head), "unhang_policy:"]
    section = ""
    for pin in draft.pins:
        lines += [f"  {pin.section}:"] if pin.section != section else []
        section = pin.section
        lines.append(f"    {pin.name}: {data_for_ansible(pin.value)} # {pin.why}")
    if bandwidth:
        lines += [
            (
                "  # What smoke tests on these nodes reached, and nine tenths of it as the least of"
                " a later one: unhang smoke --policy FILE, playbooks and gate."
            ),
            "  bandwidth:",
        ]
        lines += [f"    - {data_for_ansible(row)}" for row in bandwidth]
    if not draft.pins and not bandwidth:
        lines[-1] = "unhang_policy: {}"
    lines += [
        "  # Left open:",
        *(f"  #   {one.key}: {visible(one.why, LONGEST_COMMENT)}" for one in draft.undecided),
    ]
    return "\n".join(lines) + "\n"


def _hosts_with(values: Mapping[str, Any], value: Any) -> list[str]:
    return sorted(host for host, other in values.items() if other == value)


def _least(values: Sequence[Any]) -> Any:
    """The smallest; -1 means no limit, which is the largest."""
    limited = [value for value in values if value != UNLIMITED]
    return min(limited) if limited else UNLIMITED


def _at(*path: str) -> Callable[[Sections], Any]:
    """A reader of one path; it returns None if a part of the path is missing."""
    return lambda sections: value_at(sections, path)


def _rows(sections: Sections, *path: str) -> list[dict[str, Any]]:
    return as_maps(value_at(sections, path))


def _least_of_gpus(*path: str) -> Callable[[Sections], Any]:
    def read(sections: Sections) -> Any:
        values = [value_at(row, path) for row in _rows(sections, "gpus", "devices")]
        return min(values) if values and None not in values else None

    return read


def _compute_mode(sections: Sections) -> Any:
    modes = {row.get("compute_mode") for row in _rows(sections, "gpus", "devices")}
    return (
        modes.pop()
        if len(modes) == 1 and modes <= {"default", "exclusive_process", "prohibited"}
        else None
    )


def _links(sections: Sections) -> Any:
    counts = [row.get("nvlinks_active") for row in _rows(sections, "interconnect", "by_gpu")]
    known = [count for count in counts if isinstance(count, int)]
    return (min(known) or None) if known and len(known) == len(counts) else None


def _nccl(sections: Sections) -> Any:
    return next(
        (
            row.get("version")
            for row in _rows(sections, "nccl", "libraries")
            if row.get("is_loader_default")
        ),
        None,
    )


def _held(sections: Sections) -> Any:
    packages = _rows(sections, "driver", "packages")
    return True if packages and all(row.get("held") for row in packages) else None


def _active_ports(sections: Sections) -> Any:
    ports = [port for row in _rows(sections, "network", "rdma") for port in row.get("ports") or []]
    return sum(port.get("state") == "active" for port in ports) or None


def _limit(name: str) -> Callable[[Sections], Any]:
    """The lowest limit of the daemons that start jobs; the collector's own is not used."""

    def read(sections: Sections) -> Any:
        values = [
            row.get(name)
            for row in _rows(sections, "limits", "scopes")
            if row.get("scope") != "collector"
        ]
        return _least(values) if values and None not in values else None

    return read


def _memlock(sections: Sections) -> Any:
    """None where RDMA jobs need unlimited memory locks and a daemon's own limit is less:
    limits.conf or the launcher raises it, and a role would not."""
    least = _limit("memlock_hard_bytes")(sections)
    return None if least != -1 and value_at(sections, ("network", "has_rdma")) else least


def _iommu(sections: Sections) -> Any:
    mode = value_at(sections, ("interconnect", "iommu", "mode"))
    return (
        mode
        if mode in ("passthrough", "off")
        and value_at(sections, ("node", "virtualization", "is_vm")) is False
        else None
    )


KEYS = (
    Key("driver", "version", _at("driver", "loaded", "version"),
    "exactly this one: nodes of one job with two drivers hang", version="driver"),
    Key("driver", "flavour", _at("driver", "loaded", "flavour"),
    "kernel modules as they are loaded"),
    Key("driver", "held", _held, "no unattended upgrade moves it"),
    Key("kernel", "min", _at("kernel", "release"), "this one or newer; kernel.version would pin it",
    version="kernel"),
    Key("nccl", "min", _nccl, "of the library that the loader takes; environments bring their own",
    version="nccl"),
    Key(
        "fabric_manager", "match_driver",
        lambda sections: value_at(sections, ("fabric_manager", "nvswitch_present")) or None,
        "the daemon that programs the NVSwitches has the driver's full version",
    ),
    Key("gpu", "model", _at("gpus", "model"), "part of the name that the driver gives"),
    Key("gpu", "count", _at("gpus", "count"), "a node with fewer is a finding"),
    Key("gpu", "compute_mode", _compute_mode, "as it is on every GPU"),
    Key("nvlink", "links_per_gpu", _links, "active on the GPU that has the fewest", least=True),
    Key("pcie", "generation", _least_of_gpus("pcie", "generation_max"),
    "of the slowest GPU, slot and card together", least=True),
    Key("pcie", "width", _least_of_gpus("pcie", "width_now"), "of the narrowest GPU", least=True),
    Key("network", "infiniband", lambda sections: value_at(sections, ("network",
    "has_infiniband")) or None, "each node has it"),
    Key("network", "rdma_ports", _active_ports,
    "active ones on the node that has the fewest; storage adapters count too", least=True),
    Key("limits", "memlock_bytes", _memlock,
    "the least that a daemon which starts jobs allows; -1 is unlimited", least=True),
    Key("limits", "shm_bytes", _at("limits", "shm", "size_bytes"),
    "shared memory of the node that has the least", least=True),
    Key("limits", "nofile", _limit("nofile_hard"),
    "the least that a daemon which starts jobs allows", least=True),
    Key("host", "iommu", _iommu, "as these nodes were booted"),
    Key("host", "numa_balancing", _at("limits", "numa_balancing"), "as it is set"),
)  # fmt: skip
BY_HAND = (
    Undecided(
        "driver.min, driver.max", "the version above is exact; take it away to allow a range"
    ),
    Undecided(
        "cuda, torch",
        "environments bring their own; name folders under torch.environments to have them read",
    ),
    Undecided("nccl.settings", "which settings jobs need is no property of a node"),
    Undecided("network.interfaces", "which of them training may use, a person knows"),
    Undecided("waivers, thresholds", "a good node needs none"),
)
