"""Makes an inventory from Slurm's list of nodes. Values in, values out; only read_slurm runs
scontrol and sinfo.

A Reason, Comment or Extra is free text, which `scontrol -o` does not quote: with a line break in
it, what follows looks like another node. So JSON is asked for, which Slurm has since 23.02; without
it each name must also be one that sinfo lists, or that scontrol knows when it is asked for it
alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang_node.base.parse.slurm import SlurmNode, parse_nodes, parse_nodes_json
from unhang_node.base.process import FOLDERS, run_process

# What Ansible's patterns and ClusterShell's node sets both take for one host.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
RESERVED = ("all", "ungrouped")
PASSED_ON = ("SLURM_CONF", "SLURM_CONF_SERVER", "HOME", "SSH_AUTH_SOCK")
DOES_NOT_EXIST = "FUTURE"
ELSEWHERE = (
    "next: the same on a host of the cluster, or `command: [ssh, HOST, scontrol]` in the inventory"
)
MOST_BYTES = 1 << 28  # the JSON of 10,000 nodes has 30 MiB and more


@dataclass(frozen=True)
class Inventory:
    """hosts: {name: variables}; groups: {name: its hosts}; children: {group: groups within it}. All
    in the order in which Slurm has them."""

    hosts: dict[str, dict[str, object]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)


def read_slurm(command: Sequence[str], timeout_s: float) -> tuple[list[SlurmNode], str]:
    """(nodes, topology as scontrol prints it). command: scontrol, or what runs it somewhere else.
    Raises UserError."""
    try:
        return _nodes(command, timeout_s), slurm_output(
            [*command, "-o", "show", "topology"], timeout_s
        )
    except ValueError as problem:
        raise UserError(f"Slurm's nodes cannot be read: {problem}") from None


def _nodes(command: Sequence[str], timeout_s: float) -> list[SlurmNode]:
    if "--json" in slurm_output([*command, "--help"], timeout_s):
        # built without JSON, which it notices only when it is asked for some
        with contextlib.suppress(UserError):
            return parse_nodes_json(slurm_output([*command, "--json", "show", "nodes"], timeout_s))
    nodes = parse_nodes(slurm_output([*command, "-o", "show", "nodes"], timeout_s))
    if not command[-1].endswith("scontrol"):
        raise UserError(
            "the command must end in scontrol, with a sinfo beside it that this Slurm without JSON"
            f" needs, and ends in {command[-1]}"
        )
    sinfo = [
        *command[:-1],
        command[-1].removesuffix("scontrol") + "sinfo",
        "--noheader",
        "--all",
        "--Node",
        "--format=%N",
    ]
    listed = set(slurm_output(sinfo, timeout_s).split())
    # of no partition, or none at all
    for name in [
        node.name for node in nodes if node.name not in listed and DOES_NOT_EXIST not in node.states
    ]:
        check_names([name])
        if not slurm_output(
            [*command, "-o", "show", "node", name], timeout_s, f"NodeName={name} "
        ).startswith(f"NodeName={name} "):
            raise UserError(
                f"Slurm does not know the node {name}, which only a text of a node claims: look for"
                " a line break in a Reason or Comment"
            )
    return nodes


def slurm_output(argv: Sequence[str], timeout_s: float, expected: str = "") -> str:
    """Standard output; where something is expected of a node alone, "" for a node that is not
    known."""
    passed = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    try:
        result = run_process(
            list(argv),
            timeout_s,
            variables={**passed, "PATH": f"{FOLDERS}:{os.environ.get('PATH', '')}".rstrip(":")},
            limit_bytes=MOST_BYTES,
        )
    except OSError as problem:
        raise UserError(f"{argv[0]} cannot be run: {problem.strerror or problem}") from None
    if result.is_missing:
        raise UserError(f"{argv[0]} of Slurm is not on this machine; {ELSEWHERE}")
    if result.timed_out:
        raise UserError(
            f"{' '.join(argv)} did not answer within {timeout_s:g} s: is slurmctld running?"
        )
    if result.code and expected:
        return ""
    if result.code or result.is_cut:
        said = result.stderr.strip().rpartition("\n")[2] or f"code {result.code}"
        why = "its answer is beyond the limit" if result.is_cut else said
        raise UserError(f"{argv[0]} failed: {why}; {ELSEWHERE}")
    return result.stdout


def inventory_of(
    all_nodes: Sequence[SlurmNode], topology_text: str, prefix: str = "slurm"
) -> Inventory:
    """The inventory. prefix: of each group's name, and the name of the group of all nodes. Raises
    UserError for names that no host set can hold."""
    nodes = [node for node in all_nodes if DOES_NOT_EXIST not in node.states]
    check_names([node.name for node in nodes])
    switches = parse_topology(topology_text)
    leaves = _leaves(switches, [node.name for node in nodes])
    hosts = {node.name: variables_of(node, leaves.get(node.name)) for node in nodes}
    memberships: dict[tuple[str, ...], list[str]] = {(): list(hosts)}
    for node in nodes:
        for group in _groups_of(node, leaves.get(node.name)):
            memberships.setdefault(group, []).append(node.name)
    above = {
        ("switch", name): [("switch", child) for child in row.switches]
        for name, row in switches.items()
        if row.switches
    }
    names = group_names(
        [
            *dict.fromkeys(
                [*memberships, *above, *(child for row in above.values() for child in row)]
            )
        ],
        prefix,
    )
    return Inventory(
        hosts,
        {names[group]: members for group, members in memberships.items()},
        {names[group]: [names[child] for child in row] for group, row in above.items()},
    )


def check_names(names: Sequence[str]) -> None:
    """Raises UserError, one line for all of them, for names that Ansible or a node set would take
    for something else."""
    wrong = [name for name in names if not _HOST.fullmatch(name) or name in RESERVED]
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if wrong:
        shown = ", ".join(repr(name[:60]) for name in wrong[:5])
        raise UserError(
            f"node names in Slurm consist of letters, digits, '.', '_' and '-', and {shown} does"
            f" not ({len(wrong)} in all)"
        )
    if twice:
        raise UserError(f"Slurm lists nodes more than once: {', '.join(twice[:5])}")


def variables_of(node: SlurmNode, switch: str | None) -> dict[str, object]:
    """A host's variables. Texts that users write are values, never templates: Ansible trusts
    nothing that an inventory plugin sets."""
    found: dict[str, object] = {
        "slurm_state": sorted(node.states),
        "slurm_reason": node.reason,
        "slurm_reason_by": node.by,
        "slurm_partitions": _listed(node, "Partitions"),
        "slurm_features": _listed(node, "ActiveFeatures"),
        "slurm_gres": parse_gres(node.fields.get("Gres", "")),
    }
    address = node.fields.get("NodeAddr", "")
    if address != node.name and (
        _HOST.fullmatch(address) or re.fullmatch(r"[0-9A-Fa-f:.]+", address)
    ):
        found["ansible_host"] = address
    return {**found, "unhang_switch": switch} if switch else found


def parse_gres(text: str) -> list[dict[str, str]]:
    """[{name, type, count}] of gpu:h200:8(S:0-1),nic:2; type is "" where there is none."""
    found = []
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        fields = [word for word in part.strip().split(":") if word and word != "no_consume"]
        count = fields.pop() if len(fields) > 1 and re.fullmatch(r"\d+[KMGT]?", fields[-1]) else "1"
        if fields:
            found.append({"name": fields[0], "type": ":".join(fields[1:]), "count": count})
    return found


def _groups_of(node: SlurmNode, switch: str | None) -> list[tuple[str, ...]]:
    """Groups of a node, each as its kind and its names, in Slurm's order."""
    gres = parse_gres(node.fields.get("Gres", ""))
    groups: list[tuple[str, ...]] = [("partition", name) for name in _listed(node, "Partitions")]
    groups += [("feature", name) for name in _listed(node, "ActiveFeatures")]
    groups += [("gres", row["name"]) for row in gres]
    groups += [("gres", row["name"], row["type"]) for row in gres if row["type"]]
    groups += [("switch", switch)] if switch else []
    return [*dict.fromkeys(groups)]


