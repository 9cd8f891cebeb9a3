"""What `inspect --slow` reads of a node, with the numbers of a scene."""

from __future__ import annotations

from typing import Any

PROBE = {"status": "ok", "duration_ms": 1.0, "error": None, "unread": []}


def document(
    behind=(0, 0), power=(690, 690), clock=(1500, 1500), busy=(99, 99), memory=(20, 20), cores=1.0
) -> dict[str, Any]:
    """What a node says of a job whose ranks have a GPU each. behind: the looks of each rank, each
    at a count of its own."""
    count = len(behind)
    pids = [100 + rank for rank in range(count)]
    sections: dict[str, Any] = {"ranks": {"probe": PROBE}}
    sections["proc"] = {
        "probe": PROBE,
        **{
            f"ranks_{number}": [{"pid": pid, "state": "R", "cpu_s": 1.0 * number} for pid in pids]
            for number in (1, 2)
        },
    }
    sections["pace"] = {
        "probe": PROBE,
        "seconds": 10.0, "looks": 50, "answered": 50, "why": None, "version": "2.28.9",
        "form": "json",
        "communicators": [
            {
                "hash": "0xa", "size": count, "launched": 500, "total": 900, "missing": 0,
                "ranks": [
                    [rank, "n1", pids[rank], rank, looks, looks, int(looks > 0)]
                    for rank, looks in enumerate(behind)
                ],
            }
        ],
        "ranks": [
            {"pid": pid, "cpu_cores": cores if rank == 1 else 1.0, "run_queue": 0.0}
            for rank, pid in enumerate(pids)
        ],
        "gpus": [
            {
                "index": rank, "name": "NVIDIA H200", "looks": 50, "power_w": power[rank],
                "clock_sm_mhz": clock[rank], "utilization_percent": busy[rank],
                "memory_activity_percent": memory[rank], "throttle": {"sw_power_cap": 50},
                "processes": [[pids[rank], pids[rank], "python"]],
            }
            for rank in range(count)
        ],
    }  # fmt: skip
    return {
        "schema": "unhang/evidence/1",
        "collector": {
            "version": "0", "host": "n1", "collected_at": "2026-01-01T00:00:00Z",
            "duration_ms": 1.0, "as_root": True, "cut": [],
        },
        "ranks": [
            {
                "rank": rank, "local_rank": rank, "world_size": count, "pid": pid, "own_pid": pid,
                "started": 1, "user": "u", "command": "python", "launcher": "torchrun",
                "framework": "torch", "libraries": [], "container": None, "job": "j",
                "settings": {},
            }
            for rank, pid in enumerate(pids)
        ],
        "sections": sections,
    }  # fmt: skip


def of_ranks(count: int, **values: dict[int, float]) -> dict[str, Any]:
    """A healthy job of so many ranks, but for these values of these ranks."""
    usual = {"behind": 1, "power": 690, "clock": 1500, "busy": 99, "memory": 20}
    return document(
        **{
            name: tuple(values.get(name, {}).get(rank, value) for rank in range(count))
            for name, value in usual.items()
        }
    )


def pace_of(found: dict[str, Any]) -> dict[str, Any]:
    return found["sections"]["pace"]


def checkpoint(evidence: dict[str, Any], looks: int) -> None:
    """Lets rank 0 be behind in one wait of so many looks."""
    pace_of(evidence)["communicators"][0]["ranks"][0][4:] = [looks, 1, looks]
