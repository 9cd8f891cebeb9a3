"""Checks how a batch script, a command or accelerate's configuration starts ranks: nodes, processes and GPUs that contradict each other. Text in, values
out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unhang.base.text import counted
from unhang.jobs.lint.checks import Finding
from unhang.jobs.lint.settings import LONGEST_LINE

TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
SBATCH = "https://slurm.schedmd.com/sbatch.html"
RAY = "https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html"
ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
SHM = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
MOST_LINES = 20_000
_LONGEST_COMMAND = 60
_LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\b")
_TORCHRUN = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b")
_SPREADS = re.compile(r"\b(?:srun|mpirun|mpiexec|pdsh|clush|pssh|ssh|prun|jsrun|aprun|ibrun|ansible)\b")
_OPTION = re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w-]{0,40})(?:=|\s{1,8})(?P<value>\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"'-][^\s\"']{0,200})")
_SHORT = {"N": "nodes", "n": "ntasks"}
_DIRECTIVE = re.compile(r"^#(?P<word>[A-Z]{5,7})\s{1,8}-{1,2}[a-zA-Z]")
_BATCH = re.compile(r"^#SBATCH\s{1,8}(?P<options>\S.{0,400})")
_ASSIGNED = re.compile(r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=[\"']?(?P<value>[\w.:,-]{1,200})[\"']?\s{0,8}(?:#.*)?$")
_READ = re.compile(r"\$\{?(?P<name>\w{1,60})\}?")
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=[\"']?(?P<list>\d{1,3}(?:,\d{1,3}){0,63})(?![\w,$])")
_GPUS = re.compile(r"^gpu(?::[\w.-]{1,40})?:(?P<count>\d{1,3})|^(?:[\w.-]{1,40}:)?(?P<plain>\d{1,3})$")
_DOCKER = re.compile(r"\b(?:docker|podman|nerdctl) run\b")
_DOCKER_GPUS = re.compile(r"--gpus\b|--runtime[= ]nvidia|nvidia\.com/gpu")
_DOCKER_SHM = re.compile(r"--shm-size|--ipc[= ](?:host|\"host\")|/dev/shm")
_BACKGROUND = re.compile(r"(?<![&>])&(?![&>\d])")
_EXPANDED_RANK = re.compile(r"\$\{?SLURM_(?:PROCID|NODEID)\}?")
_DOCKER_BRIDGE = re.compile(r"^172\.17\.\d{1,3}\.\d{1,3}(?::\d{1,5})?$")
_RAY_HEAD = re.compile(r"\bray start\b(?=.*--head).*--node-ip-address[= ](?:0\.0\.0\.0|127\.0\.0\.1|localhost)\b")
_HELD = re.compile(r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=\"")  # the batch script itself expands what is inside
_RAY_GPUS = re.compile(r"gpus_per_node$|^(?:nproc_per_node|tensor_parallel_size)$")
_FIRST_OF_SLURM = 'the first node\'s name: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_LOOPBACK = re.compile(r"^(?:localhost|127\.0\.0\.1|::1|\[::1\])(?::\d{1,5})?$")
_USES_MASTER = re.compile(r"^(?!\s{0,40}(?:echo|printf)\b).*\$\{?MASTER_ADDR\b")
_STARTS_READERS = re.compile(r"\b(?:mpirun|mpiexec|deepspeed|accelerate launch)\s")
_CONFIGURED = re.compile(r"^(?P<name>num_machines|num_processes|machine_rank|main_process_ip|gpu_ids):\s{1,8}[\"']?(?P<value>[\w.,:-]{1,100})", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command with its continued lines as one. values: its options by name, with underscores; variables with a constant value in the file are replaced."""

    line: int
    text: str
    values: dict[str, str]

    def number(self, *names: str) -> int | None:
        """The number of one of these options; the upper end of a range."""
        given = next((self.values[name] for name in names if name in self.values), "")
        last = given.rpartition(":")[2]
        return int(last) if last.isdigit() and len(last) < 6 else None


@dataclass(frozen=True)
class Batch:
    """The options of `#SBATCH` lines: option -> (value, line)."""

    options: dict[str, tuple[str, int]]

    def number(self, name: str) -> int | None:
        """The number of an option; None for a range or a missing option."""
        value = self.options.get(name, ("", 0))[0]
        return int(value) if value.isdigit() and len(value) < 6 else None

    def gpus_per_node(self) -> int | None:
        """GPUs that the job has on each node."""
        for name in ("gpus_per_node", "gres"):
            if found := _GPUS.match(self.options.get(name, ("", 0))[0]):
                return int(found["count"] or found["plain"])
        return None


