"""Checks where the ranks of several nodes meet: an address that only the machine itself reaches, or
none. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.launches import ASSIGNED, LAUNCHER, OF_ONE_STEP, RAY, TORCHRUN, Batch, Command

NETWORK = "https://docs.docker.com/engine/network/drivers/host/"
_TORCHRUN = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b")
_BACKGROUND = re.compile(r"(?<![&>])&(?![&>\d])")
_DOCKER_BRIDGE = re.compile(r"^172\.17\.\d{1,3}\.\d{1,3}(?::\d{1,5})?$")
_RAY_HEAD = re.compile(
    r"\bray start\b(?=.*--head).*--node-ip-address[= ](?:0\.0\.0\.0|127\.0\.0\.1|localhost)\b"
)
_LOOPBACK = re.compile(r"^(?:localhost|127\.0\.0\.1|::1|\[::1\])(?::\d{1,5})?$")
_USES_MASTER = re.compile(r"^(?!\s{0,40}(?:echo|printf)\b).*\$\{?MASTER_ADDR\b")
_STARTS_READERS = re.compile(r"\b(?:mpirun|mpiexec|deepspeed|accelerate launch)\s")


_OF_MPI = re.compile(r"\b(?:mpirun|mpiexec)(?:\.hydra)?\s")
_OF_EACH_NODE = re.compile(r"\bppr:(\d{1,3}):node\b|--?(?:N|npernode|ppn)[= ](\d{1,3})\b")
_DOCKER = re.compile(r"\b(?:docker|podman|nerdctl) run\b(?!.*--net)")
_IN_EACH_TASK = re.compile(
    r"\bsrun\b(?P<options>(?:[^'\n]|\\\n){0,400}?)\b(?:bash|sh)\s{1,8}-\w{0,3}c\s{1,8}'(?P<script>[^']{1,8000})'"
)
_OWN_NAME = re.compile(
    r"(?:\bMASTER_ADDR=|--(?:master[_-]addr|rdzv[_-]endpoint|main_process_ip)[= ])[\"']?"
    r"(?:\$\(|`)?(?:hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\b)[^;\n]{0,80}"
)
_CONDITION = re.compile(r"\b(?:if|case)\b|\[")
_VALUE = re.compile(r"--?(?!no|use|run|stand)[a-z][\w-]{0,40}\s{1,8}[\"']?\$\S{1,200}")
_HELD = re.compile(r"^\s{0,40}(?:export\s{1,8})?[A-Za-z_]\w{0,60}=[\"'](?!.*\S\.py\b|.*\s-m\s)")


def check_addresses(
    commands: Sequence[Command], batch: Batch, master: str, *, meets: bool
) -> Iterator[Finding]:
    """The findings of a script. master: the address to use instead of the machine's own. meets:
    whether an operator tells each launcher where to meet."""
    yield from _loopback(batch, commands, master)
    yield from _address_of_the_head(commands)
    if not meets:
        yield from _no_address(commands, batch)
    yield from _behind_a_bridge(commands)


def check_own_names(text: str, batch: Batch, master: str) -> Iterator[Finding]:
    """The findings of what srun lets a shell on each node read: its own name, as the master's."""
    for step in _IN_EACH_TASK.finditer(text) if (batch.number("nodes") or 1) > 1 else ():
        named = (
            None
            if _CONDITION.search(step["script"]) or OF_ONE_STEP.search(step["options"])
            else _OWN_NAME.search(step["script"])
        )
        if named:
            line = text.count("\n", 0, step.start("script") + named.start()) + 1
            why = (
                "the shell on each node reads this, so each node uses itself as the master, and the"
                " nodes never meet"
            )
            yield Finding(
                line,
                "master-is-loopback",
                "warning",
                named.group(),
                why,
                f"before srun: {master}",
                TORCHRUN,
            )


def _behind_a_bridge(commands: Sequence[Command]) -> Iterator[Finding]:
    """A container of a job of several nodes, in the network of its own machine."""
    for command in commands:
        address = command.values.get("master_addr", "") or command.values.get("rdzv_endpoint", "")
        if (
            _DOCKER.search(command.text)
            and _is_of_several_nodes(command)
            and not _DOCKER_BRIDGE.match(address)
            and not is_loopback(address)
        ):
            why = (
                "the container has an address that only its own machine reaches; NCCL connects to"
                " it at ports that -p does not publish"
            )
            yield command.finding("container-on-bridge", "warning", why, "--network=host", NETWORK)


def _is_of_several_nodes(command: Command) -> bool:
    return (
        LAUNCHER.search(command.text) is not None
        and (command.number("nnodes", "num_machines") or 1) > 1
    )


