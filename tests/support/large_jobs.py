"""The evidence of a job over many nodes, made from a recorded look at two ranks: as many documents
as nodes, and RAS's answer for all of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

RECORDED = (
    Path(__file__).resolve().parents[1]
    / "fixtures"
    / "inspect"
    / "evidence"
    / "never-RAS-and-stacks.json"
)
FIRST_PID = 5000


def large_job(nodes: int, per_node: int, late: int) -> list[dict[str, Any]]:
    """One document for each node. late: the rank that sleeps and never launched what all others
    wait in. Process ids are alike on all nodes, as they are where nodes boot alike."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    looks = [
        _whole_world(look, nodes, per_node, late) for look in recorded["sections"]["ras"]["looks"]
    ]
    return [_node(recorded, looks, number, nodes, per_node, late) for number in range(nodes)]


def _whole_world(look: dict[str, Any], nodes: int, per_node: int, late: int) -> dict[str, Any]:
    [one] = look["communicators"]
    world = nodes * per_node
    waiting, behind = (group["ops"] for group in one["counts"])
    members = [
        [
            rank,
            f"10.0.{rank // per_node // 250}.{rank // per_node % 250 + 1}",
            FIRST_PID + rank % per_node,
            rank % per_node,
        ]
        for rank in range(world)
    ]
    counts = [
        {"ranks": [rank for rank in range(world) if rank != late], "ops": waiting},
        {"ranks": [late], "ops": behind},
    ]
    return {**look, "communicators": [{**one, "size": world, "members": members, "counts": counts}]}


def _node(
    recorded: dict[str, Any],
    looks: list[dict[str, Any]],
    number: int,
    nodes: int,
    per_node: int,
    late: int,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        name: copy.deepcopy(value)
        for name, value in recorded.items()
        if name not in ("ranks", "sections")
    }
    sections = copy.deepcopy(recorded["sections"])
    document.update(ranks=[], sections=sections, asked_as=f"gpu{number + 1:03d}")
    sections["ras"]["looks"] = looks
    lists = {
        ("proc", "ranks_1"): [],
        ("proc", "ranks_2"): [],
        ("stacks", "processes"): [],
        ("stacks", "processes_2"): [],
        ("sockets", "ranks"): [],
    }
    for local in range(per_node):
        rank, pid = number * per_node + local, FIRST_PID + local
        [like] = [row for row in recorded["ranks"] if row["rank"] == int(rank == late)]
        document["ranks"].append(
            {
                **like,
                "rank": rank,
                "local_rank": local,
                "world_size": nodes * per_node,
                "pid": pid,
                "own_pid": pid,
            }
        )
        for (name, key), found in lists.items():
            found += [
                {**row, "pid": pid, **({"of": pid} if "of" in row else {})}
                for row in recorded["sections"][name].get(key, [])
                if row["pid"] == like["pid"]
            ]
    for (name, key), found in lists.items():
        sections[name][key] = found
    for number_of_look in (1, 2):
        gpu = sections["nvml"][f"gpus_{number_of_look}"][0]
        sections["nvml"][f"gpus_{number_of_look}"] = [
            {**gpu, "index": local, "processes": [[FIRST_PID + local, 990]]}
            for local in range(per_node)
        ]
        sections["proc"][f"log_bytes_{number_of_look}"] = [None] * per_node
    return document