def check_launch(text: str, kind: str) -> Iterator[Finding]:
    """The findings of one file."""
    if kind == "kubernetes" and re.search(r"^(?:distributed_type|compute_environment):", text, re.MULTILINE):
        yield from _accelerate(text)
    if kind not in ("shell", "slurm"):
        return
    lines = [line[:LONGEST_LINE] for line in text.splitlines()[:MOST_LINES]]
    batch, commands = read_batch(lines), read_commands(lines)
    for command in commands:
        if _LAUNCHER.search(command.text):
            yield from _nodes(command, batch, text)
            yield from _rank_in_quotes(command, commands, batch)
            yield from _launcher_in_each_task(command, batch)
            yield from _gpus(command, batch, lines)
            yield from _standalone(command)
        if _DOCKER.search(command.text) and _DOCKER_GPUS.search(command.text) and not _DOCKER_SHM.search(command.text):
            why = "the container gets only 64 MB of /dev/shm, where NCCL and data loaders keep their segments"
            yield Finding(command.line, "container-shm", "info", command.text, why, "--ipc=host, or --shm-size=8g", SHM)
    yield from _one_gpu(batch, commands)
    yield from _loopback(batch, commands, _FIRST_OF_SLURM)
    yield from _address_of_the_head(commands, meets="PET_" in text)
    yield from _more_than_ray_has(commands)
    yield from _directives(batch, lines)


def check_commands(commands: Sequence[Command], master: str, *, meets: bool) -> Iterator[Finding]:
    """The findings of commands outside a batch script. master: the address to use instead of the machine's own. meets: whether an operator tells each launcher
    where to meet.
    """
    for command in commands:
        if _LAUNCHER.search(command.text):
            yield from _standalone(command)
    yield from _loopback(Batch({}), commands, master)
    yield from _address_of_the_head(commands, meets=meets)


def read_batch(lines: Sequence[str]) -> Batch:
    """The `#SBATCH` lines of a file; a later one wins."""
    options: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        if found := _BATCH.match(line):
            for one in _OPTION.finditer(found["options"].partition(" #")[0]):
                name = _SHORT.get(one["name"], one["name"]).replace("-", "_")
                options[name] = (one["value"].strip("\"'"), number)
    return Batch(options)


