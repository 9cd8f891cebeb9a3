"""Two sides in, the facts that differ out. A fact that one side could not read is no difference; it
is only counted."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unhang.audit.compare.flattening import compared_facts, flattened
from unhang.audit.compare.sides import Side
from unhang.core.errors import UserError
from unhang.core.run.run_input import natural
from unhang.core.schemas.configuration import was_unread
from unhang.core.schemas.reading import nearest

# Drivers, kernels and libraries explain most differences between two jobs, so they come first;
# other facts follow by name.
ORDER = ("driver", "kernel", "fabric_manager", "nccl", "cuda", "torch", "gpus", "network", "limits")
_ROW = re.compile(r".*\]")
# the most informative field of a row that only one side has
_CHOSEN_ENDINGS = (".version", ".value", ".state", ".srcversion", ".loaded")
Values = Mapping[str, tuple[str, ...]]  # value -> nodes that have it


@dataclass(frozen=True)
class Difference:
    """a, b: value -> nodes of that side; "none" if there is no such thing."""

    fact: str
    a: Values
    b: Values


@dataclass(frozen=True)
class Comparison:
    """compared: requested facts that both sides could read, equal or not; unread: those that a side
    could not read."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    compared: int
    unread: int


NONE, UNREAD = "none", "not read"


def compare(a: Side, b: Side, launch: str = "slurm", asked: Sequence[str] = ()) -> Comparison:
    """launch: how the job was started (a path of nccl.effective), where one side is the environment
    of a job; asked: the facts to compare, with wildcards, all by default. Raises UserError."""
    if a.environment is not None or b.environment is not None:
        rows = _environments(a, b, launch)
    else:
        rows = [row for section in {*a.contents, *b.contents} for row in _of_section(section, a, b)]
        _refuse_unknown(asked, [row.fact for row in rows])
    rows = [row for row in rows if not asked or any(_selects(one, row.fact) for one in asked)]
    shown = [row for row in rows if UNREAD not in (*row.a, *row.b)]
    differing = _folded([row for row in shown if set(row.a) != set(row.b)])
    return Comparison(
        a, b, tuple(sorted(differing, key=_sort_key)), len(shown), len(rows) - len(shown)
    )


def _selects(asked: str, fact: str) -> bool:
    """`driver` means all that is below it."""
    return (
        fnmatch.fnmatchcase(fact, asked)
        or fact == asked
        or fact.startswith((f"{asked}.", f"{asked}["))
    )


def _refuse_unknown(asked: Iterable[str], there: Iterable[str]) -> None:
    """there: facts of the nodes; one of the schema that no node has is known too."""
    known = compared_facts()
    for one in asked:
        of_schema = (
            _selects(one, fact) or fnmatch.fnmatchcase(one, fact.replace("[*]", "[[]*]"))
            for fact in known
        )
        if not any(_selects(one, fact) for fact in there) and not any(of_schema):
            raise UserError(
                f"--fact {one!r} is not a fact that is compared{nearest(one, known)}; `unhang"
                " explain SECTION` lists those of a section"
            )


def _of_section(section: str, a: Side, b: Side) -> list[Difference]:
    flat = {
        text: (flattened(section, read), read)
        for side in (a, b)
        for text in side.contents.get(section, ())
        for read in [json.loads(text)]
    }
    paths = {path for values, _ in flat.values() for path in values}
    return [
        Difference(path, *(_values(section, path, side, flat) for side in (a, b))) for path in paths
    ]


def _values(
    section: str, path: str, side: Side, flat: Mapping[bytes, tuple[dict[str, str], dict]]
) -> Values:
    found: dict[str, list[str]] = {}
    seen = 0
    for text, hosts in side.contents.get(section, {}).items():
        values, read = flat[text]
        value = values.get(path)
        if value is None:
            value = UNREAD if was_unread({section: read}, path) else NONE
        found.setdefault(value, []).extend(hosts)
        seen += len(hosts)
    if seen < len(side.hosts):
        found.setdefault(UNREAD, [])
    return {value: tuple(sorted(hosts, key=natural)) for value, hosts in found.items()}


def _environments(a: Side, b: Side, launch: str) -> list[Difference]:
    """Variables as jobs get them: of nodes by the files that set them, of a job as it had them."""
    own = [_variables(side, launch) for side in (a, b)]
    names = sorted({name for side in own for name in side})
    missing = [{NONE: side.hosts} for side in (a, b)]
    return [
        Difference(name, own[0].get(name, missing[0]), own[1].get(name, missing[1]))
        for name in names
    ]


def _variables(side: Side, launch: str) -> dict[str, Values]:
    if side.environment is not None:
        return {name: {value: ()} for name, value in side.environment.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for text, hosts in side.contents.get("nccl", {}).items():
        effective = json.loads(text).get("effective")
        if effective is None or launch not in effective:
            raise UserError(
                f"{side.name} has no settings of jobs that come by {launch}: they were not read"
            )
        for name, value in (effective[launch] or {}).items():
            found.setdefault(name, {}).setdefault(UNREAD if value is None else value, []).extend(
                hosts
            )
    for values in found.values():
        without = set(side.hosts).difference(*values.values())
        if without:
            values.setdefault(NONE, []).extend(without)
    return {
        name: {value: tuple(sorted(hosts, key=natural)) for value, hosts in values.items()}
        for name, values in found.items()
    }


def _folded(rows: Iterable[Difference]) -> list[Difference]:
    """A row of a list that only one side has is one difference, shown by its most informative
    field."""
    groups: dict[str, list[Difference]] = {}
    for row in rows:
        found = _ROW.match(row.fact)
        groups.setdefault(found.group() if found else row.fact, []).append(row)
    folded: list[Difference] = []
    for place, members in groups.items():
        head = next(
            (
                row
                for row in members
                if row.fact == place and NONE in (*row.a, *row.b) and place.endswith("]")
            ),
            None,
        )
        if head is None:
            folded += members
            continue
        chosen = next(
            (
                row
                for ending in _CHOSEN_ENDINGS
                for row in members
                if row.fact == f"{place}{ending}"
            ),
            head,
        )
        folded.append(Difference(place, chosen.a, chosen.b))
    return folded


def _sort_key(row: Difference) -> tuple[int, str]:
    section = row.fact.partition(".")[0]
    return (ORDER.index(section) if section in ORDER else len(ORDER), row.fact)
