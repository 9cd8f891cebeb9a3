"""Minimal rules and run folders for the judge's tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from unhang_node.base.version import VERSION

OK = {"status": "ok"}


def rule(when: str = "gpus.count == 0", **more: Any) -> dict[str, Any]:
    """A row that follows the schema."""
    row = {
        "id": "a-rule", "title": "A rule", "severity": "error", "scope": "node", "when": when,
        "expected": "something", "found": "something else",
        "remedy": {"person": "look"}, "sources": [{"url": "https://example.org/", "says": "so"}],
        "confidence": "documented",
        "examples": {"match": [{}], "near_miss": [{}]},
    }  # fmt: skip
    row.update(more)
    return {key: value for key, value in row.items() if value is not None}


def write_rules(folder: Path, *rows: dict[str, Any], name: str = "own.yml") -> Path:
    """A folder with one file of rules."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(
        yaml.safe_dump({"rules": list(rows)}, sort_keys=False), encoding="utf-8"
    )
    return folder


def sections(
    driver: str | None = "535.154.05", width: int | None = 16, **more: Any
) -> dict[str, Any]:
    """Facts of a node with two GPUs."""
    devices = [
        {
            "index": number,
            "uuid": f"GPU-{number}",
            "pci_address": f"0000:0{number}:00.0",
            "pcie": {"width_now": width, "width_max": 16},
        }
        for number in range(2)
    ]
    return {
        "driver": {"probe": OK, "loaded": {"is_loaded": True, "version": driver}},
        "gpus": {"probe": OK, "count": 2, "model": "NVIDIA RTX 3090", "devices": devices},
        "kernel": {"probe": OK, "release": "6.8.0-45-generic"},
        **more,
    }


def node(host: str, facts: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A node file."""
    document = {
        "schema": "unhang/node-facts/1",
        "collector": {"version": VERSION},
        "sections": sections() if facts is None else facts,
    }
    return {
        "schema": "unhang/node/1", "host": host, "groups": ["all", "gpu"], "policy": {},
        "status": "ok", "message": None, "facts": document, **more,
    }  # fmt: skip


def write_run(folder: Path, *nodes: dict[str, Any], meant: list[str] | None = None) -> Path:
    """A run folder with these node files."""
    (folder / "nodes").mkdir(parents=True)
    hosts = [one["host"] for one in nodes] if meant is None else meant
    run = {
        "schema": "unhang/run/1",
        "id": "r1",
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:01:00Z",
        "hosts": hosts,
    }
    (folder / "run.json").write_text(json.dumps(run))
    for one in nodes:
        (folder / "nodes" / f"{one['host']}.json").write_text(json.dumps(one))
    return folder
