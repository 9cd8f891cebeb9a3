"""The checks of launches, written once for every launcher: numbers that do not fit each other, and
places where ranks do not meet. What is not known is no fault. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, row_of, said
from unhang.jobs.lint.launch import PER_NODE, Launch, Options, Step, times
from unhang.jobs.lint.placed import ONE, Count, Placed, number, placed
from unhang.jobs.lint.shell import variable, varies

# GPUs: DGX-2 and Google's a2-megagpu-16g have 16, the most in one machine
MOST_OF_A_MACHINE = 16
# bytes: importing torch and making a CUDA context take 1.5 to 2 GiB of a process's memory, and
# NCCL's and the script's own buffers are on top; below this even an idle rank is in danger
LEAST_OF_A_RANK = 3 << 30
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.\d{1,3}|::1|\[::1\])(?::\d{0,5})?")
_BRIDGE = re.compile(r"172\.17\.\d{1,3}\.\d{1,3}(?::\d{1,5})?")
_OWN_NAME = re.compile(r"(?:\$\(|`)?\s?(?:hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\b)")
_READS_MASTER = re.compile(r"python|\.(?:py|sh)$|^\./|^(?:bash|sh)$|\$")
_GPUS_OF_NODE = re.compile(r"gpus_per_node$|^nproc_per_node$")
_OF_RANKS = re.compile(
    r"(?:NCCL|GLOO|UCX|FI|TORCH)_(?!.*(?:LOG|DEBUG|DUMP|STATS|TRACE))\w+|(?P<meeting>MASTER_(?:ADDR|PORT))"
)
_OF_EACH = re.compile(
    r"(?i:port|endpoint)[= ]{1,4}\S{0,80}\$(?:\(\(?[^)]{0,80})?\{?"
    r"\b(?:RANDOM|shuf|SLURM_(?:PROCID|LOCALID|NODEID))\b"
)
_OF_DEEPSPEED = ".deepspeed_env"
_OPTIONS = re.compile(r"(?i)arg|opt|flag|env|param|var")
_UNKNOWN = re.compile(r"\$\{?\w+(?:\[@\])?\}?")
_READS_FILE = re.compile(r"(?:^|[;&|]\s*)(?:source|\.)\s")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked for in a command


def check_launches(launches: Sequence[Launch], *, reached: bool = False) -> Findings:
    """The findings of the launches of one script, pod or task. reached: whether other nodes call
    the first one by its name, so that it may call itself localhost."""
    for launch in launches:
        for check in _CHECKS:
            yield from check(launch)
    yield from _starts(launches)
    meeting = [one for one in launches if not (reached and one.rank == 0)]
    yield from _loopback(meeting)
    yield from _meeting(meeting)
    yield from _ray(launches)


def fault(key: str, at: Launch | Placed, where: str = "any", **values: Any) -> Finding:
    """A finding in the words of its row. where: the row of launch_places."""
    where = at.place.row if isinstance(at, Launch) else where
    words = {"at": at, **row_of("launch_places", where), **values}
    place = at.command if isinstance(at, Launch) else at
    return said(key, place.line, place.shown, words)


def is_loopback(address: object) -> bool:
    """Whether an address, also with a port, is the machine's own on every machine."""
    return _LOOPBACK.fullmatch(str(address)) is not None


def _numbers(launch: Launch) -> Findings:
    """Nodes that a launcher waits for, and processes that it starts."""
    place, waits, whole = launch.place, launch.waits, launch.all
    nodes, named = place.nodes, launch.options.keys() & {"hostfile", "H", "launcher"}
    if not launch.launcher or launch.command.of_some:
        return
    is_deepspeed = launch.launcher == "deepspeed"
    alone = waits == 1 and (is_deepspeed or place.kind != "slurm")  # a job on each node
    if waits and nodes and waits != nodes and launch.of_all and place.kind != "pods" and not alone:
        yield fault("waits_for_others", launch)
    elif (nodes or ONE) > 1 != waits and not (place.spreads or (is_deepspeed and named)):
        yield fault("on_first" if is_deepspeed else "on_first_node", launch)
    if whole and waits and whole % waits:
        yield fault("not_divided", whole, waits=waits)
    tasks, processes = launch.tasks, launch.processes or whole
    counts_tasks = launch.by_srun and not launch.options.keys() & {"n", "ntasks"}
    if tasks and processes and min(tasks, processes) > 1 and counts_tasks:
        yield fault("in_each_task", launch, processes=processes, product=tasks * processes)


