"""Checks containers of pods and compose services: whether they see a GPU for each process, and
whether the pods of a job have like settings. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Knowledge
from unhang.jobs.lint.launches import TORCHRUN
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, nodes_of, number_of

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
WORDS = ("entrypoint", "command", "args")
_PROCESSES = re.compile(
    r"(?<![\w-])--?(?:nproc[_-]per[_-]node|num_processes|tensor[_-]parallel[_-]size|tp(?:[_-]size)?"
    r"|num[_-]shard)[=\s]{1,4}(?P<number>\d{1,3})\b"
)
_OTHER_MACHINES = re.compile(
    r"\bray\b|--(?:nnodes|num_machines|node[_-]rank|machine_rank|dist[_-]init[_-]addr)\b"
)
_DEVICES = re.compile(r"[\w.:-]{1,60}(?:,[\w.:-]{1,60}){0,63}")
_NOT_DEVICES = ("all", "none", "void")
_GPU = re.compile(r"\.(?:com|ai)/gpu$")
_OF_FABRIC = re.compile(r"(?:NCCL|FI|UCX)_[A-Z0-9_]{1,80}")
_OF_LOGS = re.compile(r"_(?:LOG|DEBUG|DUMP|STATS|TRACE|HOSTID|TOPO_FILE|CONF_FILE)")
_OF_DEVICES = re.compile(r"_(?:NET_DEVICES|IFACE|IFNAME|HCA|DOMAIN)(?:_|$)")
_COMES_OF_IT = "ranks that take unlike transports or algorithms wait for each other or fail"
# kinds of which one document has pods of several roles, all of one job
_SEVERAL_ROLES = frozenset(
    ("LeaderWorkerSet", "PyTorchJob", "MPIJob", "JobSet", "Job", "RayCluster", "RayJob")
)


@dataclass(frozen=True)
class _Pod:
    """A container with GPUs. settings: name -> (value, line), None for a value that is not in the
    file. text: the container. is_whole: whether it takes no settings from elsewhere."""

    settings: Mapping[str, tuple[str | None, int]]
    text: str
    is_whole: bool
    line: int


def words_of(fields: Mapping[str, yaml.Node]) -> str:
    """The command of a container or service, as one text."""
    parts = [
        part
        for name in WORDS
        if name in fields
        for part in children_of(fields[name]) or [fields[name]]
    ]
    return " ".join(part.value for part in parts if isinstance(part, yaml.ScalarNode))


def processes_in(words: str) -> int:
    """The most processes with a GPU each that a launcher or server starts on one machine; 0 if it
    says no number, or uses others too."""
    if _OTHER_MACHINES.search(words):
        return 0
    return max((int(one["number"]) for one in _PROCESSES.finditer(words)), default=0)


def variables_of(fields: Mapping[str, yaml.Node]) -> dict[str, tuple[str | None, int]]:
    """name -> (value, line) of a container's `env` and a service's `environment`, in any form; None
    for a value from elsewhere."""
    found: dict[str, tuple[str | None, int]] = {}
    for node in (fields[name] for name in ("env", "environment") if name in fields):
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        for name, value in pairs:
            text = value.value if isinstance(value, yaml.ScalarNode) else None
            found[str(name.value)] = (text, name.start_mark.line + 1)
        for one in children_of(node) if not pairs else ():
            line, given = one.start_mark.line + 1, fields_of(one)
            if isinstance(one, yaml.ScalarNode):
                key, sign, text = one.value.partition("=")
                found[key.strip()] = (text.strip() if sign else None, line)
            elif isinstance(given.get("name"), yaml.ScalarNode):
                value = given.get("value")
                text = value.value if isinstance(value, yaml.ScalarNode) else None
                found[given["name"].value] = (text, line)
    return {
        name: (None if value is None or "$" in value or "{{" in value else value, line)
        for name, (value, line) in found.items()
    }


def visible_gpus(fields: Mapping[str, yaml.Node]) -> tuple[int, str, int] | None:
    """(number, NAME=value, line) of the GPUs that a container's variables show it; None if they do
    not say."""
    settings = variables_of(fields)
    for name in VISIBLE:
        value, line = settings.get(name, (None, 0))
        if value and value not in _NOT_DEVICES and _DEVICES.fullmatch(value):
            return len(value.split(",")), f"{name}={value}", line
    return None


def check_gpus(fields: Mapping[str, yaml.Node], asked: int, line: int) -> Iterator[Finding]:
    """A container whose command starts more processes than it sees GPUs. asked: the GPUs that it
    asks for at this line, 0 if that is unknown."""
    processes, shown = processes_in(words_of(fields)), visible_gpus(fields)
    places = [(shown[0], shown[1], shown[2])] if shown else []
    places += [(asked, counted(asked, "GPU"), line)] if asked else []
    if places and min(places)[0] < processes:
        number, found, at = min(places)
        why = (
            f"the command starts {processes} processes with a GPU each, but the container sees"
            f" {counted(number, 'GPU')}"
        )
        instead = "as many GPUs as processes"
        yield Finding(at, "gpus-fewer-than-processes", "warning", found, why, instead, TORCHRUN)


def gpus_of_pod(fields: Mapping[str, yaml.Node]) -> tuple[int, int]:
    """(number, line) of the GPUs that a pod's container asks for; (0, 0) for none."""
    for node in nodes_of([one for one in (fields.get("resources"),) if one is not None]):
        for name, number in fields_of(node).items():
            if _GPU.search(name) and number_of(number):
                return number_of(number), number.start_mark.line + 1
    return 0, 0


