"""Finds the workers of an engine that serves, such as vLLM or sglang, by the titles that they give
themselves: VLLM::Worker_PP0_TP1, sglang::scheduler_TP1. A title takes the place of their
environment, so that no variable has their rank.

Workers with one title below one process are a job: the engine, which sends them each request. A
title is a user's text: it names processes of the same user alone.
"""

from __future__ import annotations

import math
import re

from ..base.named_tuple import NamedTuple
from ..facts.sections.reading import text_if_there
from .process_table import ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..base.root import Root
    from .parse.process_state import Stat

MARK = "::"
# The kernel's short name is the title's beginning.
TITLE = re.compile(r"([\w.-]{1,32}::[A-Za-z]{1,32})((?:_[A-Z]{2,4}(?:_[A-Z]{2,4})?\d{1,4}){1,8})")
DIMENSION = re.compile(r"_([A-Z_]+)(\d+)")
# Pipeline, prefill context and tensor: the rank is counted through the last one first. Others of a
# title (EP, DCP) number the same ranks again, but for DP: most engines are a world of their own.
DIMENSIONS, DATA = ("PP", "PCP", "TP"), "DP"
MOST_WORKERS = 4096


class Worker(NamedTuple):
    """A worker and its place among those of its engine. engine: a process."""

    pid: int
    engine: int
    job: str
    rank: int
    world: int


def workers_of(root: Root, stats: dict[int, Stat], pids: Collection[int]) -> Iterator[Worker]:
    """Those of the processes that are workers of an engine. pids: of one user."""
    groups: dict[tuple[int, str], list[tuple[int, dict[str, int]]]] = {}
    for pid in pids:
        title = _title(root, pid) if MARK in stats[pid].command else None
        if title:
            name, numbers = title
            groups.setdefault((_engine_of(stats, pid), name), []).append((pid, numbers))
    for (engine, name), found in groups.items():
        # Where ranks come twice, each data-parallel replica counts its own.
        is_apart = len({_coordinates(numbers) for _pid, numbers in found}) < len(found)
        worlds: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        for pid, numbers in found:
            replica = f" {DATA}{numbers.get(DATA, 0)}" if is_apart else ""
            worlds.setdefault(f"{name} {engine}{replica}", []).append((pid, _coordinates(numbers)))
        for job, places in worlds.items():
            yield from _numbered(engine, job, places)


def _numbered(engine: int, job: str, places: list[tuple[int, tuple[int, ...]]]) -> Iterator[Worker]:
    sizes = [max(column) + 1 for column in zip(*(place for _pid, place in places))]
    world = math.prod(sizes)
    for pid, place in places if 1 < world <= MOST_WORKERS else ():
        rank = 0
        for number, size in zip(place, sizes):
            rank = rank * size + number
        yield Worker(pid=pid, engine=engine, job=job, rank=rank, world=world)


def _title(root: Root, pid: int) -> tuple[str, dict[str, int]] | None:
    """(what it is, {dimension: number}); None for what is no worker's title."""
    found = TITLE.fullmatch(text_if_there(root, f"/proc/{pid}/cmdline", 256).partition("\0")[0])
    if not found:
        return None
    numbers = {name: int(number) for name, number in DIMENSION.findall(found.group(2))}
    return (found.group(1), numbers) if numbers.keys() & set(DIMENSIONS) else None


def _coordinates(numbers: dict[str, int]) -> tuple[int, ...]:
    return tuple(numbers.get(name, 0) for name in DIMENSIONS)


def _engine_of(stats: dict[int, Stat], pid: int) -> int:
    """The next process above that has a title, else the parent: between them may be a fork
    server."""
    above = ancestors(stats, pid)[1:]
    titled = (one for one in above if MARK in stats[one].command)
    return next(titled, above[0] if above else 0)
