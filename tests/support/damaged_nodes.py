"""Facts of recorded nodes with some of them damaged, the same damage for the same number."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from healthy_nodes import h100_infiniband

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@cache
def recorded_nodes() -> tuple[dict[str, Any], ...]:
    """Facts of three nodes, in every section."""
    recorded = [
        json.loads((FIXTURES / name).read_bytes())
        for name in ("h200x8/facts.json", "h200x1/node.json")
    ]
    return (h100_infiniband(), *(one.get("facts", one) for one in recorded))


def _places(value: Any, found: list, path: tuple = ()) -> list:
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        found.append((value, key, path))
        _places(value[key], found, (*path, key))
    return found


def damaged(number: int) -> dict[str, Any]:
    """Sections of a recorded node with some values null, some numbers and texts changed, and
    reasons for some of the nulls."""
    noise = random.Random(number)
    facts = copy.deepcopy(noise.choice(recorded_nodes()))
    sections = facts["sections"]
    names = [
        noise.choice(("gpus", "gpus", "limits", "node", "driver", "interconnect", "kernel"))
        for _ in range(2)
    ]
    for name in names:
        places = [
            one
            for one in _places(sections[name], [])
            if "probe" not in one[2] and one[1] not in ("probe", "path")
        ]
        for holder, key, path in noise.sample(places, min(len(places), noise.choice((1, 3, 12)))):
            _damage(noise, holder, key)
            if noise.random() < 0.3:
                rows = sections[name]["probe"].get("unread") or []
                dotted = "".join(
                    f"[{'*' if noise.random() < 0.5 else one}]"
                    if isinstance(one, int)
                    else f".{one}"
                    for one in (*path, key)
                )
                rows.append(
                    {
                        "field": dotted.lstrip("."),
                        "status": noise.choice(("absent", "denied", "error")),
                        "reason": "so",
                    }
                )
                sections[name]["probe"]["unread"] = rows
    return facts


def _damage(noise: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(value, bool) and noise.random() < 0.6:
        holder[key] = not value
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and noise.random() < 0.6:
        holder[key] = noise.choice((0, 1, value * 2, 100, 10**7, 5_200_000))
    elif isinstance(value, str) and noise.random() < 0.4:
        holder[key] = noise.choice(
            ("open", "hopper", "other", "NVIDIA H100 80GB HBM3", "580.10", "completed")
        )
    elif isinstance(value, list) and value and noise.random() < 0.6:
        holder[key] = noise.choice((value[:1], value * 2, [], value * 80))
    else:
        holder[key] = None
