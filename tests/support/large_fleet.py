"""A large invented fleet for the page: groups and racks, drivers of several versions, links down,
nodes that do not answer, idle workstations."""

from __future__ import annotations

from typing import Any

import fleets

RACK = 40


def fleet(count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(findings, node documents); about one node in eleven has a fault, some of them critical."""
    hosts = [f"gpu{number:05d}" for number in range(count)]
    nodes = [_node(number, host) for number, host in enumerate(hosts)]
    found = [one for number, host in enumerate(hosts) for one in _found(number, host)]
    dead = sum(number % 97 == 5 for number in range(count))
    return fleets.document(
        found, {"ok": count - dead, "unreachable": dead}, passed=count * 200
    ), nodes


def _node(number: int, host: str) -> dict[str, Any]:
    groups = [
        "all",
        "gpu",
        "workstations" if number % 10 == 9 else "production",
        f"rack{number // RACK:03d}",
    ]
    if number % 97 == 5:
        return fleets.node(
            host, groups, None, "unreachable", "ssh: connect to host: No route to host"
        )
    facts = fleets.h200(active={number % 8: 17} if number % 53 == 7 else None)
    facts["driver"]["loaded"]["version"] = "545.23.08" if number % 211 == 3 else "580.159.04"
    return fleets.node(host, groups, facts)


def _found(number: int, host: str) -> list[dict[str, Any]]:
    made = []
    if number % 97 == 5:
        made.append(
            fleets.finding(
                "node-unreachable",
                host,
                "error",
                "The node could not be reached",
                "an answer",
                "No route to host",
            )
        )
    elif number % 211 == 3:
        remedy = {"role": "gpu_driver", "policy": {"driver": {"version": "580.159.04"}}}
        title = "Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs"
        made.append(
            fleets.finding(
                "driver-545-23-08-p2p-deadlock",
                host,
                "critical",
                title,
                "a driver that is known good",
                "545.23.08",
                remedy=remedy,
            )
        )
    elif number % 53 == 7:
        where, path = {"index": number % 8}, f"interconnect.by_gpu[{number % 8}].nvlinks_active"
        title, found = "Some NVLinks are inactive", f"GPU {number % 8} has 17 of 18 NVLinks active"
        look = {
            "person": "reset the GPU with no job on it; if the link stays down, replace the board"
        }
        made.append(
            fleets.finding(
                "nvlink-some-inactive",
                host,
                "error",
                title,
                "18",
                found,
                where=where,
                remedy=look,
                evidence=[{"path": path, "value": 17}],
            )
        )
    if number % 10 == 9 and number % 20 == 9:
        made.append(
            fleets.finding(
                "remove-ipc-on",
                host,
                "warning",
                "logind removes shared memory of users who are not logged in",
                "no",
                "yes",
            )
        )
    if number % 3 == 0 and number % 97 != 5:
        made.append(
            fleets.finding("persistence-off", host, "info", "Persistence mode is off", "on", "off")
        )
    return made
