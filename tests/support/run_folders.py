"""Small run folders, as the audit and the judge write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unhang_node.base.version import VERSION

READ, NOT_READ = "ok", "unreachable"
EMPTY_VERDICTS: dict[str, list[str]] = {
    "critical": [],
    "error": [],
    "warning": [],
    "unread": [],
    "healthy": [],
}


def facts(driver="535.154.05", kernel="6.8.0-45-generic", **more):
    """Sections of a node that has a driver and a kernel."""
    return {
        "driver": {"probe": {"status": "ok", "duration_ms": 3}, "loaded": {"version": driver}},
        "kernel": {"probe": {"status": "ok"}, "release": kernel},
        **more,
    }


def finding(rule, host=None, *, verdict="fail", severity="error", where=None, found="no", **more):
    """One finding."""
    return {
        "rule": rule, "title": f"What {rule} says", "severity": severity, "scope": "node",
        "verdict": verdict, "host": host, "where": where or {},
        "expected": "yes", "found": found, **more,
    }  # fmt: skip


class Fleet:
    """Writes one run after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0

    def run(
        self,
        nodes: dict[str, Any],
        findings=None,
        *,
        limit=None,
        rules=("bad", "worse", "group-differs"),
        smoke=None,
        day=20,
        unread=(),
        inventory="i",
    ) -> Path:
        """nodes: host -> its sections, or the status of one that was not read. findings None: not
        judged. smoke: host -> busbw."""
        self.number += 1
        folder = self.folder / "runs" / f"202611{day:02d}T{self.number:06d}Z-run{self.number}"
        (folder / "nodes").mkdir(parents=True)
        started = f"2026-11-{day:02d}T{self.number // 60:02d}:{self.number % 60:02d}:00Z"
        run = {
            "schema": "unhang/run/1",
            "id": folder.name,
            "started": started,
            "finished": started,
            "hosts": list(nodes),
            "limit": limit,
        }
        run["inventory"] = [inventory]
        write(folder / "run.json", run)
        for host, sections in nodes.items():
            read = not isinstance(sections, str)
            node = {
                "schema": "unhang/node/1",
                "host": host,
                "groups": [],
                "policy": {},
                "status": READ if read else sections,
                "message": None,
            }
            node["facts"] = (
                {
                    "schema": "unhang/node-facts/1",
                    "collector": {"version": VERSION},
                    "sections": sections,
                }
                if read
                else None
            )
            write(folder / "nodes" / f"{host}.json", node)
        if findings is not None:
            verdicts = {
                **EMPTY_VERDICTS,
                "unread": [*(host for host, one in nodes.items() if isinstance(one, str)), *unread],
            }
            head = {
                "schema": "unhang/findings/1",
                "run": {
                    "id": folder.name,
                    "started": started,
                    "finished": started,
                    "judged": f"2026-11-{day:02d}",
                },
            }
            judged = {
                "totals_by_rule": {rule: {} for rule in rules},
                "node_verdicts": verdicts,
                "catalogue": {"stopped": []},
            }
            write(folder / "findings.json", {**head, **judged, "findings": findings})
        if smoke is not None:
            rows = {
                host: [{"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": busbw}]
                for host, busbw in smoke.items()
            }
            write(
                folder / "gate.json",
                {
                    "smoke": {
                        "alone": {
                            host: {"world_size": 8, "bandwidth": row} for host, row in rows.items()
                        },
                        "together": None,
                    }
                },
            )
        return folder


def write(path: Path, document: Any) -> None:
    """Reads a JSON file."""
    path.write_text(json.dumps(document), encoding="utf-8")
