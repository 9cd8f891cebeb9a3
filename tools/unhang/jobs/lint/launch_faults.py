"""The checks of launches, written once for every launcher: quantities that must fit each other, and
places where ranks do not meet. What is not known is no fault. Values in, values out."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, row_of, said
from unhang.jobs.lint.launch import Launch, Options, Step, is_loopback, times
from unhang.jobs.lint.placed import ONE, Placed, number, placed
from unhang.jobs.lint.shell import variable, varies

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
_OF_JOB = re.compile(r"\$\{?(?:SLURM_PROCID|OMPI_COMM_WORLD_RANK|PMIX?_RANK)\b")
_OPTIONS = re.compile(r"(?i)arg|opt|flag|env|param|var")
_UNKNOWN = re.compile(r"\$\{?\w+(?:\[@\])?\}?")
_READS_FILE = re.compile(r"(?:^|[;&|]\s*)(?:source|\.)\s")
_FITS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    "divides": lambda by, whole: whole % by == 0,
    "never": lambda *_: False,
}


def unfit(value: Any, relations: str) -> Findings:
    """The rows of a table of relations that do not hold in a launch, or in a container: the first
    of each rule."""
    rules = set[str]()
    for row in table(relations).values():
        found, wanted = (quantity(value, row[one]) for one in ("found", "wanted"))
        if found is None or wanted is None or _FITS[row["fits"]](found, wanted):
            continue
        claims = [quantity(value, name) not in (None, False) for name in row["when"]]
        claims += [quantity(value, name) in (None, False) for name in row["unless"]]
        if all(claims):
            at, where = quantity(value, row["at"]), value.place.row
            made = fault(row["fault"], at, where, of=value, found=found, wanted=wanted)
            if made.rule not in rules:
                yield made
            rules.add(made.rule)


def quantity(value: Any, path: str) -> Any:
    """A quantity or claim of a launch or container, by its name or names with dots: after a step
    those of its row. None if there is none."""
    for name in filter(None, path.split(".")):
        if isinstance(value, Step) and name != "row":
            value = value.given(name)
        elif value is not None:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
    return value


def check_launches(launches: Sequence[Launch], *, reached: bool = False) -> Findings:
    """The findings of the launches of one script, pod or task. reached: whether other nodes call
    the first one by its name, so that it may call itself localhost."""
    for launch in launches:
        yield from unfit(launch, "relations_of_launches")
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


def _ranks_of_nodes(launch: Launch) -> Findings:
    """One number for all nodes, and torchrun that is told to be alone."""
    options, nodes = launch.options, launch.nodes
    if not launch.launcher:
        return
    given = [
        name
        for name in ("node_rank", "master_addr", "rdzv_endpoint")
        if options.get(name, "0") not in ("0", "localhost", "127.0.0.1")
    ]
    if "standalone" in options and options.get("nnodes", "1") != "1" and given:
        yield fault("standalone", launch, name=given[0])
    is_static = (launch.backend or "static") == "static" and "rdzv_endpoint" not in options
    is_one = is_static and launch.rank is not None and (nodes or ONE) > 1 != launch.waits
    if is_one and launch.of_all and not (launch.command.of_some or launch.of_pods):
        early = "read_too_early" if "SLURM_" in launch.command.shown else "one_rank_for_all"
        key = early if launch.place.kind == "slurm" else "rank_of_several_pods"
        yield fault(key, launch)


def _of_tasks(launch: Launch) -> Findings:
    """What must differ in each task and is read once, and what must not and is read by each."""
    nodes, tasks, own = launch.nodes, launch.tasks, launch.command
    started = (nodes or 0) * (tasks or 1)
    step = launch.step("step", "everywhere")
    yield from sees_one_gpu(launch.options if step else {})
    if step is None or own.of_some:
        return
    found: dict[int, Finding] = {}
    is_script = launch.runs_python and not launch.step("launcher", "server", "ray")
    wide = (nodes or 0) > 1 or _elsewhere(launch, step)
    for name in ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES") if is_script and wide else ():
        at = own.raw.get(name)
        if at and _OF_JOB.search(at) and "%" not in at:
            found[at.line] = fault("rank_as_local", at)
    if started > 1 and is_script:
        for name, many in (("RANK", started), ("LOCAL_RANK", tasks), ("NODE_RANK", nodes)):
            at, rank = own.exported.get(name), number(launch.variable(name))
            if at and rank is not None and (many or 0) > 1:
                found.setdefault(at.line, fault("rank_of_all_tasks", at, rank=rank, many=many))
    yield from found.values()
    port = own.raw.get("MASTER_PORT", own.words[0])
    shown = port.shown if "MASTER_PORT" in own.raw else own.shown
    if launch.inside == "raw" and (launch.several or started > 1) and _OF_EACH.search(shown):
        yield fault("port_of_each", placed(port, port, shown))


def _hosts(launch: Launch) -> Findings:
    """Hosts of a list or a file that are there twice, or that are each node itself."""
    names = [one.name for one in launch.hosts]
    for at, host in enumerate(launch.hosts):
        if host.name in names[:at] and (host.slots or launch.starter.row.get("bound")):
            yield fault("host_twice", host.name)
        if is_loopback(host.name) and not all(map(is_loopback, names)):
            yield fault("host_is_loopback", host.name)


def _forwarded(launch: Launch) -> Findings:
    """Variables that a launcher does not give to what it starts elsewhere."""
    by, shown, place = launch.by, launch.by.shown, launch.place
    step = next(
        (one for one in launch.steps if "keeps" in one.row or one.row["program"] == "srun"), None
    )
    if step is None or not (
        launch.runs_python or launch.step("launcher", "server") or launch.by_mpi
    ):
        return
    kind, file = step.row["kind"], step.row.get("env_file")
    asked = step.options.get("export") or variable(by.held, "SLURM_EXPORT_ENV") or "ALL"
    if "keeps" not in step.row:
        gives_all = "ALL" in asked or "$" in asked
    else:  # under Slurm the daemons of MPI are started by srun, with all variables
        gives_all = kind in ("step", "launcher") and not _elsewhere(launch, step)
        gives_all |= kind == "step" and place.kind == "slurm"
        gives_all |= bool(file and (file in place.text or place.beside(file)))
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
        loop, rank = launch.by.loop, launch.starter.given("rank")
        if rank is None or (launch.waits or 0) < 2:
            continue
        starts.append(launch)
        words = " ".join(launch.by.words[:3]) if launch.step("everywhere") else ""
        if varies(words, loop):
            at = next(
                (one for one in (launch.meets, launch.port) if one and varies(one, loop)), None
            )
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


def sees_one_gpu(options: Options) -> Findings:
    """Options with which each task sees one GPU."""
    for name in ("gpus_per_task", "gpu_bind"):
        if options.get(name) in ("1", "single:1"):
            yield fault("one_gpu_per_task", options[name])


_CHECKS = (_ranks_of_nodes, _of_tasks, _hosts, _forwarded)


def _on_one_machine(launches: Sequence[Launch]) -> bool:
    """Whether a script starts several agents itself, which tries several nodes on one machine."""
    launched = [one for one in launches if one.launcher]
    return (len(launched) > 1 or any(one.command.together for one in launched)) and not any(
        one.place.nodes for one in launched
    )


def _reads_master(launch: Launch) -> bool:
    """Whether a program takes the address of MASTER_ADDR; torchrun does not."""
    if launch.launcher:
        return not launch.starter.row.get("own_address")
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
    yield from meeting_points([one for one in launches if one.node is not None and one.meeting])
    for launch in launches:
        met = launch.is_told or launch.meets or (launch.waits or 0) < 2
        if launch.starter.row.get("own_address") and not met:
            yield from _no_address(launch, alone=alone)


def meeting_points(launches: Sequence[Launch]) -> Findings:
    """Nodes of one job that are to meet at another place than the first of them: by their numbers,
    or, as leader and workers of pods, at one address."""
    for first, other in ((launches[0], one) for one in launches[1:]):
        (address, port), (met, entered) = first.point, other.point
        numbered = None not in (first.node, other.node) and "$" not in first.meeting + other.meeting
        of_job = (first.waits, first.variable("WORLD_SIZE")) == (
            other.waits, other.variable("WORLD_SIZE"))  # fmt: skip
        apart = numbered and of_job and first.node != other.node and first.point != other.point
        doors = first.place is not other.place and port.isdecimal() and entered.isdecimal()
        joins = first.program == other.program and ("head" in first.options or met == address != "")
        alone = [one.point[1] for one in launches].count(entered) == 1  # else others meet there
        odd = is_loopback(address) or is_loopback(met)
        if not odd and (apart or (doors and joins and alone and port != entered)):
            at = other.port or other
            yield fault("two_ports", at, other=first.meeting, line=first.command.line)


def _no_address(launch: Launch, *, alone: bool) -> Findings:
    """torchrun without an address; not where one may be in a variable."""
    step, rank = launch.starter, launch.options.get("node_rank")
    if step.options.keys() & {"rdzv_conf", "standalone"}:
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
