"""Reads launches from YAML: pods of every kind of job, services of compose, tasks of SkyPilot and
dstack, jobs of Ray, accelerate's configuration. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.launch import Launch, Place, Step, launch_of, launches_of, times
from unhang.jobs.lint.placed import ONE, Count, Text, bytes_of, number, placed
from unhang.jobs.lint.shell import Command, Held, Script, read_shell
from unhang.jobs.lint.yaml_nodes import Map, inside, items, parts_of, values_of

WORDS = ("entrypoint", "command", "args")
IMAGE = "image:"  # beside the variables, none of which can have this name
DEFAULT_SHARED = 64 << 20
MOST_NODES = 20_000
_COUNTS = ("replicas", "maxReplicas", "completions", "parallelism", "numNodes")
_GPU = re.compile(r"(?:\.(?:com|ai)/|^)gpu$")
# not vpc.amazonaws.com/efa: Amazon's EKS nodes start containers with unlimited locked memory
_RDMA = re.compile(
    r"(?:rdma/|nvidia\.com/(?:hostdev|sriov|rdma))[^:]*: *[1-9]|path: /dev/infiniband"
)
_OF_POD = re.compile(r"\$\((\w{1,80})\)")
_MEETS = re.compile(r"\b(?:PyTorchJob|TrainJob|PET_\w+)\b")  # operators set what torchrun reads
_IDS = re.compile(r"\d{1,3}(?:,\d{1,3}){0,63}")
_SHARED = "/dev/shm"  # noqa: S108 - looked for in a file
_TASKS = (("skypilot", "num_nodes", "run"), ("dstack", "nodes", "commands"))


@dataclass(frozen=True)
class Role:
    """The container of like pods of a job, or of a service. pods: None if their number is not in
    the file. environment: its variables and its image, None for a value from elsewhere. is_whole:
    whether all its variables are here. shared, memory: bytes; shared is /dev/shm. text: all of
    it."""

    line: int
    text: str
    environment: Mapping[str, Text | None]
    is_whole: bool
    pods: int | None = 1
    gpus: Count = None
    shared: Count = None
    memory: Count = None
    devices: Text | None = None
    may_lock: bool = False
    launches: Sequence[Launch] = ()

    @property
    def held(self) -> Held:
        """Its variables with a known value."""
        return {name: [one] for name, one in self.environment.items() if one is not None}


class Job(NamedTuple):
    """One document. kind: that of Kubernetes, or compose, task, config. fields: all of it."""

    kind: str
    fields: Map
    roles: Sequence[Role]

    @property
    def launches(self) -> list[Launch]:
        """Those of all roles."""
        return [one for role in self.roles for one in role.launches]


def jobs_of(text: str) -> list[Job]:
    """The jobs of a file, one for each document that is a map."""
    return [_job(one, text) for one in values_of(text) if isinstance(one, Map)]


def _job(fields: Map, text: str) -> Job:
    if "services" in fields and "kind" not in fields:
        services = [one for one in inside(fields, "services").values() if isinstance(one, Map)]
        return Job("compose", fields, [_service(one) for one in services])
    if fields.keys() & {"distributed_type", "compute_environment"}:
        return Job("config", fields, [_accelerate(fields)])
    for row, count, script in _TASKS:
        nodes = number(fields.get(count))
        if nodes and nodes > 1 and script in fields:
            asked = inside(fields, "resources", "accelerators")
            gpus = number(placed(asked.rpartition(":")[2], asked)) if asked else None
            place = Place("task", nodes, gpus=gpus, on_each=True, row=row)
            launches = _launches(items(fields[script]) or [fields[script]], place)
            return Job("task", fields, [replace(_container(fields), launches=[*launches])])
    return _pods(fields, text)


def _accelerate(fields: Map) -> Role:
    """A configuration, which starts the same on each machine."""
    row = table("launchers")["accelerate"]
    options = {name: one for name, one in fields.items() if isinstance(one, Text)}
    shown = options.get("gpu_ids")
    gpus = placed(len(shown.split(",")), shown) if shown and _IDS.fullmatch(shown) else None
    place = Place("config", on_each=True, gpus=gpus)
    found = launch_of(_command(fields), [Step(row, options)], place)
    return replace(_container(fields), launches=[replace(found, rank=None)])


def _command(at: Any) -> Command:
    """What starts something without words of its own."""
    return Command(at.line, getattr(at, "shown", ""), [], {}, {})


def _service(fields: Map) -> Role:
    """A service of compose, on one machine with the others."""
    given, size = fields.get("shm_size"), None
    mounted = any(_SHARED in one for one in parts_of(Text, fields))
    if not (fields.keys() & {"ipc", "extends"} or mounted):
        size = bytes_of(given) if given else placed(DEFAULT_SHARED, 0, how="default")
    gpus = _gpus_of_service(fields)
    role = replace(_container(fields), gpus=gpus, shared=size)
    place = Place("compose", on_each=True, gpus=gpus or None, row="pods", held=role.held)
    return replace(role, launches=[*_launches(_words(fields), place)])


def _gpus_of_service(fields: Map) -> Count:
    """The GPUs that a service asks for; 0 for all of a machine."""
    asked = fields.get("gpus") or fields.get("runtime")
    if asked in ("all", "nvidia"):
        return placed(0, asked)
    lists = [one.get("devices") for one in parts_of(Map, fields)]
    for device in [*items(asked), *(one for given in lists for one in items(given))]:
        count = inside(device, "count") or inside(device, "device_ids")
        if count and ("gpu" in items(inside(device, "capabilities")) or "gpus" in fields):
            return placed(number(count) or len(items(count)), (items(count) or [count])[0])
    return None


def _pods(fields: Map, text: str) -> Job:
    """The pods of a job, by roles."""
    kind, version = (str(inside(fields, one) or "") for one in ("kind", "apiVersion"))
    found = [*_holders(fields)]
    each = [one for holder, pods in found for one in _containers(holder, pods, version)]
    nodes = None if any(pods is None for _, pods in found) else sum(pods or 0 for _, pods in found)
    total = sum((one.gpus or 0) * (one.pods or 0) for one, _own in each)
    rows = table("launch_places")
    is_known = nodes is not None and nodes > 0 and kind in rows
    at = next(iter(inside(fields, "spec")), fields)
    # the Job of Volcano is not that of Kubernetes
    row = kind if kind in rows and not version.startswith("batch.volcano.sh/") else "pods"
    workers = number(inside(fields, "spec", "mpiReplicaSpecs", "Worker", "replicas"))
    place = Place(
        "pods",
        placed(nodes, at) if is_known else None,
        total=placed(total, at) if is_known and total else None,
        on_each=True,
        slots=times(workers, number(inside(fields, "spec", "slotsPerWorker")) or ONE),
        row=row,
        meets=_MEETS.search(text) is not None,
    )
    roles = [_role(*one, place, number(inside(fields, "spec", "nprocPerNode"))) for one in each]
    if entrypoint := inside(fields, "spec", "entrypoint"):
        on_ray = replace(place, kind="ray")
        launches = [*_launches([entrypoint], on_ray)]
        if asked := inside(fields, "spec", "entrypointNumGpus"):
            made = launch_of(_command(asked), [], on_ray)
            launches.append(replace(made, all=number(asked)))
        roles.append(replace(_container(fields), launches=launches))
    return Job(kind, fields, roles)


def _role(role: Role, own: Map, place: Place, each: Count) -> Role:
    place = replace(place, gpus=role.gpus, held=role.held)
    launches = [*_launches(_words(own), place)]
    if each and not any(one.processes for one in launches if one.launcher):
        made = launch_of(_command(each), [Step(table("launchers")["torchrun"], {})], place)
        launches.append(replace(made, processes=each))
    return replace(role, launches=launches)


def _holders(document: Map) -> Iterator[tuple[Map, int | None]]:
    """(map with containers, number of pods) of each role; None if it is not in the file."""
    waiting: list[tuple[Any, int | None]] = [(document, 1)]
    for _ in range(MOST_NODES):  # a part that is used twice counts twice
        if not waiting:
            return
        value, pods = waiting.pop()
        waiting += [(one, pods) for one in items(value)[::-1]]
        if not isinstance(value, Map):
            continue
        counts = [value[name] for name in _COUNTS if isinstance(value.get(name), Text)]
        if "leaderWorkerTemplate" not in value and counts:  # beside it, replicas are groups
            known = [number(one) for one in counts]
            pods = (
                None
                if None in known or pods is None
                else pods * max(filter(None, known), default=1)
            )
        trainer = inside(value, "trainer")
        if "containers" in value:
            yield value, pods
        elif isinstance(trainer, Map) and trainer.keys() & {*WORDS}:
            yield trainer, number(trainer.get("numNodes", placed("1", 0)))
            continue
        size = number(value.get("size"))
        workers = max(1, size - ("leaderTemplate" in value)) if size else None
        for key, child in [*value.items()][::-1]:
            waiting.append((child, workers if key == "workerTemplate" else pods))


def _containers(holder: Map, pods: int | None, version: str) -> Iterator[tuple[Role, Map]]:
    """The containers of a pod, with what the pod itself gives them."""
    everything = [*parts_of(Text, holder)]
    shown = [" ".join(one.shown.replace('"', "").split()) for one in everything]
    has_shared = version.startswith("ray.io/") or any(_SHARED in one for one in everything)
    has_shared = has_shared or "hostIPC: true" in shown
    sizes = [bytes_of(one) for one in everything if one.shown.startswith("sizeLimit")]
    limit = next(filter(None, sizes), None) if "medium: Memory" in shown else None
    rdma = [one for one, text in zip(everything, shown, strict=True) if _RDMA.match(text)]
    lock = "IPC_LOCK" in everything or "privileged: true" in shown
    listed = items(holder.get("containers")) if "containers" in holder else [holder]
    for own in (one for one in listed if isinstance(one, Map)):
        resources = inside(own, "resources") or inside(own, "resourcesPerNode")
        asked = [one for part in parts_of(Map, resources) for one in part.items()]
        gpus = (number(one) for name, one in asked if _GPU.search(name))
        made = replace(
            _container(own),
            pods=pods,
            gpus=next(filter(None, gpus), None),
            shared=limit if has_shared else placed(DEFAULT_SHARED, 0, how="default"),
            memory=bytes_of(inside(resources, "limits", "memory")),
            devices=next(iter(rdma), None),
            may_lock=lock,
        )
        yield made, own


def _container(fields: Map) -> Role:
    is_whole = not fields.keys() & {"envFrom", "env_file", "extends"}
    return Role(fields.line, fields.text, variables_of(fields), is_whole)


def variables_of(fields: Map) -> dict[str, Text | None]:
    """A container's `env` and a service's `environment`, in any form; None for a value from
    elsewhere."""
    found: dict[str, Any] = {IMAGE: fields.get("image")}
    for given in (inside(fields, name) for name in ("env", "environment")):
        found |= given if isinstance(given, Map) else {}
        for one in items(given):
            if isinstance(one, Text):
                name, sign, value = one.partition("=")
                found[name.strip()] = placed(value.strip(), one) if sign else None
            elif name := inside(one, "name"):
                value = inside(one, "value")
                found[name] = placed(value, name) if isinstance(value, Text) else None
    return {
        str(name): placed(value, value, f"{name}={value}")
        if isinstance(value, Text) and "$" not in value and "{{" not in value
        else None
        for name, value in found.items()
    }


def _words(fields: Map) -> list[Any]:
    """The command of a container or service."""
    return [one for name in WORDS for one in items(fields.get(name)) or [fields.get(name)]]


def _launches(parts: Sequence[Any], place: Place) -> Iterator[Launch]:
    """Each script among the parts by itself, else all parts as the words of one command."""

    def expanded(name: re.Match[str]) -> str:
        return place.held[name[1]][0] if name[1] in place.held else name.group()

    texts = [one for one in parts if isinstance(one, Text)]
    words = [placed(_OF_POD.sub(expanded, one), one) for one in texts]
    words = words if place.kind == "pods" else texts
    scripts = [one for one in words if "\n" in one.strip()]
    if not scripts and (len(words) == 1 or place.kind == "task"):
        scripts = words
    for one in scripts:
        yield from launches_of(read_shell(one, place.held, one.line), place)
    if words and not scripts:
        at = next((one for one in words if re.search("torch|accelerate", one)), words[0])
        command = Command(at.line, " ".join(words), words, place.held, {})
        yield from launches_of(Script([command], {}, []), place)
