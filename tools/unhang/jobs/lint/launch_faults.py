"""The checks of launches, written once for every launcher: numbers that do not fit each other, and
places where ranks do not meet. What is not known is no fault. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, row_of, said
from unhang.jobs.lint.launch import Launch
from unhang.jobs.lint.placed import ONE, Placed, number, placed

MOST_OF_A_MACHINE = 16  # GPUs
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.\d{1,3}|::1|\[::1\])(?::\d{0,5})?")
_BRIDGE = re.compile(r"172\.17\.\d{1,3}\.\d{1,3}(?::\d{1,5})?")
_OWN_NAME = re.compile(r"(?:\$\(|`)?\s?(?:hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\b)")
_READS_MASTER = re.compile(r"python|\.(?:py|sh)$|^\./|^(?:bash|sh)$|\$")
_GPUS_OF_NODE = re.compile(r"gpus_per_node$|^nproc_per_node$")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked for in a command


def check_launches(launches: Sequence[Launch], *, reached: bool = False) -> Findings:
    """The findings of the launches of one script, pod or task. reached: whether other nodes call
    the first one by its name, so that it may call itself localhost."""
    for launch in launches:
        for check in (_numbers, _ranks_of_nodes, _gpus, _axes, _world, _containers, _steps):
            yield from check(launch)
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
    if rank is not None and is_one and launch.place.kind != "pods":
        early = "read_too_early" if "SLURM_" in launch.command.shown else "one_rank_for_all"
        key = early if launch.place.kind == "slurm" else "rank_of_several_pods"
        yield fault(key, launch)


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
    local = launch.command.raw.get("LOCAL_RANK")
    if not launch.step("step") or launch.step("launcher", "server", "ray"):
        return
    is_python = any("python" in one for step in launch.steps for one in step.words)
    if local and "SLURM_PROCID" in local and "%" not in local and nodes and nodes > 1:
        yield fault("rank_as_local", local)
    if world and nodes and tasks and nodes.how == tasks.how == "written" and is_python:
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
    if launch.step("step") and (
        options.get("gpus_per_task") == "1" or options.get("gpu_bind", "").startswith("single:1")
    ):
        yield fault("one_gpu_per_task", launch)
    if launch.by_srun and ray and "block" not in ray.options and not launch.inside:
        yield fault("ray_that_ends", launch)
    devices = number(options.get("trainer.devices"))
    if launch.by_srun and tasks and devices and devices != tasks and not launch.launcher:
        yield fault("unlike_devices", launch, devices=devices)


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
        each = launch.inside and launch.place.kind == "slurm" and not launch.command.of_some
        for one in filter(None, (launch.command.raw.get("MASTER_ADDR"), meets)):
            if each and _OWN_NAME.match(one.strip("\"'")):
                found.setdefault(one.line, fault("own_name", one, launch.place.row))
    yield from found.values()


def _meeting(launches: Sequence[Launch]) -> Findings:
    """torchrun of several nodes: at no address, at one that is not read, at two."""
    alone, first = _on_one_machine(launches), None
    for launch in launches:
        options, ray, address = launch.options, launch.step("ray"), launch.meets or ""
        head, nodes = options.get("node_ip_address", ""), launch.place.nodes
        odd_head = is_loopback(head) or head == "0.0.0.0"  # noqa: S104 - in a command
        if ray and "head" in ray.options and odd_head and nodes != 1:
            yield fault("ray_head", launch)
        if not launch.launcher or launch.waits is None or launch.waits < 2:
            continue
        unread = options.get("rdzv_backend") == "c10d" and "rdzv_endpoint" not in options
        if _BRIDGE.fullmatch(address):
            yield fault("docker_address", launch)
        elif unread and address:
            yield fault("unread_address", launch)
        where = f"{address}:{options.get('master_port', '')}"
        if launch.rank is not None and address and "$" not in where and not is_loopback(where):
            if first and first[0] != where and first[1] != launch.rank:
                yield fault("two_ports", launch, other=first[0].strip(":"), line=first[2])
            first = first or (where, launch.rank, launch.command.line)
        if "torch" in launch.launcher and not (launch.place.meets or launch.meets):
            yield from _no_address(launch, alone=alone)


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
    """GPUs that are asked of Ray, beside those that `ray start` announces."""
    starts = [one for one in launches if one.step("ray")]
    given = [found for one in starts if (found := number(one.options.get("num_gpus")))]
    has = max(given, default=ONE)
    for launch in launches if given else ():
        alone = ONE if len(starts) == 1 and not starts[0].step("step") else 0
        total = has * (launch.place.nodes or alone)
        each = (number(one) for name, one in launch.options.items() if _GPUS_OF_NODE.search(name))
        size, wanted = prod(launch.axes.values()), max(filter(None, each), default=0)
        if launch not in starts and (wanted > has or (total and size > total)):
            asked, most = (wanted, has) if wanted > has else (size, placed(total, has))
            yield fault("more_than_ray", launch, wanted=asked, has=most)
