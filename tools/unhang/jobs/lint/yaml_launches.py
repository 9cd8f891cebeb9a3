"""Reads launches from documents: pods of every kind of job, services of compose, tasks of SkyPilot
and dstack, jobs of Ray and Nomad, accelerate's configuration. Values in, values out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.launch import (
    SHARED_MEMORY,
    Crowd,
    Launch,
    Place,
    Step,
    launch_of,
    launches_of,
    of_each,
    times,
)
from unhang.jobs.lint.placed import ONE, Count, Number, Text, bytes_of, number, placed
from unhang.jobs.lint.python_names import last_name, of_kind, parse_python
from unhang.jobs.lint.shell import Command, Held, Script, read_shell
from unhang.jobs.lint.yaml_nodes import (
    Map,
    inside,
    items,
    maps,
    parts_of,
    texts_in,
    values_of,
)

WORDS = ("entrypoint", "command", "args")
ON_RAY = ("RayJob", "RayCluster")
IMAGE = "image:"  # beside the variables, none of which can have this name
DEFAULT_SHARED = 64 << 20
MOST_NODES = 20_000
COUNTS = ("maxReplicas", "replicas", "parallelism", "numNodes", "completions")
_GPU = re.compile(r"(?:\.(?:com|ai)/|^)gpu$")
# not vpc.amazonaws.com/efa: Amazon's EKS nodes start containers with unlimited locked memory
_RDMA = ("rdma/", "nvidia.com/hostdev", "nvidia.com/sriov", "nvidia.com/rdma")
_OF_POD = re.compile(r"\$\((\w{1,80})\)")
_NAME_OF_POD = re.compile(r"([\w-]{1,200})-(\d{1,5})-(\d{1,5})\.([\w-]{1,63})")
_TASKS = (("skypilot", "num_nodes", "run"), ("dstack", "nodes", "commands"))


@dataclass(frozen=True)
class Role(Crowd):
    """The container of like pods of a job, or of a service. pods: None if their number is not in
    the file. environment: its variables and its image, None for a value from elsewhere. is_whole:
    whether all its variables are here. params: of ray start. ids: the
    GPUs that it takes by name, if others run beside it. shared: bytes of
    /dev/shm. text: all of it."""

    line: int
    text: str
    environment: Mapping[str, Text | None]
    is_whole: bool
    pods: int | None = 1
    gpus: Count = None
    params: Mapping[str, Any] = field(default_factory=Map)
    ids: Sequence[Text] = ()
    shared: Count = None
    devices: Text | None = None
    may_lock: bool = False
    host_network: bool = False
    launches: Sequence[Launch] = ()
    place: Place = field(default_factory=Place)

    @property
    def crowd(self) -> int:  # type: ignore[override]
        """Ranks in it, by its GPUs and its launchers; 0 without GPUs."""
        made = (one.processes for one in self.launches if one.processes)
        return max([self.gpus, *made]) if self.gpus is not None else 0

    @property
    def store(self) -> Count:
        """Bytes of Ray's object store."""
        asked = [self.params.get("object-store-memory")]
        asked += [one.options.get("object_store_memory") for one in self.launches]
        return next(filter(None, map(bytes_of, asked)), None)

    @property
    def held(self) -> Held:
        """Its variables with a known value."""
        return {name: [one] for name, one in self.environment.items() if one is not None}


class Job(NamedTuple):
    """One document. fields: all of it. row: of launch_places, if it is a job of pods. on_one:
    whether its roles share a machine. texts: values that its API takes only as text. absent:
    addresses of pods that it does not make."""

    fields: Map
    roles: Sequence[Role]
    row: Mapping[str, Any] = Map()
    on_one: bool = False
    texts: Sequence[Any] = ()
    absent: Sequence[Any] = ()

    @property
    def launches(self) -> list[Launch]:
        """Those of all roles."""
        return [one for role in self.roles for one in role.launches]


def jobs_of(documents: Iterable[Any], beside: Callable[[str], str]) -> list[Job]:
    """The jobs of a file, one for each document that is a map. beside: as in Place."""
    maps = [one for one in documents if isinstance(one, Map)]
    started = [inside(one, "spec", "entrypoint") for one in maps]
    texts = [placed(beside(name), one, how="beside")
             for one in started for name in read_shell(str(one), {}).words
             if name.endswith(".py")]  # fmt: skip
    asked = [number for text in parts_of(Text, *maps, texts) for number in _scaled(text)]
    is_one = sum(str(one.get("kind")) in ON_RAY for one in maps) == 1  # else not known of which
    return [_job(one, asked if is_one else ()) for one in maps]


