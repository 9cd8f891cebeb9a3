"""Finds the ranks of jobs among the processes of this node: by their environment, as workers of an
engine by their title, else by the GPU that they hold.

Workers of a loader and shells around a rank have its environment too: of several processes with one
rank the one that has a training library mapped is taken, and of those the topmost. A process is
known by its pid and its start, never by its name.
"""

from __future__ import annotations

import os
import re

from ..base.named_tuple import NamedTuple
from ..base.parse.process_files import container_of, held_devices, parse_environ, parse_uid
from ..base.section import Absent
from ..facts.sections.reading import text_if_there
from ..facts.sections.users import read_users, user_name
from .containers import processes_of_container
from .engines import workers_of
from .namespaces import Person, maker_of_users, namespace_of
from .parse.process_state import parse_own_pid
from .process_table import ancestors, read_stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .parse.process_state import Stat

    Rank = tuple[str, int]  # job and rank

# Variables of a rank, of the number of ranks, and of the rank within its node. The first that a
# process has counts: torchrun below srun has both.
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "torchrun"),
    ("DEEPSPEED_LAUNCHER", "deepspeed"),
    ("OMPI_COMM_WORLD_RANK", "mpirun"),
    ("SLURM_STEP_ID", "srun"),
    ("PMI_RANK", "mpiexec"),
)
OF_SLURM = ("SLURM_JOB_ID", "SLURMD_NODENAME")
SAME_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
MEETS = ("MASTER_ADDR", "MASTER_PORT")
# an address that is another one in each network
OWN_NETWORK = re.compile(r"(?:localhost|127\..*|::1|)")
STEP = re.compile(r"\[([0-9]{1,10})\.")  # in the command line of slurmstepd: the job's own number
# What a look needs to know of a rank's environment. Nothing else of it leaves the node.
SETTINGS = (
    *(
        "NCCL_RAS_ADDR",
        "NCCL_RAS_ENABLE",
        "NCCL_DEBUG",
        "CUDA_VISIBLE_DEVICES",
        "TORCH_EXTENSIONS_DIR",
        "LOCAL_WORLD_SIZE",
        "NCCL_HOSTID",
    ),
    *("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "XDG_CACHE_HOME"),
    "UNHANG_WATCH",  # off: `unhang watch --all` leaves the job out
)
LIBRARIES = (
    (b"/libtorch", "torch"),
    (b"/libjax", "jax"),
    (b"/xla_", "jax"),
    (b"/libnccl", "nccl"),
    (b"/libcuda.so", "cuda"),
    (b"/libmpi", "mpi"),
)
MOST_RANKS = 256
MAPS_LIMIT_BYTES = 16 << 20
MORE = "more"


class Candidate(NamedTuple):
    """A process that may be a rank."""

    pid: int
    stat: Stat
    uid: int | None
    environment: dict[str, str]
    rank: int | None
    variables: int
    network: str = ""  # where ranks meet at an address of their own network, which is not this one
    engine: int | None = None  # the process that sends it requests; its workers are the network

    @property
    def job(self) -> str:
        """A name for its job, alike for its ranks on a node."""
        return job_of(self.environment, self.uid) + self.network


def read_ranks(ctx: Context) -> Iterator[SourcePiece]:
    """Yields `ranks`, a row at a time. ctx.options: pids, processes of the job (each with its
    descendants and the ranks beside it), [] for every job; container, whose processes alone are
    looked at, or None; skipped, pids whose files did not answer; ranked: a process that holds a GPU
    and has no rank is none."""
    root, pids, container = (
        ctx.root,
        [int(pid) for pid in ctx.options["pids"]],
        ctx.options.get("container"),
    )
    stats = read_stats(root)
    gone = [pid for pid in pids if pid not in stats]
    if gone:
        raise Absent(f"process {gone[0]} is not on this node; it has ended")
    if container:
        stats = processes_of_container(ctx, container, stats)
        outside = [pid for pid in pids if pid not in stats]
        if outside:
            raise Absent(
                f"process {outside[0]} is not in the container {container}; its number on the node"
                " is meant, not the one inside"
            )
    users = read_users(root)
    people = _by_person(root, stats)
    found, denied, claims, apart = 0, 0, [], []
    for at, (person, uids) in enumerate(people):
        candidates, refused = candidates_of(ctx, stats, uids)
        denied += refused
        if ctx.options.get("slurm_job"):
            candidates = _of_slurm_job(ctx, stats, candidates, ctx.options["slurm_job"])
        if pids:
            everyone, candidates = candidates, _of_the_job(pids, stats, candidates)
            apart += _apart(candidates, everyone)
        groups = _ranks_of(candidates)
        share = _fair(groups, (MOST_RANKS - found) // (len(people) - at))
        claims += candidates
        for candidate in (_one_of(ctx, stats, groups[key]) for key in share):
            found += 1
            yield (
                "ranks",
                {"ranks": [_row(ctx, candidate, user_name(users, candidate.uid))]},
                [],
                MORE,
            )
        if len(share) < len(groups):
            jobs, who = len({job for job, _ in groups}), user_name(users, person.uid)
            who = f"{who} ({person.space})" if person.space else who
            reason = (
                f"of user {who}: {len(groups) - len(share)} of {len(groups)} ranks ({jobs} jobs)"
                f" left out; at most {MOST_RANKS} of a node are looked at"
            )
            yield (
                "ranks",
                {},
                [
                    {
                        "field": f"ranks of {who}",
                        "status": "error",
                        "reason": f"{reason}; name a job with --pid",
                    }
                ],
                MORE,
            )
    for candidate in (
        _holders(ctx, stats, pids)[: MOST_RANKS - found]
        if not (found or ctx.options.get("ranked")) and (claims or not denied or pids)
        else ()
    ):
        found += 1
        yield "ranks", {"ranks": [_row(ctx, candidate, user_name(users, candidate.uid))]}, [], MORE
    if not found:
        hidden = (
            f"; the environment of other users' processes ({denied}) needs root" if denied else ""
        )
        where = f" of the {len(stats)} in the container {container}" if container else ""
        raise Absent(
            f"no process{where} with RANK and WORLD_SIZE in its environment, and none that holds a"
            f" GPU{hidden}"
        )
    yield "ranks", {"denied": denied, "apart": apart[:MOST_RANKS]}, []


def _by_person(root: Root, stats: dict[int, Stat]) -> list[tuple[Person, dict[int, int | None]]]:
    """[(person, {process: uid})], those with few first: whoever starts thousands is read last, and
    delays himself alone."""
    people: dict[Person, dict[int, int | None]] = {}
    makers: dict[str | None, Person | None] = {None: None}
    for pid in stats:
        uid, space = _uid(root, pid), namespace_of(root, pid, "user")
        if space not in makers:
            makers[space] = maker_of_users(root, pid)
        people.setdefault(makers[space] or Person(uid), {})[pid] = uid
    return sorted(people.items(), key=lambda row: len(row[1]))


def person_of(root: Root, pid: int) -> Person:
    """Who started a process, also where the users of its container are theirs."""
    return maker_of_users(root, pid) or Person(_uid(root, pid))


def _ranks_of(candidates: list[Candidate]) -> dict[Rank, list[Candidate]]:
    """One user's candidates by job and rank. Where some of a Slurm job have a launcher's variables,
    the others are what is around them."""
    first: dict[str | int | None, int] = {}
    for one in candidates:
        within = _within(one)
        first[within] = min(one.variables, first.get(within, one.variables))
    groups: dict[Rank, list[Candidate]] = {}
    for one in candidates:
        if one.variables == first[_within(one)]:
            groups.setdefault((one.job, one.rank or 0), []).append(one)
    return groups


def _within(one: Candidate) -> str | int | None:
    return one.engine or one.environment.get("SLURM_JOB_ID")


def _fair(ranks: Iterable[Rank], most: int) -> list[Rank]:
    """At most so many, in order: the first of each job before the second of any, so that no job of
    a user pushes out another."""
    counted: dict[str, int] = {}
    places = {}
    for job, rank in sorted(ranks):
        places[job, rank] = counted[job] = counted.get(job, 0) + 1
    return sorted(sorted(places, key=lambda key: places[key])[: max(0, most)])


def candidates_of(
    ctx: Context, stats: dict[int, Stat], uids: dict[int, int | None]
) -> tuple[list[Candidate], int]:
    """(those of the processes of uids that have the variables of a rank, how many were denied)."""
    found, denied, others = [], 0, []
    ours = namespace_of(ctx.root, os.getpid(), "net")
    # a look under srun has the environment of a rank itself
    skipped = {*ctx.options["skipped"], *ancestors(stats, os.getpid())}
    for pid, uid in uids.items():
        if pid in skipped or stats[pid].state == "Z":
            continue
        try:
            environment = _environment(ctx.root, pid)
        except PermissionError:
            denied += 1
            continue
        except OSError:
            continue
        for place, (rank, size, _local) in enumerate(RANK_VARIABLES):
            number, of = _whole(environment.get(rank)), _whole(environment.get(size))
            if number is not None and of is not None:
                found.append(
                    Candidate(
                        pid=pid,
                        stat=stats[pid],
                        uid=uid,
                        environment=environment,
                        rank=number,
                        variables=place,
                        network=_network_of(ctx.root, pid, environment, ours),
                    )
                )
                break
        else:
            others.append(pid)
    workers = [*_workers(ctx, stats, uids, others)]
    around = {pid for one in workers for pid in ancestors(stats, one.pid)}
    servers = {one.job for one in found if one.pid in around and _size(one) == 1}
    return [one for one in found if one.job not in servers] + workers, denied


def _workers(
    ctx: Context, stats: dict[int, Stat], uids: dict[int, int | None], pids: list[int]
) -> Iterator[Candidate]:
    """Workers of engines, as if their environment had their rank; the rest of it is what their
    server has."""
    for worker in workers_of(ctx.root, stats, pids):
        have = _environment_around(ctx.root, worker.pid, stats, uids)
        kept = {name: have[name] for name in (*SETTINGS, *OF_SLURM) if name in have}
        numbers = zip(RANK_VARIABLES[0], (worker.rank, worker.world, worker.rank))
        yield Candidate(
            pid=worker.pid,
            stat=stats[worker.pid],
            uid=uids[worker.pid],
            environment={**kept, **{name: str(number) for name, number in numbers}},
            rank=worker.rank,
            variables=0,
            network=f" {worker.job}",
            engine=worker.engine,
        )


def _environment_around(
    root: Root, pid: int, stats: dict[int, Stat], uids: dict[int, int | None]
) -> dict[str, str]:
    """What is left of its own, over that of the user's processes above it."""
    found: dict[str, str] = {}
    for one in ancestors(stats, pid):
        try:
            found = {**(_environment(root, one) if one in uids else {}), **found}
        except OSError:  # it ended meanwhile
            continue
    return found


def _environment(root: Root, pid: int) -> dict[str, str]:
    rows = parse_environ(root.data(f"/proc/{pid}/environ", 2 << 20))
    return {row.name: row.value or "" for row in rows}


def _size(one: Candidate) -> int | None:
    return _whole(one.environment.get(RANK_VARIABLES[one.variables][1]))


def _network_of(root: Root, pid: int, environment: dict[str, str], ours: str | None) -> str:
    """Pods and containers may all meet at localhost:29500, each at its own."""
    if not OWN_NETWORK.fullmatch(environment.get("MASTER_ADDR", "")):
        return ""
    network = namespace_of(root, pid, "net")
    return "" if network in (None, ours) else f" {network}"


def _of_slurm_job(
    ctx: Context, stats: dict[int, Stat], candidates: list[Candidate], job: str
) -> list[Candidate]:
    """Those of the job by their environment, which any user can set: where root's slurmstepd runs
    they must be below the job's own."""
    claims = [one for one in candidates if _is_of_slurm_job(one.environment, job)]
    steps = slurm_steps(ctx.root, stats)
    own = {pid for pid, of in steps.items() if of == job}
    return (
        [one for one in claims if not own.isdisjoint(ancestors(stats, one.pid))]
        if steps
        else claims
    )


def slurm_steps(root: Root, stats: dict[int, Stat]) -> dict[int, str | None]:
    """{process: the number of its job} of root's slurmstepd, which no user can be."""
    found: dict[int, str | None] = {}
    for pid, stat in stats.items():
        if stat.command == "slurmstepd" and _uid(root, pid) == 0:
            step = STEP.search(text_if_there(root, f"/proc/{pid}/cmdline", 256))
            found[pid] = step.group(1) if step else None
    return found


def _is_of_slurm_job(environment: dict[str, str], job: str) -> bool:
    """Whether it was started in the job, on this node of it: a machine may be several nodes of
    Slurm."""
    own = os.environ.get("SLURMD_NODENAME")
    return environment.get("SLURM_JOB_ID") == job and own in (
        None,
        environment.get("SLURMD_NODENAME", own),
    )


def _uid(root: Root, pid: int) -> int | None:
    return parse_uid(text_if_there(root, f"/proc/{pid}/status"))


def _of_the_job(
    pids: list[int], stats: dict[int, Stat], candidates: list[Candidate]
) -> list[Candidate]:
    """Those below one of the pids, and those beside it: of the job that it is a rank of."""
    keys = {one.job for one in candidates if one.pid in pids}
    return [
        one
        for one in candidates
        if one.job in keys or any(pid in ancestors(stats, one.pid) for pid in pids)
    ]


def _apart(own: list[Candidate], everyone: list[Candidate]) -> list[dict[str, Any]]:
    """[{rank, pid, job}] of ranks that the job lacks, of processes that differ from it in where
    they meet alone: two jobs, where one may have been meant. A job that has a rank which this one
    has is another of its own."""
    have, alike = {one.rank for one in own}, {_but_where_it_meets(one) for one in own}
    whole = {one.job for one in everyone if one.rank in have}
    others: dict[int | None, Candidate] = {}
    for one in everyone:
        if one.job not in whole and _but_where_it_meets(one) in alike:
            others.setdefault(one.rank, one)
    return [{"rank": rank, "pid": one.pid, "job": one.job} for rank, one in others.items()]


def _but_where_it_meets(one: Candidate) -> tuple[str | None, ...]:
    _rank, size, _local = RANK_VARIABLES[one.variables]
    rest = {name: value for name, value in one.environment.items() if name not in MEETS}
    return (
        job_of(rest, one.uid) + one.network,
        one.environment.get(size),
        one.stat.command,
    )


def job_of(environment: dict[str, str], uid: int | None) -> str:
    """A name for a job, alike for its ranks on a node."""
    return " ".join(
        [
            f"uid={uid}",
            *(f"{name}={environment[name][:80]}" for name in SAME_JOB if name in environment),
        ]
    )


def _one_of(ctx: Context, stats: dict[int, Stat], group: list[Candidate]) -> Candidate:
    """Of several processes with one rank the rank itself."""
    with_library = [one for one in group if libraries_of(ctx.root, one.pid)]
    group_pids = {one.pid for one in with_library or group}
    tops = [
        one for one in with_library or group if not group_pids & set(ancestors(stats, one.pid)[1:])
    ]
    if with_library or len(group) == 1:
        # Workers that outlived an earlier run of the job have its environment too: they are
        # orphans, and older.
        return max(tops, key=lambda one: (one.stat.parent > 1, one.stat.started))
    # nothing is loaded yet: the lowest, because the others are shells around it
    return max(group, key=lambda one: len(ancestors(stats, one.pid)))


def libraries_of(root: Root, pid: int) -> list[str]:
    """Training libraries that a process has mapped: torch, jax, nccl, cuda, mpi. [] also where that
    cannot be read."""
    try:
        maps = root.data(f"/proc/{pid}/maps", MAPS_LIMIT_BYTES)
    except OSError:
        return []
    return list(dict.fromkeys(name for needle, name in LIBRARIES if needle in maps))


def _holders(ctx: Context, stats: dict[int, Stat], pids: list[int]) -> list[Candidate]:
    """Processes without a rank: those named, or else those that hold a GPU, the topmost of each
    tree."""
    own = set(ancestors(stats, os.getpid()))
    looked = [
        pid
        for pid in stats
        if pid not in own and (not pids or any(one in ancestors(stats, pid) for one in pids))
    ]
    holding = [pid for pid in looked if _holds_gpu(ctx.root, pid)] or list(pids)
    tops = [pid for pid in holding if not set(holding) & set(ancestors(stats, pid)[1:])]
    return [
        Candidate(
            pid=pid,
            stat=stats[pid],
            uid=_uid(ctx.root, pid),
            environment={},
            rank=None,
            variables=0,
        )
        for pid in tops
    ]


def _holds_gpu(root: Root, pid: int) -> bool:
    return any("nvidia-" not in target for target in held_devices(targets_of(root, pid).values()))


def targets_of(root: Root, pid: int) -> dict[str, str]:
    """{descriptor: what it leads to} of a process; {} where that cannot be read."""
    folder, found = f"/proc/{pid}/fd", {}
    root.watch("list " + folder)
    try:
        for name in os.listdir(root.candidates(folder)[0]):
            found[name] = os.readlink(f"{root.candidates(folder)[0]}/{name}")
    except OSError:
        pass
    return found


def _row(ctx: Context, one: Candidate, user: str | None) -> dict[str, Any]:
    local = RANK_VARIABLES[one.variables][2]
    have = one.environment
    libraries = libraries_of(ctx.root, one.pid)
    return {
        "rank": one.rank,
        "local_rank": _whole(have.get(local)),
        "world_size": _size(one),
        "pid": one.pid,
        "own_pid": parse_own_pid(text_if_there(ctx.root, f"/proc/{one.pid}/status")) or one.pid,
        "started": one.stat.started,
        "user": user,
        "command": one.stat.command,
        "launcher": next((name for variable, name in LAUNCHERS if variable in have), None),
        "framework": next((name for name in libraries if name in ("torch", "jax", "mpi")), None),
        "libraries": libraries,
        "container": container_of(text_if_there(ctx.root, f"/proc/{one.pid}/cgroup")),
        "job": one.job,
        "engine": one.engine,
        "settings": {name: have[name][:256] for name in SETTINGS if name in have},
    }


def _whole(text: str | None) -> int | None:
    """A user's text: ² is a digit too, and of a number of 5,000 digits int makes an error."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