def _ranks_of_nodes(launch: Launch) -> Findings:
    """One number for all nodes, and torchrun that is told to be alone."""
    rank, options, nodes = launch.rank, launch.options, launch.nodes
    if not launch.launcher:
        return
    given = [
        name
        for name in ("node_rank", "master_addr", "rdzv_endpoint")
        if options.get(name, "0") not in ("0", "localhost", "127.0.0.1")
    ]
    if "standalone" in options and options.get("nnodes", "1") != "1" and given:
        yield fault("standalone", launch, name=given[0])
    is_static = options.get("rdzv_backend", "static") == "static" and "rdzv_endpoint" not in options
    several = nodes is not None and nodes > 1 and launch.waits != 1
    is_one = is_static and several and launch.of_all and not launch.command.of_some
    step, waits = launch.step("launcher"), launch.waits
    own = number(step.given("rank")) if step else None
    if own and waits and own >= waits:
        yield fault("rank_beyond", own, waits=waits)
    if rank is not None and is_one and launch.place.kind != "pods":
        early = "read_too_early" if "SLURM_" in launch.command.shown else "one_rank_for_all"
        key = early if launch.place.kind == "slurm" else "rank_of_several_pods"
        yield fault(key, launch)


def _of_tasks(launch: Launch) -> Findings:
    """What must differ in each task and is read once, and what must not and is read by each."""
    nodes, tasks, own = launch.nodes, launch.tasks, launch.command
    started = (nodes or 0) * (tasks or 1)
    if not launch.step("step", "everywhere") or own.of_some:
        return
    found: dict[int, Finding] = {}
    if started > 1 and _runs_python(launch) and not launch.launcher:
        for name, many in (("RANK", started), ("LOCAL_RANK", tasks), ("NODE_RANK", nodes)):
            at, rank = own.exported.get(name), number(launch.variable(name))
            if at and rank is not None and (many or 0) > 1 and not _is_global(name, at):
                found.setdefault(at.line, fault("rank_of_all_tasks", at, rank=rank, many=many))
    yield from found.values()
    port = own.raw.get("MASTER_PORT", launch.command.words[0])
    shown = port.shown if "MASTER_PORT" in own.raw else own.shown
    if launch.inside == "raw" and (launch.several or started > 1) and _OF_EACH.search(shown):
        yield fault("port_of_each", placed(port, port, shown))


def _is_global(name: str, value: str) -> bool:
    """Whether a local rank is that of the whole job."""
    return name == "LOCAL_RANK" and "SLURM_PROCID" in value and "%" not in value


def _runs_python(launch: Launch) -> bool:
    return any("python" in one or one.endswith(".py") for one in launch.command.words)


def _hosts(launch: Launch) -> Findings:
    """Hosts of a list or a file against what is started on them."""
    step, hosts = launch.step("step", "launcher"), launch.hosts
    names = [one.name for one in hosts]
    is_deepspeed = launch.launcher == "deepspeed"
    for at, host in enumerate(hosts):
        if host.name in names[:at] and (host.slots or is_deepspeed):
            yield fault("host_twice", host.name)
        if is_loopback(host.name) and not all(map(is_loopback, names)):
            yield fault("host_is_loopback", host.name)
    if step is None or "oversubscribe" in launch.command.shown.lower():
        return
    has, wanted = launch.slots or launch.place.slots, launch.all
    if hosts and is_deepspeed:
        has, wanted = (
            min(filter(None, (one.slots for one in hosts)), default=None),
            launch.processes,
        )
        if launch.waits and launch.waits > len(names):
            yield fault("few_hosts", launch, has=placed(len(names), names[0]))
    elif not _is_open_mpi(step):
        return
    elif PER_NODE.search(step.options.get("map_by", "")):
        has = times(launch.tasks, launch.nodes) or has
    if has and wanted and has < wanted:
        yield fault("few_slots", launch, has=has, wanted=wanted)


def _is_open_mpi(step: Step) -> bool:
    """Whether it is Open MPI's mpirun; that of MPICH has options of its own."""
    of_mpich = {"hosts", "ppn", "f", "perhost", "genv", "genvall", "genvlist", "env"}
    return step.row["program"] in ("mpirun", "mpiexec") and not step.options.keys() & of_mpich