def _scaled(text: Text) -> Iterator[Number]:
    """The GPUs for which a script of Python asks Ray."""
    tree = parse_python(text) if "ScalingConfig(" in text else None
    for call in of_kind(ast.walk(tree), ast.Call) if tree else ():
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        workers, each = given.get("num_workers", ""), given.get("resources_per_worker", "{}")
        if last_name(call) == "ScalingConfig" and given.get("use_gpu") == "True":
            gpus = str(inside(*values_of(each), "GPU") or 1)  # a map of Python is one of YAML
            if workers.isdecimal() and gpus.replace(".", "").isdecimal():
                line = 0 if text.how == "beside" else call.lineno - 1
                at = placed(0, text.line + line, f"num_workers={workers}")
                yield placed(int(int(workers) * float(gpus)), at)


def _job(fields: Map, asked: Sequence[Number]) -> Job:
    for job in maps(fields.get("job"))[:1]:
        return Job(job, [*_of_nomad(job)], table("launch_places")["Nomad"])
    if "services" in fields and "kind" not in fields:
        services = [one for part in maps(fields["services"]) for one in maps([*part.values()])]
        place = Place(on_each=True, row="services", contained=True)
        made = [_service(one, replace(place, gpus=_gpus_of_service(one))) for one in services]
        return Job(fields, made, on_one=True)
    if fields.keys() & {"distributed_type", "compute_environment"}:
        return Job(fields, [_accelerate(fields)])
    for row, count, script in _TASKS:
        nodes = number(fields.get(count))
        if nodes and nodes > 1 and script in fields:
            given = inside(fields, "resources", "accelerators")
            gpus = number(placed(given.rpartition(":")[2], given)) if given else None
            place = Place(nodes, gpus=gpus, on_each=True, row=row, alike=nodes, is_job=True)
            launches = _launches(items(fields[script]) or [fields[script]], place)
            return Job(fields, [replace(_container(fields), launches=[*launches])])
    return _pods(fields, asked)


def _accelerate(fields: Map) -> Role:
    """A configuration, which starts the same on each machine."""
    row = table("launchers")["accelerate"]
    place = Place(on_each=True, contained=True)
    found = launch_of(_command(fields), [Step(row, texts_in(fields))], place)
    return replace(_container(fields), launches=[replace(found, rank=None)])


def _command(at: Any) -> Command:
    """What starts something without words of its own."""
    return Command(at.line, getattr(at, "shown", ""), [], {}, {})


def _service(fields: Map, place: Place, scripts: Sequence[Any] = ()) -> Role:
    """A service of compose, or a container like one. scripts: files that its words name."""
    given, size = fields.get("shm_size"), None
    mounted = any(SHARED_MEMORY in one for one in parts_of(Text, fields))
    if not (fields.keys() & {"ipc", "extends"} or mounted):
        size = bytes_of(given) if given else placed(DEFAULT_SHARED, 0, how="default")
    role = replace(
        _container(fields),
        gpus=place.gpus,
        shared=size,
        host_network=fields.get("network_mode") == "host",
    )
    own = replace(place, gpus=place.gpus or None, held=role.held)
    launches = [*_launches([*_words(fields), *scripts], own)]
    if not ("profiles" in fields or "service_completed_successfully" in fields.text):
        parts = parts_of(Map, fields)
        role = replace(role, ids=[one for part in parts for one in items(part.get("device_ids"))])
    return replace(role, launches=launches, place=place)


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


def _pods(fields: Map, asked: Sequence[Number]) -> Job:
    """The pods of a job, by roles."""
    kind, version = (str(inside(fields, one) or "") for one in ("kind", "apiVersion"))
    found = [*_holders(fields)]
    each = [one for holder in found for one in _containers(*holder, version)]
    counts = [pods for _holder, pods, _params in found]
    nodes = None if None in counts else sum(filter(None, counts))
    total = sum(
        (number(one.params.get("num-gpus")) or one.gpus or 0) * (one.pods or 0)
        for one, _own in each
    )
    rows = table("launch_places")
    is_known = nodes is not None and nodes > 0 and kind in rows
    at = next(iter(inside(fields, "spec")), fields)
    # the Job of Volcano is not that of Kubernetes
    row = kind if kind in rows and not version.startswith("batch.volcano.sh/") else "pods"
    workers = number(inside(fields, "spec", "mpiReplicaSpecs", "Worker", "replicas"))
    place = Place(
        placed(nodes, at) if is_known else None,
        total=placed(total, at) if is_known and total else None,
        on_each=True,
        slots=times(workers, number(inside(fields, "spec", "slotsPerWorker")) or ONE),
        row=row,
        contained=True,
        text=fields.text,
        meets=any((rows.get(one) or {}).get("meets") for one in parts_of(Text, fields)),
    )
    roles = [_role(*one, place, number(inside(fields, "spec", "nprocPerNode"))) for one in each]
    if kind in ON_RAY:
        on_ray, spec = replace(place, pooled=True, contained=False), inside(fields, "spec")
        launches = [*_launches([spec.get("entrypoint")], on_ray)]
        for one in filter(None, [*asked, number(spec.get("entrypointNumGpus"))]):
            launches.append(replace(launch_of(_command(one), [], on_ray), all=one))
        roles.append(replace(_container(fields), launches=launches))
    job = Job(fields, roles, rows.get(kind) or {}, texts=_values_of_text(fields))
    return job._replace(absent=[*_absent(job)])


