"""The verdict on a running job as a table. Text from nodes is cleaned first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.text import ascii_only, counted, listed, visible
from unhang.core.verdict.rendering import fold_ranks, render_suspects
from unhang.jobs.inspect.verdict import HUNG, RUNNING, UNKNOWN

MOST_ROWS = 16


def render_inspection(inspection: Mapping[str, Any], plain: bool = False) -> str:
    """One screen: where the ranks stand, what could not be read, then the suspects and the verdict,
    where a terminal leaves the eye."""
    hosts = [row["host"] for row in inspection["hosts"]]
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    lines = [f"{_how_many(inspection)} on {visible(', '.join(map(str, hosts[:8])))}{more}"]
    lines += [
        f"{visible(row['host'])}: {visible(row['problem'])}"
        for row in inspection["hosts"]
        if row["problem"]
    ]
    lines += (
        _ras(inspection) + _ranks(inspection) + _unread(inspection) + render_suspects(inspection)
    )
    word = (
        inspection["state"]
        if inspection["state"] in (HUNG, UNKNOWN, RUNNING)
        else f"not hung so far, {inspection['state']}"
    )
    lines += ["", f"{word}: {visible(inspection['headline'], 1500)}"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return ascii_only(text) if plain else text


def _how_many(inspection: Mapping[str, Any]) -> str:
    """2 ranks; 1 of 2 ranks; 1 process without a rank."""
    ranks, world = (
        sum(row["rank"] is not None for row in inspection["ranks"]),
        inspection["world_size"] or 0,
    )
    if inspection["ranks"] and not ranks:
        return f"{counted(len(inspection['ranks']), 'process', 'processes')} without a rank"
    return f"{ranks} of {counted(world, 'rank')}" if ranks < world else counted(ranks, "rank")


def _ras(inspection: Mapping[str, Any]) -> list[str]:
    row = inspection["ras"]
    if row is None:
        return []
    moved = {
        True: "collectives were launched between the looks",
        False: "no collective was launched between the looks",
        None: "one look alone",
    }[row["moved"]]
    return [f"NCCL {visible(row['version'])} answers for {counted(row['ranks'], 'rank')}: {moved}"]


def _ranks(inspection: Mapping[str, Any]) -> list[str]:
    """Ranks that stand at the same place in one line; a process without a rank by its number."""
    places: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in inspection["ranks"]:
        where = row["where"] or f"state {row['state']}"
        places.setdefault((str(row["activity"] or ""), where, str(row["state"])), []).append(row)
    lines = [
        f"  {_named(standing):<14} {visible(state, 20):<5} {activity:<11} {visible(where, 200)}"
        for (activity, where, state), standing in list(places.items())[:MOST_ROWS]
    ]
    if len(places) > MOST_ROWS:
        lines.append(f"  and {counted(len(places) - MOST_ROWS, 'more place')}; -o json has them")
    return ["", f"  {'rank':<14} {'state':<5} {'doing':<11} where", *lines] if lines else []


def _named(standing: Sequence[Mapping[str, Any]]) -> str:
    ranks = [row["rank"] for row in standing if row["rank"] is not None]
    pids = [str(row["pid"]) for row in standing if row["rank"] is None]
    return ", ".join(
        [*([fold_ranks(ranks)] if ranks else []), *([f"pid {listed(pids, 3)}"] if pids else [])]
    )


def _unread(inspection: Mapping[str, Any]) -> list[str]:
    lines = []
    for row in inspection["unread"]:
        hosts = visible(", ".join(map(str, row["hosts"][:4]))) + (
            f" and {len(row['hosts']) - 4} more" if len(row["hosts"]) > 4 else ""
        )
        lines.append(
            f"  {row['what']} on {hosts}: {visible(row['status'], 40)}, {visible(row['why'], 300)}"
        )
        lines += [f"    would help: {visible(row['helps'], 300)}"] if row["helps"] else []
    return ["", "not read:", *lines] if lines else []
