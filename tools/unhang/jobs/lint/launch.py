"""One value for how a job is started, whatever starts it. Each part has its place in the file, and
is None if the file does not say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.knowledge import listed
from unhang.jobs.lint.placed import ONE, Count, Number, Text, number, placed
from unhang.jobs.lint.shell import Command, Held, Script, read_shell, variable, varies
from unhang.jobs.lint.yaml_nodes import texts_in, values_of

DEEPEST = 4  # shells in shells
Options = Mapping[str, Text]
_HOST = re.compile(r"\s*([\w.-]{1,255})(?::(\d{1,4})\b|[^\n]*?\b(?:max_)?slots\s*=\s*(\d{1,4}))?")
PER_NODE = re.compile(r"ppr:(\d{1,3}):node")
_VISIBLE = re.compile(r"[\w.:-]{1,60}(?:,[\w.:-]{1,60}){0,63}")
_SHELLS = ("bash", "sh", "zsh")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked for in a command
_LOOPBACK = re.compile(r"(?:localhost|0\.0\.0\.0|127\.0\.0\.\d{1,3}|::1|\[::1\])(?::\d{0,5})?")
_READS_MASTER = re.compile(r"python|\.(?:py|sh)$|^\./|^(?:bash|sh)$|\$")
_BRIDGE = re.compile(r"172\.17\.\d{1,3}\.\d{1,3}(?::\d{1,5})?")
NOTHING = Command(0, "", [], {}, {})
# what differs in each task
OF_TASKS = ("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID")


@dataclass(frozen=True)
class Place:
    """Where commands are run. nodes, and tasks and gpus of each: what the job has; total: its GPUs.
    on_each: whether each node runs the commands. spreads: whether something starts programs on
    other nodes. row: of `launch_places`, what to write there. meets: whether launchers learn
    elsewhere where to meet. memory: bytes of each node. slots: what its hosts take. beside: the
    text of a file in the folder of this one, "" if there is none. text: of the script.
    asked: by its directives. alike: nodes or pods that each read its commands for themselves.
    is_job: whether these are one job without saying so. contained: whether its nodes are
    containers, which have relations of their own. pooled: whether its commands take GPUs of all
    nodes. alone: whether commands without hosts stay on one machine. forwards: whether programs on
    other nodes get all variables, whatever starts them."""

    nodes: Count = None
    tasks: Count = None
    gpus: Count = None
    total: Count = None
    on_each: bool = False
    spreads: bool = True
    row: str = "any"
    meets: bool = False
    memory: Count = None
    slots: Count = None
    beside: Callable[[str], str] = lambda _name: ""
    text: str = ""
    asked: Options = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    hostfiles: Mapping[str, Text] = field(default_factory=dict)
    alike: int | None = None
    is_job: bool = False
    contained: bool = False
    pooled: bool = False
    alone: bool = False
    forwards: bool = False


class Host(NamedTuple):
    """A host of a list or of a hostfile, with the processes that it takes."""

    name: Text
    slots: Count


class Step(NamedTuple):
    """A program of a command line with its own options, as its row of `launchers` names them."""

    row: Mapping[str, Any]
    options: Options
    words: Sequence[Text] = ()

    def given(self, name: str) -> Text | None:
        """The first option of a field of the row."""
        names = self.row.get(name) or ()
        return next((self.options[one] for one in names if one in self.options), None)


class Crowd:
    """Ranks that share the memory of a node or container."""

    crowd: int
    once = ONE

    @property
    def limits(self) -> Mapping[str, Any]:
        """Numbers that no file says."""
        return table("launch_limits")

    @property
    def least(self) -> Count:
        """The bytes that several ranks take at least."""
        return (
            placed(self.limits["memory_of_a_rank"]["most"] * self.crowd, 0)
            if self.crowd > 1
            else None
        )


@dataclass(frozen=True)
class Launch(Crowd):
    """A command that starts ranks or servers.

    options  of all its steps, the innermost first
    nodes    those on which it is started
    tasks    how often on each of them
    waits    the nodes for which its launcher waits
    processes  what each start makes on its node
    each     GPUs that each process takes
    gpus     those of a node that it sees
    all      processes of the whole job, as it says
    axes     parallel sizes by axis
    factors  those that multiply the ranks of a copy
    meets    the address at which ranks are to meet
    backend  of their rendezvous
    hosts    those that it names
    slots    processes that they take, None if one does not say
    by       what the script itself runs, with the variables that are known there
    at_home  whether it may call its own machine localhost: others do not
    announced  GPUs of each node of a cluster that its script starts
    inside   how a shell on each node reads it: "raw" if this script expands nothing in it
    """

    command: Command
    steps: Sequence[Step]
    place: Place
    options: Options
    nodes: Count = None
    tasks: Count = None
    waits: Count = None
    processes: Count = None
    each: Count = None
    gpus: Count = None
    all: Count = None
    rank: Count = None
    axes: Mapping[str, Number] = field(default_factory=dict)
    factors: Mapping[str, Number] = field(default_factory=dict)
    meets: Text | None = None
    backend: Text | None = None
    hosts: Sequence[Host] = ()
    slots: Count = None
    by: Command = NOTHING
    inside: str | None = None
    at_home: bool = False
    announced: Count = None

    def step(self, *kinds: str) -> Step | None:
        """The last step of one of these kinds."""
        return next((one for one in self.steps[::-1] if one.row["kind"] in kinds), None)

    def variable(self, name: str) -> Text | None:
        """A variable's value, if it is known."""
        return variable(self.command.held, name)

    def by_rank(self, name: str) -> bool:
        """Whether a variable is written as the rank in the whole job."""
        raw = self.command.raw.get(name, "")
        return raw != "" and "%" not in raw and varies(raw, listed("ranks of a job"))

    @property
    def starter(self) -> Step:
        """The program that starts the ranks of a node; an empty step if there is none."""
        return self.step("launcher") or Step({"program": ""}, {})

    @property
    def launcher(self) -> str | None:
        """Its name."""
        return self.starter.row["program"] or None

    @property
    def served(self) -> bool:
        """Whether it is a server, which divides a model among its own processes."""
        return self.step("server") is not None

    @property
    def node(self) -> Count:
        """The number of its node, or of its rank if nothing starts several."""
        if self.launcher or self.served:
            return self.rank
        return number(self.variable("RANK")) if self.variable("MASTER_ADDR") else None

    @property
    def meeting(self) -> str:
        """The address and port at which it meets others, as far as they are known."""
        return ":".join(self.point).strip(":")

    @property
    def point(self) -> tuple[str, str]:
        """The same apart; the port is the default of Ray's head if it says none."""
        given = self.meets or self.variable("MASTER_ADDR") or ""
        host, _sign, port = given.rpartition(":")
        head = self.member.row["port_of_head"] if self.member and self.is_head else ""
        return (host, port) if port.isdecimal() else (given, self.port or head)

    @property
    def program(self) -> str:
        """What meets there."""
        step = self.step("launcher", "server", "member")
        return step.row["program"] if step else ""

    @property
    def port(self) -> Text | None:
        """The port at which it meets others, if it is by itself."""
        named = (step.given("port") for step in self.steps[::-1])
        return next(filter(None, named), None) or self.variable("MASTER_PORT")

    @property
    def door(self) -> Text | None:
        """The same, also of an address."""
        return self.port or (self.meets and placed(self.meets.partition(":")[2], self.meets))

    @property
    def member(self) -> Step | None:
        """The step that makes its machine a node of a cluster."""
        return self.step("member")

    @property
    def is_head(self) -> bool:
        """Whether that is the first."""
        return self.member is not None and self.member.given("head") is not None

    @property
    def own_host(self) -> Text | None:
        """The address that a server gives to others as its own."""
        named = (row.get("own_variable", "") for row in table("launchers").values())
        return next(filter(None, map(self.variable, named)), None)

    @property
    def mounts_shared(self) -> bool:
        """Whether it names /dev/shm."""
        return SHARED_MEMORY in self.command.shown

    @property
    def is_told(self) -> bool:
        """Whether it may learn elsewhere where to meet: torchrun reads PET_ and its options."""
        names = {*self.command.held, *self.command.exported}
        return self.place.meets or any(one.startswith("PET_") for one in names)

    @property
    def is_wide(self) -> bool:
        """Whether it is known to be of several nodes, and not of one of them alone."""
        of_job = self.waits is None and self.of_all and (self.place.nodes or ONE) > 1
        return self.waits != 1 and (self.several or of_job)

    @property
    def for_each(self) -> bool:
        """Whether each of several nodes or tasks computes what its words have to compute."""
        if (self.place.alike or 0) > 1:
            return (self.waits or 0) > 1 or self.place.is_job
        many = self.is_wide or self.started > 1
        return self.inside == "raw" and self.waits != 1 and many

    @property
    def started(self) -> int:
        """How often it is started, as far as that is known."""
        return (self.nodes or 0) * (self.tasks or 1)

    @property
    def elsewhere(self) -> bool:
        """Whether it is known to be started on other machines by their names."""
        files = any(one.given("hostfile") for one in self.steps)
        return len({one.name for one in self.hosts}) > 1 or (not self.hosts and files)

    @property
    def is_spread(self) -> bool:
        """Whether something starts it on several nodes."""
        return (self.nodes or 0) > 1 or self.elsewhere

    @property
    def starts_scripts(self) -> bool:
        """Whether something starts a script of Python in each task, without a launcher."""
        alone = self.runs_python and not self.program
        return alone and self.step("step", "everywhere") is not None

    @property
    def written(self) -> Mapping[str, Text]:
        """Variables as a node or task reads them."""
        given = {name: one for name, [*_words, one] in self.place.held.items()}
        return {**given, **self.command.raw}

    @property
    def reads_master(self) -> bool:
        """Whether a script may take the address of MASTER_ADDR."""
        words = (word for one in self.steps[-1:] for word in one.words)
        reads = any(map(_READS_MASTER.search, words))
        return reads and (self.place.on_each or self.step("step") is not None)

    @property
    def is_open(self) -> bool:
        """Whether options of its launcher may be in a variable."""
        known = {*self.starter.options.values()}
        return any(one.startswith("$") and one not in known for one in self.starter.words)

    @property
    def at_itself(self) -> bool:
        """Whether it meets others at an address of its own machine alone."""
        return is_loopback(self.meets) or self.on_bridge

    @property
    def on_bridge(self) -> bool:
        """Whether it meets them at one of Docker's own network."""
        return _BRIDGE.fullmatch(self.meets or "") is not None

    @property
    def several(self) -> bool:
        """Whether it is known to be of several nodes; 2:4 are two at least."""
        least = self.options.get("nnodes", "").rpartition(":")[0]
        return (self.waits or self.nodes or ONE) > 1 or least > "1"

    @property
    def of_all(self) -> bool:
        """Whether it uses all nodes of the job, and is not one of several steps."""
        return self.place.on_each or self.nodes == self.place.nodes or not self.step("step")

    @property
    def runs_python(self) -> bool:
        """Whether its words name a script of Python."""
        return any("python" in one or one.endswith(".py") for one in self.command.words)

    @property
    def named(self) -> Count:
        """The hosts that it names."""
        return placed(len(self.hosts), self.hosts[0].name) if self.hosts else None

    @property
    def least_slots(self) -> Count:
        """Processes that the smallest of its hosts takes."""
        return min((one.slots for one in self.hosts if one.slots), default=None)

    @property
    def room(self) -> Count:
        """Processes that its hosts take: as given for each, or by their slots."""
        step = self.step("step")
        mapped = step and PER_NODE.search(step.options.get("map_by", ""))
        return (times(self.tasks, self.nodes) if mapped else None) or self.slots or self.place.slots

    @property
    def oversubscribes(self) -> bool:
        """Whether it is to start more processes than its hosts take."""
        return "oversubscribe" in self.command.shown.lower()

    @property
    def crowd(self) -> int:  # type: ignore[override]
        """Ranks on a node, one at least."""
        return (self.processes or 1) * (self.tasks or 1)

    @property
    def count(self) -> Count:
        """Processes of a node that take GPUs there; None where one is meant to have them all, and
        for a server that may use other nodes."""
        elsewhere = self.several or self.options.keys() & {"nnodes", "distributed_executor_backend"}
        if self.each:
            share = self.each > 1 and (self.tasks or 0) > 1
            return times(self.processes, self.tasks) if share else None
        return self.processes if self.launcher or (self.served and not elsewhere) else None

    @property
    def wanted(self) -> Count:
        """GPUs that they need."""
        return times(self.count, self.each or ONE)

    @property
    def size(self) -> Count:
        """Ranks of one copy of the model, by its parallel sizes."""
        made = _product(self.factors) if self.factors else ONE
        return made if made > 1 else None

    @property
    def experts(self) -> Count:
        """Ranks over which the experts of all stages are split."""
        expert, pipeline = self.axes.get("expert"), self.axes.get("pipeline", ONE)
        within = self.axes.get("expert tensor") or self.axes.get("tensor", ONE)
        return times(times(expert, within), pipeline)

    @property
    def batch_made(self) -> Count:
        """Samples that all ranks make, by what it says of each."""
        made = None if self.size else self.ranks
        for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
            made = times(made, number(self.options.get(name, placed("1", 0))))
        return made

    @property
    def split(self) -> str:
        """These sizes."""
        return " x ".join(f"{name} {one}" for name, one in self.factors.items())

    @property
    def spans(self) -> bool:
        """Whether one copy is divided among all nodes."""
        wide = self.several or (self.place.nodes or ONE) > 1
        return self.place.pooled or (self.served and wide)

    @property
    def ranks(self) -> Count:
        """All ranks, where nodes and ranks of each are written."""
        nodes = self.waits or (None if "nnodes" in self.options else self.nodes)
        started = not (self.served or self.place.pooled) and (self.launcher or self.step("step"))
        alone = "standalone" in self.options or (nodes and nodes.how == "written")
        each = self.processes if self.launcher else self.tasks
        is_written = alone and each and each.how == "written"
        return self.all or times(nodes, each) if started and is_written else None