def _values_of_text(fields: Map) -> list[Any]:
    """Values that the API takes only as text."""
    names = table("maps_of_texts") if "apiVersion" in fields else ()
    found = []
    for part in parts_of(Map, fields):
        found += [inside(one, "value") for one in items(part.get("env"))]
        given = maps([part.get(name) for name in names])
        found += [value for one in given for value in one.values()]
    return found


def _absent(job: Job) -> Iterator[Any]:
    """Addresses of a JobSet's pods that it does not make: NAME-PART-JOB-POD.SUBDOMAIN."""
    spec, name = inside(job.fields, "spec"), inside(job.fields, "metadata", "name")
    network, sizes = inside(spec, "network"), dict[str, list[Any]]()
    domain = network.get("enableDNSHostnames") != "false" and (network.get("subdomain") or name)
    for part in maps(spec.get("replicatedJobs")):
        given = part.get("replicas"), inside(part, "template", "spec").get("parallelism")
        sizes[f"{name}-{part.get('name')}"] = [number(one) if one else ONE for one in given]
    for launch in job.launches if sizes else ():
        found = _NAME_OF_POD.match(launch.point[0])
        if found is None or not found[1].startswith(f"{name}-"):
            continue
        pairs = zip(found.group(2, 3), sizes.get(found[1], [placed(0, 0)]), strict=False)
        if found[4] != domain or any(most is not None and int(at) >= most for at, most in pairs):
            yield launch.meets or launch.variable("MASTER_ADDR")


def _role(role: Role, own: Map, place: Place, each: Count) -> Role:
    place = replace(
        place, gpus=role.gpus, held=role.held, memory=role.place.memory, alike=role.pods
    )
    if any(name.startswith("PET_") for name in role.environment):
        place = replace(place, meets=True)
    launches = [*_launches(_words(own), place)]
    if each and not any(one.processes for one in launches if one.launcher):
        made = launch_of(_command(each), [Step(table("launchers")["torchrun"], {})], place)
        launches.append(replace(made, processes=each))
    return replace(role, launches=launches, place=place)


def _holders(document: Map) -> Iterator[tuple[Map, int | None, Map]]:
    """(map with containers, number of pods, options of ray start) of each role; None if it is not
    in the file."""
    grows = any(one.get("enableInTreeAutoscaling") == "true" for one in parts_of(Map, document))
    waiting: list[tuple[Any, int | None, Map]] = [(document, 1, Map())]
    for _ in range(MOST_NODES):  # a part that is used twice counts twice
        if not waiting:
            return
        value, pods, params = waiting.pop()
        waiting += [(one, pods, params) for one in items(value)[::-1]]
        if not isinstance(value, Map):
            continue
        params = inside(value, "rayStartParams") or params
        names = COUNTS if grows or "groupName" not in value else COUNTS[1:]
        counts = [value[name] for name in names if isinstance(value.get(name), Text)]
        if "groupName" in value and ("numOfHosts" in value or not counts):
            pods = None
        elif "leaderWorkerTemplate" not in value and counts:  # beside it, replicas are groups
            if at_once := "completions" in value:  # no more than these
                counts.append(value.get("parallelism", placed("1", 0)))
            known = [number(one) for one in counts]
            most = (min if at_once else max)(filter(None, known), default=1)
            pods = None if None in known or pods is None else pods * most
        trainer = inside(value, "trainer")
        if "containers" in value:
            yield value, pods, params
        elif isinstance(trainer, Map) and trainer.keys() & {*WORDS}:
            yield trainer, number(trainer.get("numNodes", placed("1", 0))), params
            continue
        size = number(value.get("size"))
        workers = max(1, size - ("leaderTemplate" in value)) if size else None
        for key, child in [*value.items()][::-1]:
            inner = workers if key == "workerTemplate" else pods
            waiting.append((child, inner, params))