def _forwarded(launch: Launch) -> Findings:
    """Variables that a launcher does not give to what it starts elsewhere."""
    by, shown = launch.by, launch.by.shown
    step = next(
        (one for one in launch.steps if "keeps" in one.row or one.row["program"] == "srun"), None
    )
    if step is None or not (
        _runs_python(launch) or launch.step("launcher", "server") or _is_open_mpi(step)
    ):
        return
    kind, place = step.row["kind"], launch.place
    asked = step.options.get("export") or variable(by.held, "SLURM_EXPORT_ENV") or "ALL"
    if "keeps" not in step.row:
        gives_all = "ALL" in asked or "$" in asked
    elif kind == "step":  # under Slurm its daemons are started by srun, with all variables
        gives_all = not _is_open_mpi(step) or place.kind == "slurm" or not _elsewhere(launch, step)
    else:
        told = _OF_DEEPSPEED in place.text or place.beside(_OF_DEEPSPEED)
        gives_all = kind == "launcher" and (bool(told) or not _elsewhere(launch, step))
    opens = [two for one, two in pairwise(by.words) if _UNKNOWN.fullmatch(two) and one[:1] != "-"]
    is_open = len(opens) > (kind in ("everywhere", "container"))  # the host, the image
    is_open |= any(map(_OPTIONS.search, opens))
    if gives_all or is_open or _READS_FILE.search(shown) or step.given("opens"):
        return
    kept = tuple(step.row.get("keeps", ()))
    lost = [
        (name, at)
        for name, at in by.exported.items()
        if (found := _OF_RANKS.fullmatch(name)) and name not in shown and not name.startswith(kept)
        and not (found["meeting"] and launch.launcher)
    ]  # fmt: skip
    if lost:
        names = ", ".join(name for name, _at in lost)
        yield fault("not_forwarded", lost[0][1], names=names, program=step.row["program"])


def _elsewhere(launch: Launch, step: Step) -> bool:
    """Whether a step is known to start something on other machines."""
    hosts = {one.name for one in launch.hosts}
    return len(hosts) > 1 or (not hosts and step.given("hostfile") is not None)


def _starts(launches: Sequence[Launch]) -> Findings:
    """Launchers that a script starts on several nodes, by a loop or one after the other."""
    starts, turns = list[Launch](), list[int]()
    for launch in launches:
        step, loop = launch.step("launcher"), launch.by.loop
        rank = step.given("rank") if step else None
        if not launch.launcher or rank is None or (launch.waits or 0) < 2:
            continue
        starts.append(launch)
        words = " ".join(launch.by.words[:3]) if launch.step("everywhere") else ""
        if varies(words, loop):
            port = launch.options.get("master_port")
            at = next((one for one in (launch.meets, port) if one and varies(one, loop)), None)
            if number(rank) is not None:
                yield fault("rank_of_several_pods", launch)
            if at:
                yield fault("point_of_each", at)
        counts = {len(one) for one in loop.values() if one}
        turns += counts if launch.by.of_some else {1}
    started, waits = sum(turns), {one.waits for one in starts}
    alone = len({one.rank for one in starts}) < len(starts) > 1  # several jobs one after another
    if len(turns) == len(starts) and started > 1 and not (alone or waits & {started, *turns}):
        yield fault("starts", starts[0], started=placed(started, 0))


def _memory(launch: Launch) -> Findings:
    """Memory of a node, against its ranks."""
    if _runs_python(launch):
        yield from of_memory(launch.place.memory, (launch.processes or 1) * (launch.tasks or 1))


def of_memory(memory: Count, ranks: int) -> Findings:
    """Memory that is too little for so many ranks."""
    if memory and ranks > 1 and memory < LEAST_OF_A_RANK * ranks:
        yield fault("little_memory", memory, ranks=ranks, each=memory / ranks / (1 << 30))


def _gpus(launch: Launch) -> Findings:
    """GPUs that a node's processes need, against those that they see."""
    server, each, gpus = launch.step("server"), launch.each, launch.gpus
    elsewhere = launch.several or launch.options.keys() & {"nnodes", "distributed_executor_backend"}
    processes, tasks = launch.processes, launch.tasks
    if (server and elsewhere) or not processes or not (server or launch.launcher or each):
        return
    if each and (not tasks or tasks == 1 or each == 1):
        return  # one process is meant to have them all
    count = placed(processes * (tasks if each and tasks else 1), processes)
    wanted = count * (each or 1)
    if gpus and launch.several and gpus == launch.all and not launch.step("server"):
        yield fault("counts_one_machine", launch.all or gpus, nodes=launch.waits, gpus=gpus)
    if gpus is not None and gpus < wanted:
        at = launch if launch.place.kind in ("slurm", "shell", "other", "task") else gpus
        yield fault("too_few_gpus", at, wanted=wanted, count=count, gpus=gpus)
    elif each and wanted > MOST_OF_A_MACHINE:
        yield fault("too_few_anywhere", launch, wanted=wanted, count=count)