def _nodes_of_mpi(command: Command) -> int | None:
    """The nodes of an mpirun, by its ranks and those of each node, or by its list of hosts."""
    if not _OF_MPI.search(command.text):
        return None
    ranks, each = command.number("np", "n"), _OF_EACH_NODE.search(command.text)
    if ranks and each:
        return -(-ranks // max(int(each[1] or each[2]), 1))
    return len(
        {
            one.partition(":")[0]
            for one in (command.values.get("H") or command.values.get("host") or "").split(",")
        }
    )


def _loopback(batch: Batch, commands: Sequence[Command], instead: str) -> Iterator[Finding]:
    launched = [one for one in commands if LAUNCHER.search(one.text)]
    if _is_of_one_machine(batch, launched):
        return
    sizes = [
        batch.number("nodes"),
        *(
            command.number("nnodes", "num_machines") or _nodes_of_mpi(command)
            for command in commands
        ),
    ]
    if max((one for one in sizes if one), default=1) < 2:
        return
    several = [one for one in launched if _has_several_nodes(one)]
    if launched and not several:
        return  # every launch is of one node, which is its own master
    reported = False
    asked = [one for one in commands if one not in launched or one in several]
    is_read = _is_master_read(asked)
    for command in asked:
        given = [
            command.values.get(name, "")
            for name in ("master_addr", "rdzv_endpoint", "main_process_ip")
        ]
        assigned = ASSIGNED.match(command.text)
        if assigned and assigned["name"] == "MASTER_ADDR" and is_read:
            given.append(assigned["value"])
            reported = is_loopback(assigned["value"])
        elif reported and "MASTER_ADDR" in command.text:
            continue  # the assignment above is the fault
        if any(map(is_loopback, given)):
            why = "each node uses itself as the master, so the nodes never meet"
            yield command.finding("master-is-loopback", "warning", why, instead, TORCHRUN)


def _is_of_one_machine(batch: Batch, launched: Sequence[Command]) -> bool:
    """Whether a script starts several agents itself, which tries several nodes on one machine."""
    return "nodes" not in batch.options and (
        len(launched) > 1 or any(_BACKGROUND.search(one.text) for one in launched)
    )


def _is_master_read(commands: Sequence[Command]) -> bool:
    """Whether a command uses MASTER_ADDR, or starts what reads it. torchrun does not; without
    torchrun, whatever is started may."""
    others = [one.text for one in commands if not _TORCHRUN.search(one.text)]
    started = any(
        _STARTS_READERS.search(text) or ("srun" in text.split() and "python" in text)
        for text in others
    )
    return (
        started
        or len(others) == len(commands)
        or any(_USES_MASTER.search(one.text) for one in commands)
    )


def is_loopback(address: str) -> bool:
    """Whether an address, also with a port, is the machine's own on every machine."""
    return _LOOPBACK.match(address) is not None


def _has_several_nodes(command: Command) -> bool:
    """Whether a launch is not known to be of one node: by the launcher's number, or by that of its
    step."""
    step = re.search(r"(?<!\w)(?:-N|--nodes)[= ]?(\d{1,4})\b", command.text.partition("torch")[0])
    return command.number("nnodes", "num_machines") != 1 and not (step and step[1] == "1")


def _address_of_the_head(commands: Sequence[Command]) -> Iterator[Finding]:
    """Addresses that reach only the machine itself, given to the others as the master's or as that
    of Ray's head."""
    sizes = [
        number
        for one in commands
        for name in one.values
        if name.endswith("num_nodes") and (number := one.number(name))
    ]
    for command in commands:
        several = _is_of_several_nodes(command)
        address = command.values.get("master_addr", "") or command.values.get("rdzv_endpoint", "")
        if _RAY_HEAD.search(command.text) and max(sizes, default=2) > 1:
            why = (
                "Ray tells this address of its head to the workers, and for each of them it is the"
                " worker itself"
            )
            yield command.finding(
                "master-is-loopback",
                "warning",
                why,
                "the head's address in the nodes' network",
                RAY,
            )
        elif several and _DOCKER_BRIDGE.match(address):
            why = f"{address} is on Docker's own bridge, which other machines do not reach"
            yield command.finding(
                "master-is-loopback",
                "warning",
                why,
                "the machine's address, and --network=host",
                TORCHRUN,
            )
        elif (
            several
            and command.values.get("rdzv_backend") == "c10d"
            and "rdzv_endpoint" not in command.values
            and address
        ):
            why = (
                "c10d does not read --master_addr: without --rdzv-endpoint each node meets at its"
                " own localhost"
            )
            yield command.finding(
                "master-is-loopback", "warning", why, f"--rdzv-endpoint={address}:29400", TORCHRUN
            )


def _no_address(commands: Sequence[Command], batch: Batch) -> Iterator[Finding]:
    """torchrun of several nodes without a place to meet."""
    alone = _is_of_one_machine(batch, [one for one in commands if LAUNCHER.search(one.text)])
    for command in commands:
        rank = command.values.get("node_rank")
        if (
            not _is_of_several_nodes(command)
            or not _names_no_master(command)
            or (rank is not None and (alone or rank == "0"))  # the first node is its own master
        ):
            continue
        node = "takes itself for node 0 and " if rank is None else ""
        why = (
            "torchrun reads neither MASTER_ADDR nor RANK, and meets at 127.0.0.1 without an"
            f" address: each node {node}waits at its own machine for the others"
        )
        yield command.finding(
            "master-is-loopback",
            "warning",
            why,
            "--rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29400",
            TORCHRUN,
        )


def _names_no_master(command: Command) -> bool:
    """Whether torchrun is given no place to meet; not where options may be in a variable."""
    before = _TORCHRUN.search(command.text)
    words = re.split(r"\s\S{1,200}\.py\b|\s-m\s", command.text[before.end() :] if before else "")[0]
    is_open = (
        before is None
        or _HELD.match(command.text)
        or re.search(r"(?<!\S)[\"']?\$|--standalone\b", _VALUE.sub("", words))
        or not command.values.get("nnodes", "").isdecimal()
    )
    given = command.values.keys() & {"master_addr", "rdzv_endpoint"}
    return not is_open and not given and "rdzv_conf" not in command.values