def check_unlike_settings(
    documents: Sequence[yaml.Node], text: str, known: Knowledge
) -> Iterator[Finding]:
    """Pods of one job whose settings of the network differ, each beside the first of its job."""
    for document in documents:
        kind = fields_of(document).get("kind")
        if isinstance(kind, yaml.ScalarNode) and kind.value in _SEVERAL_ROLES:
            pods = [one for one in (_pod(node, text) for node in nodes_of([document])) if one]
            for other in pods[1:]:
                yield from _unlike(pods[0], other, known)


def _pod(node: yaml.Node, text: str) -> _Pod | None:
    """The first container with GPUs in a pod; None if the node is no pod, or has none."""
    for container in children_of(fields_of(node).get("containers")):
        fields = fields_of(container)
        if gpus_of_pod(fields)[0]:
            own = text[container.start_mark.index : container.end_mark.index]
            is_whole = not fields.keys() & {"envFrom", "<<"}
            line = container.start_mark.line + 1
            return _Pod(variables_of(fields), own, is_whole, line)
    return None


def _unlike(first: _Pod, other: _Pod, known: Knowledge) -> Iterator[Finding]:
    names = sorted({*first.settings, *other.settings})
    for name in (one for one in names if _OF_FABRIC.fullmatch(one) and not _OF_LOGS.search(one)):
        row = known.row("nccl_variables", name) or {}
        told = _difference(name, first, other, str(row.get("default", "")))
        if told is None:
            continue
        shown, line, why = told
        of_devices = row.get("per_node") or _OF_DEVICES.search(name)
        comes = "right only if their devices have unlike names" if of_devices else _COMES_OF_IT
        yield Finding(
            line,
            "settings-unlike",
            "info" if of_devices else "warning",
            shown,
            f"the pods of this job are unlike: {why}; {comes}",
            "the same settings in all pods of the job",
            known.source("nccl_variables", row),
        )


def _difference(name: str, first: _Pod, other: _Pod, default: str) -> tuple[str, int, str] | None:
    """(NAME=value, line, the other pod's) if a setting differs; None also if it is not known."""
    if name in first.settings and name in other.settings:
        (here, line), (there, at) = other.settings[name], first.settings[name]
        unlike = here is not None and there is not None and here.upper() != there.upper()
        return (f"{name}={here}", line, f"{there} in line {at}") if unlike else None
    lacking, having = (first, other) if name in other.settings else (other, first)
    here, line = having.settings[name]
    if not here or here == default or not lacking.is_whole or name in lacking.text:
        return None
    return f"{name}={here}", line, f"the container of line {lacking.line} does not set it"