def _axes(launch: Launch) -> Findings:
    """Parallel sizes against the GPUs of the job, or against its ranks."""
    place, wanted, nodes = launch.place, prod(launch.axes.values()), launch.nodes
    if wanted < 2:
        return
    at = next(iter(launch.axes.values()))
    how = " x ".join(f"{name} {one}" for name, one in launch.axes.items())
    total = place.total
    if launch.step("server") or place.kind == "ray":
        several = place.kind == "ray" or launch.several or (place.nodes or ONE) > 1
        if total and total < wanted and several:
            yield fault("axes", at, how=how, wanted=wanted, has=total)
        return
    nodes = launch.waits or (None if "nnodes" in launch.options else nodes)
    each = launch.processes if launch.launcher else launch.tasks
    if nodes and each and nodes.how == "written" and (launch.launcher or launch.step("step")):
        ranks = launch.all or placed(nodes * each, nodes)
        if ranks % wanted:
            numbers: Any = {"nodes": nodes, "each": each, "ranks": ranks}
            yield fault("axes_of_world", at, how=how, wanted=wanted, **numbers)


def _world(launch: Launch) -> Findings:
    """A constant WORLD_SIZE beside the tasks, and a rank of the whole job as the local one."""
    nodes, tasks, world = launch.nodes, launch.tasks, number(launch.variable("WORLD_SIZE"))
    world = world if "WORLD_SIZE" in {**launch.by.exported, **launch.command.exported} else None
    local = launch.command.raw.get("LOCAL_RANK")
    if not launch.step("step") or launch.step("launcher", "server", "ray"):
        return
    if local and _is_global("LOCAL_RANK", local) and nodes and nodes > 1:
        yield fault("rank_as_local", local)
    if world and nodes and tasks and nodes.how == tasks.how == "written" and _runs_python(launch):
        ranks = launch.all or nodes * tasks
        if ranks != world:
            yield fault("world_size", world, ranks=ranks, launch=launch)


def _containers(launch: Launch) -> Findings:
    """docker run: its network, its shared memory."""
    step, meets = launch.step("container"), launch.meets
    if step is None:
        return
    given, text = step.options.keys(), launch.command.shown
    with_gpus = given & {"gpus", "runtime"} or "nvidia.com/gpu" in text
    if with_gpus and not given & {"shm_size", "ipc"} and _SHARED_MEMORY not in text:
        yield fault("container_shm", launch)
    odd = meets and (is_loopback(meets) or _BRIDGE.fullmatch(meets))
    if launch.launcher and launch.several and not odd and not given & {"net", "network"}:
        yield fault("container_on_bridge", launch)


def _steps(launch: Launch) -> Findings:
    """What srun does to what it starts."""
    options, ray, tasks = launch.options, launch.step("ray"), launch.tasks
    yield from sees_one_gpu(options if launch.step("step") else {})
    if launch.by_srun and ray and "block" not in ray.options and not launch.inside:
        yield fault("ray_that_ends", launch)
    devices = number(options.get("trainer.devices"))
    if launch.by_srun and tasks and devices and devices != tasks and not launch.launcher:
        yield fault("unlike_devices", launch, devices=devices)


def sees_one_gpu(options: Options) -> Findings:
    """Options with which each task sees one GPU."""
    for name in ("gpus_per_task", "gpu_bind"):
        if options.get(name) in ("1", "single:1"):
            yield fault("one_gpu_per_task", options[name])


_CHECKS = (
    _numbers,
    _ranks_of_nodes,
    _of_tasks,
    _hosts,
    _forwarded,
    _memory,
    _gpus,
    _axes,
    _world,
    _containers,
    _steps,
)


def _on_one_machine(launches: Sequence[Launch]) -> bool:
    """Whether a script starts several agents itself, which tries several nodes on one machine."""
    launched = [one for one in launches if one.launcher]
    return (len(launched) > 1 or any(one.command.together for one in launched)) and not any(
        one.place.nodes for one in launched
    )


def _reads_master(launch: Launch) -> bool:
    """Whether a program takes the address of MASTER_ADDR; torchrun does not."""
    if launch.launcher:
        return "torch" not in launch.launcher
    reads = any(map(_READS_MASTER.search, launch.steps[-1].words))
    return reads and (launch.place.on_each or launch.step("step") is not None)


