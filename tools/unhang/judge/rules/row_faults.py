"""What a row is refused for besides its examples: a severity without costs, near misses that prove
nothing, a part of a GPU's name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.judge.rules.costs import COSTS
from unhang.judge.rules.rules import Rule, undecided_severity
from unhang.judge.rules.syntax import Path

_ABSENT = object()
_TOGETHER = {
    ("faults", "events"): "an event's code and its line are one thing that happened",
    ("fabric_manager", "imex"): "what is not installed has no version",
    ("node", "slurm"): "what is not installed has no version",
    ("interconnect",): "a link's errors are counted in its GPU's sum as well",
    ("fabric_manager",): "what is not installed has no version",
}
"""Facts that cannot change one without the other count as one."""


BY_A_PART_OF_THE_NAME = re.compile(
    r"(gpus|item)\.model\b(\s*\|\s*\w+)*\s+is\s+(not\s+)?"
    r"(like(?!\('\*-\*\[0-9]\[ABCQ]'\))|startswith|endswith|contains)"
    r"|'[^']*'\s+(not\s+)?in\s+(gpus|item)\.model\b"
    r"|attr\('model',\s*'(like|contains|startswith|endswith)'"
)
"""A condition that tells GPUs apart by a part of their name: RTX 40 is not RTX 4000 Ada, and B300
is not GB300. A virtual GPU's name ends in its size and use: NVIDIA A10-24C, GRID T4-16Q."""


def row_faults(rule: Rule) -> Iterator[str]:
    """One line for each fault, which begins with the key that has it."""
    yield from _cost_faults(rule)
    for name in ("for_each", "applies", "when", "compare", "within"):
        source = str(rule.row.get(name, ""))
        if BY_A_PART_OF_THE_NAME.search(source) and "policy." not in source:
            yield (
                f"{name}: a part of a model's name is compared, and not a model that"
                " tables.gpu_models names"
            )
    examples = rule.row["examples"]
    for place, miss in enumerate(examples["near_miss"]):
        if not any(_sections(miss) & _sections(match) for match in examples["match"]):
            yield f"examples.near_miss[{place}]: no match has these facts, so it proves nothing"
    if rule.decision_reads and len(fewest := fewest_changes(rule)) != 1:
        named = ", ".join(sorted(".".join(path) for path in fewest)) or "none that decides"
        yield f"examples.near_miss: none differs from a match in one deciding fact alone: {named}"


def _cost_faults(rule: Rule) -> Iterator[str]:
    costs = rule.row.get("costs")
    of_table = rule.severity_of is not None and undecided_severity(rule.severity_of) is None
    if of_table or rule.severity == "info":
        if costs is not None:
            yield (
                "costs must be absent, because"
                f" {'each row of the table has its severity' if of_table else 'info costs a job nothing'},"  # noqa: E501
                f" and is {costs}"
            )
    elif costs is None or COSTS[costs][0] != rule.severity:
        fitting = " or ".join(
            repr(cost) for cost, (severity, _) in COSTS.items() if severity == rule.severity
        )
        yield f"costs must be what makes it {rule.severity}, {fitting}, and is {costs or 'none'}"
    if rule.severity == "info" and "drain" in str(rule.row["remedy"].get("person")):
        yield "remedy.person: an info takes no node out of service, and this drains it"


def _sections(example: Any) -> set[str]:
    """The sections, and the other top-level keys, of an example of any scope."""
    return {key for node in (example if isinstance(example, list) else [example]) for key in node}


def fewest_changes(rule: Rule) -> set[Path]:
    """The deciding facts in which the match and the near miss differ that are most alike."""
    examples = rule.row["examples"]
    return min(
        (
            _deciding(rule, match, miss)
            for match in examples["match"]
            for miss in examples["near_miss"]
        ),
        key=len,
    )


def _deciding(rule: Rule, match: Any, near_miss: Any) -> set[Path]:
    found = {path[1:] if path[:1] == ("*",) else path for path in _changes(match, near_miss)}
    deciding = {path for path in found if _decides(path, rule.decision_reads)}
    for whole in _TOGETHER:
        if len({path for path in deciding if path[: len(whole)] == whole}) > 1:
            deciding = {path for path in deciding if path[: len(whole)] != whole} | {whole}
    return deciding


def _changes(one: Any, other: Any, path: Path = ()) -> Iterator[Path]:
    """Places at which two examples differ; an item or a key that is only on one side is one place.
    Numbers of items become *."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in one.keys() | other.keys():
            yield from _changes(one.get(key, _ABSENT), other.get(key, _ABSENT), (*path, key))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            here, there = (side[place] if place < len(side) else _ABSENT for side in (one, other))
            yield from _changes(here, there, (*path, "*"))
    elif one is _ABSENT or other is _ABSENT or one != other:
        yield path


def _decides(path: Path, reads: frozenset[Path]) -> bool:
    """Whether a change at this place can reach the verdict."""
    return any(
        path[: len(read)] == read
        or read[: len(path)] == path
        or (read[-1] == "**" and path[: len(read) - 1] == read[:-1])
        for read in reads
    )