def read_commands(lines: Sequence[str], given: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of a script, without comments. given: variables that it gets from outside; those that Slurm sets for its batch script are known."""
    held: dict[str, str] = {**_set_by_slurm(read_batch(lines)), **(given or {})}
    commands: list[Command] = []
    at = 0
    while at < len(lines):
        start, parts = at, [lines[at]]
        while parts[-1].rstrip().endswith("\\") and at + 1 < len(lines) and len(parts) < _LONGEST_COMMAND:
            at += 1
            parts.append(lines[at])
        at += 1
        if parts[0].lstrip().startswith("#"):
            continue
        text = " ".join(part.rstrip().rstrip("\\").strip() for part in parts if not part.lstrip().startswith("#"))
        if assigned := _ASSIGNED.match(text):
            held[assigned["name"]] = assigned["value"]
        values = {one["name"].replace("-", "_"): _resolved(one["value"].strip("\"'"), held) for one in _OPTION.finditer(text)}
        commands.append(Command(start + 1, text, values))
    return commands


def _set_by_slurm(batch: Batch) -> dict[str, str]:
    numbers = {
        "SLURM_NNODES": batch.number("nodes"),
        "SLURM_JOB_NUM_NODES": batch.number("nodes"),
        "SLURM_NTASKS_PER_NODE": batch.number("ntasks_per_node"),
        "SLURM_GPUS_ON_NODE": batch.gpus_per_node(),
    }
    return {name: str(number) for name, number in numbers.items() if number is not None}


def _resolved(value: str, held: dict[str, str]) -> str:
    read = _READ.fullmatch(value)
    return held.get(read["name"], value) if read else value


def _nodes(command: Command, batch: Batch, text: str) -> Iterator[Finding]:
    asked = batch.number("nodes")
    nodes = command.number("nnodes", "num_machines")
    if asked is None:
        return
    if nodes is not None and nodes != asked and _is_whole_job(command):
        why = f"the job asks Slurm for {counted(asked, 'node')} (line {batch.options['nodes'][1]}), but the launcher waits for {nodes}"
        yield Finding(command.line, "nodes-differ", "warning", command.text, why, "--nnodes=$SLURM_NNODES", TORCHRUN)
    if asked > 1 and (nodes or 2) > 1 and not _SPREADS.search(text):
        why = f"a batch script runs only on the first of its {asked} nodes: nothing starts the launcher on the others"
        yield Finding(command.line, "launcher-on-one-node", "warning", command.text, why, "srun --ntasks-per-node=1 before it", SBATCH)
    fixed = command.number("node_rank", "machine_rank")
    is_static = command.values.get("rdzv_backend", "static") == "static" and "rdzv_endpoint" not in command.values
    if fixed is None and _EXPANDED_RANK.fullmatch(command.values.get("node_rank", "")) and "'" not in command.text.partition("torch")[0]:
        fixed = 0  # the batch script itself expands the variable, on the first node
    if asked > 1 and fixed is not None and is_static and "srun" in command.text.split() and _is_whole_job(command):
        why = f"srun starts this on each of the {asked} nodes, and each one takes itself for node {fixed}"
        instead = "--node_rank=$SLURM_NODEID read on each node (bash -c '...'), or --rdzv-backend=c10d"
        yield Finding(command.line, "same-node-rank", "warning", command.text, why, instead, TORCHRUN)


def _rank_in_quotes(command: Command, commands: Sequence[Command], batch: Batch) -> Iterator[Finding]:
    """A launcher in a double-quoted variable that srun runs later: the rank in it is read before the nodes are there."""
    held = _HELD.match(command.text)
    rank = next((command.values[name] for name in ("node_rank", "machine_rank") if name in command.values), "")
    if not held or not _EXPANDED_RANK.fullmatch(rank) or (batch.number("nodes") or 2) < 2:
        return
    used = re.compile(rf"\$\{{?{held['name']}\b")
    if any("srun" in one.text.split() and used.search(one.text) for one in commands):
        why = f"the batch script expands {rank} inside the double quotes, on the first node, so each node takes itself for node 0"
        yield Finding(command.line, "same-node-rank", "warning", command.text, why, f"\\{rank}, which bash -c on each node expands", TORCHRUN)


def _more_than_ray_has(commands: Sequence[Command]) -> Iterator[Finding]:
    """GPUs on a node that a job submitted to Ray asks for, beside those that `ray start` announces."""
    given = max((one.number("num_gpus") or 0 for one in commands if re.search(r"\bray start\b", one.text)), default=0)
    for command in commands if given else ():
        asked = max(((number, name) for name in command.values if _RAY_GPUS.search(name) and (number := command.number(name))), default=(0, ""))
        if asked[0] > given and "ray start" not in command.text:
            why = f"--{asked[1]} asks for {asked[0]} GPUs on a node, and ray start announces {given}: Ray waits for ever for a place"
            yield Finding(command.line, "more-gpus-than-ray-has", "error", command.text, why, f"at most {given}", RAY)


def _standalone(command: Command) -> Iterator[Finding]:
    """torchrun is told to make a job of one node, and also what only a job of several nodes needs."""
    given = [name for name in ("node_rank", "master_addr", "rdzv_endpoint") if command.values.get(name, "0") not in ("0", "localhost", "127.0.0.1")]
    if re.search(r"(?<!\S)--standalone\b", command.text) and command.values.get("nnodes", "1") != "1" and given:
        why = f"--standalone makes a job of this node alone: --nnodes and --{given[0]} are ignored, and each node trains for itself"
        instead = "leave --standalone out, or --nnodes and the master's address"
        yield Finding(command.line, "standalone-of-several-nodes", "warning", command.text, why, instead, TORCHRUN)


def _directives(batch: Batch, lines: Sequence[str]) -> Iterator[Finding]:
    """Lines that are nearly #SBATCH, which Slurm takes for comments."""
    late = next((number for number, line in enumerate(lines[:20], 1) if line.startswith("#!")), 1)
    if batch.options and late > 1 and not lines[0].startswith("#!"):
        why = "sbatch refuses a script whose first line is not its interpreter"
        yield Finding(late, "interpreter-not-first", "error", lines[late - 1], why, "this line as the first one", SBATCH)
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.match(line) if batch.options else None
        if found and found["word"] != "SBATCH" and sum((Counter("SBATCH") & Counter(found["word"])).values()) >= len("SBATCH") - 1:
            why = f"Slurm takes #{found['word']} for a comment, so this option is not set"
            yield Finding(number, "misspelt-directive", "warning", line, why, "#SBATCH", SBATCH)


def _address_of_the_head(commands: Sequence[Command], *, meets: bool) -> Iterator[Finding]:
    """Addresses that reach only the machine itself, given to the others as the master's or as that of Ray's head."""
    sizes = [number for one in commands for name in one.values if name.endswith("num_nodes") and (number := one.number(name))]
    for command in commands:
        several = (command.number("nnodes", "num_machines") or 1) > 1
        address = command.values.get("master_addr", "") or command.values.get("rdzv_endpoint", "")
        if _RAY_HEAD.search(command.text) and max(sizes, default=2) > 1:
            why = "Ray tells this address of its head to the workers, and for each of them it is the worker itself"
            yield Finding(command.line, "master-is-loopback", "warning", command.text, why, "the head's address in the nodes' network", RAY)
        elif several and _LAUNCHER.search(command.text) and _DOCKER_BRIDGE.match(address):
            why = f"{address} is on Docker's own bridge, which other machines do not reach"
            yield Finding(command.line, "master-is-loopback", "warning", command.text, why, "the machine's address, and --network=host", TORCHRUN)
        elif several and _LAUNCHER.search(command.text) and command.values.get("rdzv_backend") == "c10d" and "rdzv_endpoint" not in command.values and address:
            why = "c10d does not read --master_addr: without --rdzv-endpoint each node meets at its own localhost"
            yield Finding(command.line, "master-is-loopback", "warning", command.text, why, f"--rdzv-endpoint={address}:29400", TORCHRUN)
        elif several and not meets and _names_no_master(command):
            why = "the launcher reads neither MASTER_ADDR nor RANK: without these options each node takes itself for node 0 and its own machine for the master"
            yield Finding(command.line, "master-is-loopback", "warning", command.text, why, "--rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29400", TORCHRUN)


def _names_no_master(command: Command) -> bool:
    """Whether torchrun is given no place to meet; not where options may be in a variable."""
    before = _TORCHRUN.search(command.text)
    words = re.split(r"\s\S{1,200}\.py\b|\s-m\s", command.text[before.end() :] if before else "")[0]
    is_open = before is None or re.search(r"(?<!\S)[\"']?\$|--standalone\b", words) or not command.values.get("nnodes", "").isdecimal()
    return not is_open and not command.values.keys() & {"master_addr", "rdzv_endpoint", "node_rank"}


def _launcher_in_each_task(command: Command, batch: Batch) -> Iterator[Finding]:
    """srun starts the launcher several times on a node, and each starts a rank for each GPU."""
    before = command.text.partition("torch")[0]
    if "srun" not in before.split() or re.search(r"(?<!\w)(?:-n|--ntasks)(?:[= ]|\d)", before):
        return
    tasks = command.number("ntasks_per_node") or batch.number("ntasks_per_node") or 1
    processes = command.number("nproc_per_node") or command.number("num_processes")
    if tasks > 1 and processes is not None and processes > 1:
        why = f"srun starts this {tasks} times on each node, and each starts {processes} processes: {tasks * processes} processes where {processes} are meant"
        yield Finding(command.line, "launcher-in-each-task", "error", command.text, why, "srun --ntasks-per-node=1 before the launcher", TORCHRUN)


def _is_whole_job(command: Command) -> bool:
    """Whether the command uses all nodes of the job, and is not one of several steps with some of them."""
    return not re.search(r"(?<!\w)(?:-N|-w|--nodes|--nodelist|--ntasks|-n)[= ]?\S", command.text.partition("torch")[0])


def _gpus(command: Command, batch: Batch, lines: Sequence[str]) -> Iterator[Finding]:
    processes = command.number("nproc_per_node")
    if processes is None and command.number("num_machines") in (None, 1):
        processes = command.number("num_processes")
    if processes is None:
        return
    exported = (found for line in reversed(lines[: command.line]) if "export" in line and (found := _VISIBLE.search(line)))
    shown = _VISIBLE.search(command.text) or next(exported, None)
    asked = batch.gpus_per_node()
    if shown and len(shown["list"].split(",")) < processes:
        why = f"{processes} processes are started on a node, but CUDA_VISIBLE_DEVICES={shown['list']} shows {counted(len(shown['list'].split(',')), 'GPU')}"
    elif asked is not None and asked < processes:
        why = f"{processes} processes are started on a node, but the job has {counted(asked, 'GPU')} there"
    else:
        return
    yield Finding(command.line, "gpus-fewer-than-processes", "warning", command.text, why, "one process for each GPU", TORCHRUN)


def _one_gpu(batch: Batch, commands: Sequence[Command]) -> Iterator[Finding]:
    places = [(one.line, one.text) for one in commands if one.values.get("gpus_per_task") == "1" or one.values.get("gpu_bind", "").startswith("single:1")]
    for name, wanted in (("gpus_per_task", "1"), ("gpu_bind", "single:1")):
        value, line = batch.options.get(name, ("", 0))
        if value == wanted:
            places.append((line, f"#SBATCH --{name.replace('_', '-')}={value}"))
    for line, text in places:
        why = "each task sees only its own GPU, as number 0: an index by local rank fails, and the ranks of a node may not reach each other's memory"
        yield Finding(line, "one-gpu-per-task", "info", text, why, "--gpus-per-node, and set_device(local rank) in the script", SBATCH)


def _loopback(batch: Batch, commands: Sequence[Command], instead: str) -> Iterator[Finding]:
    launched = [one for one in commands if _LAUNCHER.search(one.text)]
    if "nodes" not in batch.options and (len(launched) > 1 or any(_BACKGROUND.search(one.text) for one in launched)):
        return  # a script that starts several agents itself tries several nodes on one machine
    sizes = [batch.number("nodes"), *(command.number("nnodes", "num_machines") for command in commands)]
    if max((one for one in sizes if one), default=1) < 2:
        return
    several = [one for one in launched if _has_several_nodes(one)]
    if launched and not several:
        return  # every launch is of one node, which is its own master
    reported = False
    asked = [one for one in commands if one not in launched or one in several]
    is_read = _is_master_read(asked)
    for command in asked:
        given = [command.values.get(name, "") for name in ("master_addr", "rdzv_endpoint", "main_process_ip")]
        assigned = _ASSIGNED.match(command.text)
        if assigned and assigned["name"] == "MASTER_ADDR" and is_read:
            given.append(assigned["value"])
            reported = is_loopback(assigned["value"])
        elif reported and "MASTER_ADDR" in command.text:
            continue  # the assignment above is the fault
        if any(map(is_loopback, given)):
            why = "each node uses itself as the master, so the nodes never meet"
            yield Finding(command.line, "master-is-loopback", "warning", command.text, why, instead, TORCHRUN)


def _is_master_read(commands: Sequence[Command]) -> bool:
    """Whether a command uses MASTER_ADDR, or starts what reads it. torchrun does not; without torchrun, whatever is started may."""
    others = [one.text for one in commands if not _TORCHRUN.search(one.text)]
    started = any(_STARTS_READERS.search(text) or ("srun" in text.split() and "python" in text) for text in others)
    return started or len(others) == len(commands) or any(_USES_MASTER.search(one.text) for one in commands)


def is_loopback(address: str) -> bool:
    """Whether an address, also with a port, is the machine's own on every machine."""
    return _LOOPBACK.match(address) is not None


def _has_several_nodes(command: Command) -> bool:
    """Whether a launch is not known to be of one node: by the launcher's number, or by that of its step."""
    step = re.search(r"(?<!\w)(?:-N|--nodes)[= ]?(\d{1,4})\b", command.text.partition("torch")[0])
    return command.number("nnodes", "num_machines") != 1 and not (step and step[1] == "1")


def _accelerate(text: str) -> Iterator[Finding]:
    """The findings of accelerate's configuration file."""
    found = {one["name"]: (one["value"], text.count("\n", 0, one.start()) + 1) for one in _CONFIGURED.finditer(text)}
    machines, processes = (int(found[name][0]) if name in found and found[name][0].isdigit() else None for name in ("num_machines", "num_processes"))
    address, line = found.get("main_process_ip", ("", 0))
    if (machines or 1) > 1 and _LOOPBACK.match(address):
        why = "each node uses itself as the master, so the nodes never meet"
        yield Finding(line, "master-is-loopback", "warning", f"main_process_ip: {address}", why, "the address of machine 0", ACCELERATE)
    shown, line = found.get("gpu_ids", ("all", 0))
    if processes and (machines or 1) == 1 and re.fullmatch(r"\d{1,3}(?:,\d{1,3}){0,63}", shown) and len(shown.split(",")) < processes:
        why = f"num_processes is {processes}, but gpu_ids names {counted(len(shown.split(',')), 'GPU')}"
        yield Finding(line, "gpus-fewer-than-processes", "warning", f"gpu_ids: {shown}", why, "one process for each GPU", ACCELERATE)
    if processes and machines and processes % machines:
        line = found["num_processes"][1]
        why = f"num_processes counts the whole job, but {processes} cannot be divided by {machines} machines"
        yield Finding(line, "nodes-differ", "warning", f"num_processes: {processes}", why, "machines x GPUs of each", ACCELERATE)