def _listed(node: SlurmNode, name: str) -> list[str]:
    return [word for word in node.fields.get(name, "").split(",") if word]


def group_names(groups: Sequence[tuple[str, ...]], prefix: str) -> dict[tuple[str, ...], str]:
    """{group: a name that Ansible takes}. Two that would get the same one are kept apart by a piece
    of a checksum."""
    wanted = {
        group: re.sub(r"\W", "_", "_".join([prefix, *group]), flags=re.ASCII) for group in groups
    }
    shared = Counter(wanted.values())
    return {
        group: (
            name
            # no name was changed, and none can be taken for two of them joined
            if shared[name] == 1 or all(re.fullmatch("[A-Za-z0-9]+", word) for word in group)
            else f"{name}_{hashlib.sha256(repr(group).encode()).hexdigest()[:6]}"
        )
        for group, name in wanted.items()
    }


@dataclass(frozen=True)
class Switch:
    """A switch, or a block: its own nodes where it is a leaf, else the switches below it."""

    nodes: str
    switches: tuple[str, ...]


def parse_topology(text: str) -> dict[str, Switch]:
    """{name: Switch} out of `scontrol -o show topology`; {} where Slurm has none."""
    found: dict[str, Switch] = {}
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        name = fields.get("SwitchName") or fields.get("BlockName")
        if name:
            below = tuple(_expand(fields.get("Switches", ""), "switches"))
            found[name] = Switch("" if below else fields.get("Nodes", ""), below)
    return {
        name: Switch(
            row.nodes, tuple(child for child in row.switches if child in found and child != name)
        )
        for name, row in found.items()
    }


def _leaves(switches: Mapping[str, Switch], hosts: Sequence[str]) -> dict[str, str]:
    """{host: the leaf that it hangs on}, the first where there are several."""
    known = set(hosts)
    leaves: dict[str, str] = {}
    for name, row in switches.items():
        for host in _expand(row.nodes, "nodes of a switch"):
            if host in known:
                leaves.setdefault(host, name)
    return leaves


def _expand(text: str, what: str) -> list[str]:
    try:
        return expand_limit(text) if text else []
    except UserError as problem:
        raise UserError(f"Slurm's {what} cannot be read: {problem}") from None
