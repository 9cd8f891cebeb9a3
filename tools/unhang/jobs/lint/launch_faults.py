"""The checks of launches, written once for every launcher: quantities that must fit each other, and
places where ranks do not meet. What is not known is no fault. Values in, values out."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.knowledge import Findings, row_of, said
from unhang.jobs.lint.launch import Launch, Place, is_loopback, of_each
from unhang.jobs.lint.placed import Placed, number, placed
from unhang.jobs.lint.shell import EXPANSION, variable, varies

_OF_RANKS = re.compile(
    r"(?:NCCL|GLOO|UCX|FI|TORCH)_(?!.*(?:LOG|DEBUG|DUMP|STATS|TRACE))\w+|(?P<meeting>MASTER_(?:ADDR|PORT))"
)
_OPTIONS = re.compile(r"(?i)arg|opt|flag|env|param|var")


def _of_numbers(fits: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A relation of numbers; a text that is none fits."""
    return lambda *both: any(isinstance(one, str) for one in both) or fits(*both)


_FITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _of_numbers(operator.eq),
    "!=": operator.ne,
    "<": _of_numbers(operator.lt),
    "<=": _of_numbers(operator.le),
    "divides": _of_numbers(lambda by, whole: whole % by == 0),
    "never": lambda *_: False,
    "reaches": lambda found, _one: not is_loopback(found),
    "shared": lambda found, _one: not of_each(found),
    "seen": lambda device, gpus: device not in [f"cuda:{one}" for one in range(gpus, 64)],
    "named": lambda found, _one: not of_each(found, re.match),
}


def unfit(value: Any, relations: str) -> Findings:
    """The rows of a table of relations that do not hold in a launch, or in a container: the first
    of each rule."""
    rules = set[str]()
    for row in table(relations).values():
        found, wanted = (quantity(value, row[one]) for one in ("found", "wanted"))
        if found is None or wanted is None or _FITS[row["fits"]](found, wanted):
            continue
        claims = [claims_of(value, row[name]) for name in ("when", "unless")]
        if all(claims[0]) and not any(claims[1]):
            at = quantity(value, row["at"])
            made = fault(row["fault"], at, of=value, found=found, wanted=wanted)
            if made.rule not in rules:
                yield made
            rules.add(made.rule)


def claims_of(value: Any, paths: Sequence[str]) -> list[bool]:
    """Whether there is each quantity, or it is the one after the =."""
    split = [(quantity(value, name), wanted) for name, _, wanted in map(_PARTED, paths)]
    return [
        str(found) == wanted if wanted else found is not None and found is not False
        for found, wanted in split
    ]


_PARTED = operator.methodcaller("partition", "=")


def quantity(value: Any, path: str) -> Any:
    """A quantity or claim of a launch or container, by its name or names with dots; what is called
    gets the next name. None if there is none."""
    for name in filter(None, path.split(".")):
        if callable(value):
            value = value(name)
        elif value is not None:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name)
    counted = number(value)
    return value if counted is None else counted


def check_launches(launches: Sequence[Launch], *, reached: bool = False) -> Findings:
    """The findings of the launches of one script, pod or task. reached: whether other nodes call
    the first one by its name, so that it may call itself localhost."""
    alone = _on_one_machine(launches)
    announced = max((one.each for one in launches if one.member and one.each), default=None)
    for launch in launches:
        at_home = alone or (reached and launch.rank == 0)
        here = replace(launch, at_home=at_home, announced=announced)
        yield from unfit(here, "relations_of_launches")
        yield from _hosts(launch)
        yield from _forwarded(launch)
    yield from _starts(launches)


def fault(key: str, at: Launch | Placed, **values: Any) -> Finding:
    """A finding in the words of its row. of: the launch or container, if it is not `at`."""
    where = getattr(values.get("of", at), "place", Place()).row
    words = {"at": at, **row_of("launch_places", where), **values}
    place = at.command if isinstance(at, Launch) else at
    return said(key, place.line, place.shown, words)


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
    step = next((one for one in launch.steps if one.row.keys() & {"keeps", "gives"}), None)
    if step is None:
        return
    kind, file = step.row["kind"], step.row.get("env_file")
    starts = launch.runs_python or launch.step("launcher", "server")
    if not (starts or (kind == "step" and "keeps" in step.row)):  # MPI's ranks are of any program
        return
    asked = step.given("gives") or variable(by.held, step.row.get("gives_by", "")) or "ALL"
    if "keeps" not in step.row:
        gives_all = "ALL" in asked or "$" in asked
    else:
        gives_all = kind in ("step", "launcher") and not launch.elsewhere
        gives_all |= kind == "step" and place.forwards
        gives_all |= bool(file and (file in place.text or place.beside(file)))
    opens = [two for one, two in pairwise(by.words) if EXPANSION.fullmatch(two) and one[:1] != "-"]
    is_open = len(opens) > (kind in ("everywhere", "container"))  # the host, the image
    is_open |= any(map(_OPTIONS.search, opens))
    if gives_all or is_open or varies(shown, ("source", ".")) or step.given("opens"):
        return
    kept = tuple(step.row.get("keeps", ()))
    lost = {
        name: at
        for name, at in by.exported.items()
        if (found := _OF_RANKS.fullmatch(name)) and name not in shown and not name.startswith(kept)
        and not (found["meeting"] and launch.launcher)
    }  # fmt: skip
    for at in [*lost.values()][:1]:
        yield fault("not_forwarded", at, names=", ".join(lost), program=step.row["program"])


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


def _on_one_machine(launches: Sequence[Launch]) -> bool:
    """Whether a script starts several agents itself, which tries several nodes on one machine."""
    launched = [one for one in launches if one.launcher]
    return (len(launched) > 1 or any(one.command.together for one in launched)) and not any(
        one.place.nodes for one in launched
    )


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
        joins = first.program == other.program and (first.is_head or met == address != "")
        joins &= of_job
        alone = [one.point[1] for one in launches].count(entered) == 1  # else others meet there
        odd = is_loopback(address) or is_loopback(met)
        if not odd and (apart or (doors and joins and alone and port != entered)):
            at = other.port or other
            yield fault("two_ports", at, other=first.meeting, line=first.command.line)