def _loopback(launches: Sequence[Launch]) -> Findings:
    """Addresses that reach only the machine itself, as those of several nodes."""
    found: dict[int, Finding] = {}
    for launch in launches if not _on_one_machine(launches) else ():
        master, nodes, meets = launch.variable("MASTER_ADDR"), launch.place.nodes, launch.meets
        of_job = launch.waits is None and launch.of_all and (nodes or ONE) > 1
        if launch.waits == 1 or not (launch.several or of_job):
            continue
        at = meets if is_loopback(meets) else None
        if is_loopback(master) and (at or _reads_master(launch)):
            at = master
        if at:
            found.setdefault(at.line, fault("loopback", at, launch.place.row))
        host = launch.variable("VLLM_HOST_IP")
        if host and is_loopback(host):
            found.setdefault(host.line, fault("own_host", host))
        each = launch.inside == "raw" and launch.place.kind == "slurm"
        for one in filter(None, (launch.command.raw.get("MASTER_ADDR"), meets)):
            if each and not launch.command.of_some and _OWN_NAME.match(one.strip("\"'")):
                found.setdefault(one.line, fault("own_name", one, launch.place.row))
    yield from found.values()


def _meeting(launches: Sequence[Launch]) -> Findings:
    """torchrun of several nodes: at no address, at one that is not read, at two."""
    alone = _on_one_machine(launches)
    yield from meeting_points(launches)
    for launch in launches:
        options, ray, address = launch.options, launch.step("ray"), launch.meets or ""
        head, nodes = options.get("node_ip_address", ""), launch.place.nodes
        odd_head = is_loopback(head) or head == "0.0.0.0"  # noqa: S104 - in a command
        if ray and "head" in ray.options and odd_head and nodes != 1:
            yield fault("ray_head", launch)
        if not launch.launcher or launch.waits is None or launch.waits < 2:
            continue
        unread = options.get("rdzv_backend") == "c10d" and "rdzv_endpoint" not in options
        unread &= "torch" in launch.launcher  # accelerate makes the endpoint of its address
        if _BRIDGE.fullmatch(address):
            yield fault("docker_address", launch)
        elif unread and address:
            yield fault("unread_address", launch)
        if "torch" in launch.launcher and not (launch.place.meets or launch.meets):
            yield from _no_address(launch, alone=alone)


def meeting_points(launches: Sequence[Launch]) -> Findings:
    """Nodes of one job that are to meet at another place than the first of them."""
    known = [
        one
        for one in launches
        if one.node is not None and not {*one.meeting} <= {*":"} and "$" not in one.meeting
    ]
    for first, other in ((known[0], one) for one in known[1:]):
        of_job = (first.waits, first.variable("WORLD_SIZE")) == (
            other.waits, other.variable("WORLD_SIZE"))  # fmt: skip
        odd = is_loopback(first.meeting) or is_loopback(other.meeting)
        if first.meeting != other.meeting and first.node != other.node and of_job and not odd:
            at = other.options.get("master_port") or other.variable("MASTER_PORT") or other
            yield fault("two_ports", at, other=first.meeting, line=first.command.line)


def _no_address(launch: Launch, *, alone: bool) -> Findings:
    """torchrun without an address; not where one may be in a variable."""
    step, rank = launch.step("launcher"), launch.options.get("node_rank")
    if step is None or step.options.keys() & {"rdzv_conf", "standalone"}:
        return
    known = {*step.options.values()}
    is_open = any(one.startswith("$") and one not in known for one in step.words)
    if not is_open and not (rank and (alone or rank == "0")):  # the first node is its own master
        yield fault("no_address", launch, node="" if rank else "takes itself for node 0 and ")


def _ray(launches: Sequence[Launch]) -> Findings:
    """GPUs that are asked of Ray, beside those of its cluster or that `ray start` announces."""
    starts = [one for one in launches if one.step("ray")]
    given = (number(one.options.get("num_gpus")) for one in starts)
    announced = max(filter(None, given), default=None)
    for launch in (one for one in launches if one not in starts):
        options, place = launch.options, launch.place
        alone = ONE if len(starts) == 1 and not starts[0].step("step") else None
        each = (number(one) for name, one in options.items() if _GPUS_OF_NODE.search(name))
        size = placed(prod(launch.axes.values()), launch.command)
        total = times(announced, place.nodes or alone)
        asked = [(max(filter(None, each), default=None), announced), (size, total)]
        if place.kind == "ray":
            with_gpus = options.keys() & {"use_gpu", "num_gpus"}
            workers = number(options.get("num_workers") or options.get("num_gpus"))
            asked = [(launch.all or (workers if with_gpus else None), place.total)]
        for wanted, has in asked:
            if wanted and has and wanted > has:
                yield fault("more_than_ray", wanted, wanted=wanted, has=has)
                break