def _containers(
    holder: Map, pods: int | None, params: Map, version: str
) -> Iterator[tuple[Role, Map]]:
    """The containers of a pod, with what the pod itself gives them."""
    texts = [*parts_of(Text, holder)]
    fields = [pair for part in parts_of(Map, holder) for pair in part.items()]
    has_shared = version.startswith("ray.io/") or any(SHARED_MEMORY in one for one in texts)
    has_shared = has_shared or ("hostIPC", "true") in fields
    sizes = (bytes_of(one) for name, one in fields if name == "sizeLimit")
    limit = next(filter(None, sizes), None) if ("medium", "Memory") in fields else None
    rdma = [one for name, one in fields if name.startswith(_RDMA) and number(one)]
    rdma += [one for one in texts if one.startswith("/dev/infiniband")]
    lock = "IPC_LOCK" in texts or ("privileged", "true") in fields
    listed = items(holder.get("containers")) if "containers" in holder else [holder]
    for own in (one for one in listed if isinstance(one, Map)):
        resources = inside(own, "resources") or inside(own, "resourcesPerNode")
        asked = [one for part in parts_of(Map, resources) for one in part.items()]
        gpus = (number(one) for name, one in asked if _GPU.search(name))
        made = replace(
            _container(own),
            pods=pods,
            gpus=next(filter(None, gpus), None),
            params=params,
            shared=limit if has_shared else placed(DEFAULT_SHARED, 0, how="default"),
            place=Place(memory=bytes_of(inside(resources, "limits", "memory"))),
            devices=next(iter(rdma), None),
            may_lock=lock,
            host_network=("hostNetwork", "true") in fields,
        )
        yield made, own


def _of_nomad(job: Map) -> Iterator[Role]:
    """The tasks of a job's groups; what its templates compute is not known."""
    groups = maps(job.get("group"))
    for group in groups:
        pods = number(group.get("count", placed("1", group)))
        listed = [one for part in parts_of(Map, group) for one in maps(part.get("port"))]
        fixed = {
            f"${{NOMAD_PORT_{one.get('name')}}}": one.get("static", one.get("to"))
            for one in listed
            if one.keys() & {"static", "to"}
        }
        for task in maps(group.get("task")):
            yield _task_of_nomad(task, pods, pods if len(groups) == 1 else None, fixed)


def _task_of_nomad(task: Map, pods: Count, nodes: Count, fixed: Mapping[str, Any]) -> Role:
    config, resources, env = (
        Map(one for part in maps(task.get(name)) for one in part.items())
        for name in ("config", "resources", "env")
    )
    templates, driver = maps(task.get("template")), task.get("driver")
    config["environment"] = Map({name: fixed.get(one, one) for name, one in env.items()})
    if driver not in ("docker", "podman") or "ipc_mode" in config:
        config["ipc"] = ""
    if any(one.get("env") == "true" for one in templates):
        config["env_file"] = ""
    config.line, config.text = task.line, task.text
    asked = [one for one in maps(resources.get("device")) if "gpu" in str(one.get("name"))]
    gpus = next((number(one.get("count", placed("1", one))) for one in asked), None)
    memory = bytes_of(resources.get("memory_max", resources.get("memory")), "m")
    place = Place(nodes, gpus=gpus, total=times(gpus, nodes), on_each=True, row="Nomad")
    # raw_exec keeps no limit
    memory = memory if driver != "raw_exec" else None
    place = replace(place, alike=pods, contained=True, memory=memory)
    names = " ".join(one for one in _words(config) if isinstance(one, Text))
    scripts = [one.get("data") for one in templates
               if PurePath(one.get("destination") or "-").name in names]  # fmt: skip
    return replace(_service(config, place, scripts), pods=pods)


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
                path = inside(one, "valueFrom", "fieldRef", "fieldPath")
                value = placed(f"${{{path}}}", name) if path else inside(one, "value")
                found[name] = placed(value, name) if isinstance(value, Text) else None
    return {
        str(name): placed(value, value, f"{name}={value}")
        if isinstance(value, Text) and ("$" not in value or of_each(value)) and "{{" not in value
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
    scripts = [one for one in words if "\n" in one.strip()]
    if not scripts and (len(words) == 1 or place.is_job):
        scripts = words
    for one in scripts:
        yield from launches_of(read_shell(one, place.held, one.line), place)
    if words and not scripts:
        at = next((one for one in words if one in table("launchers")), words[0])
        command = Command(at.line, " ".join(words), words, place.held, {})
        yield from launches_of(Script([command], {}, []), place)