def _product(sizes: Mapping[str, Number]) -> Number:
    """The product of sizes, at the place of the first."""
    made: Number = placed(prod(sizes.values()), next(iter(sizes.values())))
    return made


def of_each(text: object, find: Callable[[str, str], Any] = re.search) -> bool:
    """Whether it has a value, by re.match at its start, that is another on each node."""
    return any(find(one, str(text).strip("\"'")) for one in table("values_of_each_node"))


def is_loopback(address: object) -> bool:
    """Whether an address, also with a port, is the machine's own on every machine."""
    return _LOOPBACK.fullmatch(str(address)) is not None


def divided(whole: Count, by: Count) -> Count:
    """How many of all are on each, rounded up."""
    return placed(-(-whole // by), whole, how=whole.how) if whole and by else None


def times(one: Count, other: Count) -> Count:
    """The product, at the place of the first."""
    return placed(one * other, one, how=one.how) if one and other else None


def options_of(words: Sequence[Text], flags: Sequence[str] = ()) -> dict[str, Text]:
    """--name=value, --name value, -n 8, -n8 and name=value, by the name with `_` for `-`."""
    found: dict[str, Text] = {}
    for word, after in pairwise([*words, placed("-", 0)]):
        name, sign, value = word.partition("=")
        shown, is_option = str(word), name.startswith("-")
        short = re.fullmatch(r"-([A-Za-z])(\d{1,5})", name)
        name = name.strip("-").replace("-", "_").replace(".", "_")
        if short:
            name, value = short[1], short[2]
        elif is_option and not sign and name not in flags and not after.startswith("-"):
            value, shown = after, f"{word} {after}"
        if name and (is_option or sign):
            found[name] = placed(value, word.line, shown)
    return found


def steps_of(words: Sequence[Text]) -> list[Step]:
    """The programs of a command line, each with its own options, up to a script's."""
    rows, starts = table("launchers"), list[Any]()
    for at, word in enumerate(words):
        after, base = (*words[at + 1 : at + 2], "")[0], word.rpartition("/")[2]
        name = f"{base} {after}" if f"{base} {after}" in rows else base
        kind = starts[-1][1]["kind"] if starts else ""
        is_value = at and words[at - 1].endswith(("launcher", "backend", "executor", "-R"))
        if name and name in rows and not is_value:
            starts.append((at, rows[name]))
        elif kind in ("", "script"):
            continue
        elif base.endswith(".py") or (base == "-m" and after not in rows):
            starts.append((at, rows[""]))
    of_image = words and words[0].startswith("-")  # the image says which program gets them
    starts = starts or [(0, {**rows[""], "kind": "server" if of_image else "script"})]
    ends = [at for at, _row in starts[1:]] + [len(words)]
    parts = [
        (row, words[at + bool(row["program"]) : end])
        for (at, row), end in zip(starts, ends, strict=True)
    ]
    steps = [Step(row, options_of(own, row.get("flags") or ()), own) for row, own in parts]
    return [
        one._replace(row=rows["mpiexec.hydra"]) if one.given("of_mpich") else one for one in steps
    ]


def hosts_in(text: Text, sign: str) -> list[Host]:
    """The hosts of a text, between these signs: name, name:8, name slots=8."""
    own = sign == "\n" and text.how != "beside"  # lines of this file
    lines = [placed(one, text.line + own * at, one) for at, one in enumerate(text.split(sign))]
    found = [(one, _HOST.match(one)) for one in lines]
    return [
        Host(placed(one[1], at), number(placed(one[2] or one[3] or "", at)))
        for at, one in found
        if one
    ]


def launches_of(
    script: Script,
    place: Place,
    outer: Sequence[Step] = (),
    by: Command | None = None,
    inside: str | None = None,
) -> Iterator[Launch]:
    """The launches of a script, and of the scripts in its words (bash -c '...')."""
    for command in script.commands:
        steps = steps_of(command.words)
        inner = _script_in(command.words, steps) if len(outer) < DEEPEST else None
        if inner is None:
            found = launch_of(command, [*outer, *steps], place)
            yield replace(found, by=by or command, inside=inside)
            continue
        around = [*outer, *(one for one in steps if one.row["kind"] != "script")]
        held = {
            name: one
            for name, one in command.held.items()
            if name not in OF_TASKS and not of_each(" ".join(one))
        }
        asked = steps[0].options if "gives" in steps[0].row else {}
        known = {one: variable(held, name) or "" for one, name in _ASKED.items()}
        held |= set_by_slurm({**known, **asked})
        shell = Step({"program": "", "kind": "shell"}, {})
        read = read_shell(inner, held, inner.line)
        yield from launches_of(read, place, [*around, shell], by or command, inner.how)


_ASKED = {
    "nodes": "SLURM_NNODES",
    "ntasks_per_node": "SLURM_NTASKS_PER_NODE",
}


def _script_in(words: Sequence[Text], steps: Sequence[Step]) -> Text | None:
    """The word that a shell takes for a script: of several words."""
    remote = steps[0].row["kind"] == "everywhere"
    of_shell = False
    for before, word in pairwise(words):
        of_shell |= before.rpartition("/")[2] in _SHELLS
        names = {one.rpartition("/")[2] for one in word.split()[:200]}
        is_script = of_shell and before.startswith("-") and before.endswith("c")
        if len(names) > 1 and (is_script or (remote and names & table("launchers").keys())):
            return word
    return None


def launch_of(command: Command, steps: Sequence[Step], place: Place) -> Launch:
    """A command as a launch, by its steps from the outermost in."""
    steps = [_configured(one, place) for one in steps]
    options = {name: one for step in steps for name, one in step.options.items()}
    parts: dict[str, Any] = {"nodes": place.nodes if place.on_each else ONE, "tasks": ONE}
    parts["gpus"] = place.gpus
    for step in steps:
        kind = step.row["kind"]
        named = _bound(step, place)
        asked = {
            name: number(step.given(name)) if step.given(name) else named.get(name)
            for name in ("nodes", "whole", "each", "rank")
        }
        parts["each"] = number(step.given("gpus")) or parts.get("each")
        for name in ("meets", "backend"):
            parts[name] = step.given(name) or parts.get(name)
        if kind == "step":
            parts["nodes"], parts["tasks"] = _spread(step, place)
            parts["all"] = asked["whole"]
            per_task = number(step.options.get("gpus_per_task"))
            parts["gpus"] = times(per_task, parts["tasks"]) or parts["gpus"]
        elif kind == "everywhere":
            parts["nodes"] = _spread(step, place)[0] if step.given("hosts") else None
        elif kind in ("launcher", "server"):
            parts |= {"rank": asked["rank"], "waits": asked["nodes"], "all": asked["whole"]}
            waits = asked["nodes"] or (None if step.given("nodes") else ONE)
            parts["processes"] = asked["each"] or divided(asked["whole"], waits)
        elif kind == "script":
            parts.setdefault("processes", ONE)
    axes, factors = dict[str, Number](), dict[str, Number]()
    for name, row in table("parallel_axes").items():
        if size := number(options.get(name)):
            axes[row["axis"]] = size
            if row["factor"] and options.keys().isdisjoint(row["unless"]):
                factors[row["axis"]] = size
    if any(one.row["kind"] == "server" for one in steps) and factors:
        parts["processes"] = _product(factors)
    hosts = [one for step in steps for one in _hosts(step, place)]
    slots = [one.slots for one in hosts if one.slots]
    if slots and len(slots) == len(hosts):
        parts["slots"] = placed(sum(slots), hosts[0].name)
    seen = [step.given("sees") for step in steps]
    seen += [variable(command.held, f"{one}_VISIBLE_DEVICES") for one in ("CUDA", "NVIDIA")]
    for shown in filter(None, seen):
        if _VISIBLE.fullmatch(shown) and shown not in ("all", "none", "void"):
            parts["gpus"] = placed(len(shown.split(",")), shown)
            break
    parts |= {"axes": axes, "factors": factors, "hosts": hosts}
    return Launch(command, steps, place, options, **parts)


def _configured(step: Step, place: Place) -> Step:
    """A step with the options of the file that it names, unless it has them itself."""
    file = step.given("config")
    if file is None:
        return step
    text, known = _file(file, place), dict[str, Text]()
    for name, one in texts_in(*values_of(str(text))).items():
        line = file.line if text.how == "beside" else one.line + text.line - 1
        known[name] = placed(one, line, one.shown)
    own = step.options  # a script has none that change the file's
    return step._replace(
        options={**own, **known} if step.row["kind"] == "script" else {**known, **own}
    )


def _file(name: Text, place: Place) -> Text:
    """The text of a file that the script writes, or of one beside it; "" if there is none."""
    beside: Text = placed(place.beside(name), name, how="beside")
    return place.hostfiles.get(name) or beside


def _hosts(step: Step, place: Place) -> list[Host]:
    """The hosts that a step names, itself or in a file; none if one is not in the text."""
    named, file = step.given("hosts"), step.given("hostfile")
    if named and not re.search(r"[$\[`]", named):
        return hosts_in(named, ",")
    listed = _file(file, place) if file else None
    return hosts_in(listed, "\n") if listed else []


def _bound(step: Step, place: Place) -> Mapping[str, Count]:
    """The nodes of a step, and its processes on each, where its hosts are to say so."""
    hosts = _hosts(step, place) if step.row.get("bound") and not step.given("picks") else []
    slots = {one.slots for one in hosts}
    return {
        "nodes": placed(len(hosts), hosts[0].name) if hosts else None,
        "each": slots.pop() if len(slots) == 1 else None,
    }


def _spread(step: Step, place: Place) -> tuple[Count, Count]:
    """(nodes on which a step starts its command, how often on each)."""
    each, whole, nodes = (number(step.given(name)) for name in ("each", "whole", "nodes"))
    hosts = _hosts(step, place)
    if (at := step.given("each")) and (mapped := PER_NODE.search(at)):
        each = placed(int(mapped[1]), at)
    if nodes is None and (hosts or step.given("hosts") or step.given("hostfile")):
        nodes = placed(len({one.name for one in hosts}), hosts[0].name) if hosts else None
        return nodes, each or divided(whole, nodes)
    if "gives" in step.row:
        of_job = place.nodes
        if nodes is None and of_job and whole and whole < of_job:
            of_job = placed(int(whole), whole)
        nodes = nodes or of_job
        return nodes, each or (divided(whole, nodes) if whole else place.tasks)
    if nodes is None:
        here = ONE if place.alone else None
        nodes = divided(whole, each) or place.nodes or here
    return nodes, each or divided(whole, nodes)


def set_by_slurm(options: Mapping[str, str]) -> dict[str, list[Text]]:
    """The variables that Slurm sets for these options of sbatch and srun; none for a value that is
    not in the text, such as a range of nodes."""
    nodes, tasks = options.get("nodes", ""), options.get("ntasks", "")
    each = options.get("ntasks_per_node", "")
    if not tasks and nodes.isdecimal() and each.isdecimal():
        tasks = str(int(nodes) * int(each))
    known = {f"SLURM_{name.upper()}": value for name, value in options.items() if name != "nodes"}
    known |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes)
    known |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks)
    known["SLURM_GPUS_ON_NODE"] = gpus_asked(options)
    return {
        name: [placed(value.rpartition(":")[2], 0)]
        for name, value in known.items()
        if re.fullmatch(r"(?:\w+:)?\d{1,5}", value)
    }


def gpus_asked(options: Mapping[str, Any]) -> Any:
    """GPUs that a job has on each node, "" if it does not say."""
    asked = [options[name] for name in ("gpus_per_node", "gres") if name in options]
    found = (re.search(r"^(?:gpu:)?(?:[\w.-]{1,40}:)?(\d{1,3})(?=$|[,(])", one) for one in asked)
    return next((placed(one[1], at) for at, one in zip(asked, found, strict=True) if one), "")
