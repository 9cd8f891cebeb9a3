"""A look at a running job in the short form `unhang/evidence-short/1`. Documents in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waited_rows import groups_of
from unhang.jobs.inspect.first_screen import certainty_of, screen_of


def short_form(inspection: Mapping[str, Any]) -> dict[str, Any]:
    """What render_short_evidence() cuts and prints."""
    screen = screen_of(inspection)
    waited = inspection.get("waited_for")
    certainty = certainty_of(inspection) or None
    return {
        "by": "inspect",
        "verdict": {
            "word": inspection["state"],
            "headline": inspection["headline"],
            "certainty": certainty,
        },
        "waited_for": waited,
        "groups": groups_of(waited),
        "primary": [
            {**_unplaced(one["why"]), "rank": one["rank"], "host": one["host"]}
            for one in inspection["suspects"]
        ],
        "consequences": list(_waiting(inspection)),
        "causes": [
            {
                "cause": one["cause"],
                "title": one["why"],
                "certainty": "possible" if one["blind"] else certainty or "possible",
                "owner": None,
                "where": [part for part in (one["host"], one["gpu"]) if part],
                "lines": [],
                "remedy": one["next"],
            }
            for one in inspection["suspects"]
        ],
        "next": {
            "host": screen.next_host or None,
            "command": screen.next_command,
            "tells": screen.next_tells,
        },
        "facts": list(_facts(inspection)),
        "read": [
            {"what": row["host"], "kind": "look at a node", "lines": None}
            for row in inspection["hosts"]
            if not row["problem"]
        ],
        "not_read": [
            *(
                {"what": f"{row['what']} on {', '.join(row['hosts'])}",
                 "why": f"{row['status']}: {row['why']}"}
                for row in inspection["unread"]
            ),
            *(
                {"what": row["host"], "why": row["problem"]}
                for row in inspection["hosts"]
                if row["problem"]
            ),
        ],
    }  # fmt: skip


def _waiting(inspection: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Ranks that stand where nobody is accused, those of one place as one."""
    accused = {(one["host"], one["rank"]) for one in inspection["suspects"]}
    places: dict[tuple[str, str], list[int]] = {}
    for row in inspection["ranks"]:
        if row["rank"] is not None and row["where"] and (row["host"], row["rank"]) not in accused:
            places.setdefault((row["activity"] or "", row["where"]), []).append(row["rank"])
    for (activity, where), ranks in places.items() if accused else ():
        text = f"ranks {fold_ranks(ranks)}: {activity} in {where}"
        yield {**_unplaced(text), "rank": None, "host": None}


def _unplaced(text: str) -> dict[str, Any]:
    """What was seen, and stands in no file."""
    return {"text": text, "file": None, "line": None}


def _facts(inspection: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ranks = [row["rank"] for row in inspection["ranks"] if row["rank"] is not None]
    ras = inspection["ras"]
    for name, value in (
        ("world size", inspection["world_size"]),
        ("ranks seen", fold_ranks(ranks)),
        ("NCCL", ras["version"] if ras else None),
        ("shown to stand by", ", ".join(inspection["sources"]["stands"])),
        ("shown to work by", ", ".join(inspection["sources"]["works"])),
    ):
        if value:
            yield {"name": name, "value": str(value), "file": None, "line": None}
