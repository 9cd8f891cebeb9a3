"""The rollout of a run's plan, on the page of that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import read_plan
from unhang.act.rollout.journal import JOURNAL, read_journal
from unhang.act.rollout.status import status_of, step_now, undo_command
from unhang.act.rollout.status_table import (
    LONGEST_LIST,
    ORDER,
    describe_fleet,
    describe_head,
    describe_waves,
    versions_of,
)
from unhang.act.rollout.undone import undone_of
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.project import program_as_typed
from unhang.core.run.own_runs import is_own


def rollout_view(folder: Path) -> dict[str, Any] | None:
    """{fault, fleet: lines, waves: lines, rows} for the page's template; None if no rollout has
    begun. fault: why it is not shown, and then all of the view, else ""."""
    if not (folder / JOURNAL).is_file():
        return None
    try:
        plan = read_plan(folder)
        undo = "" if plan.undoes else undo_command(program_as_typed(), plan.run.id)
        status = status_of(
            plan,
            read_journal(folder),
            undo,
            is_own=is_own(folder),
            undone=undone_of(folder, plan.run.id),
        )
    except UserError as problem:
        return {"fault": str(problem)}
    fleet = [*describe_head(status), *describe_fleet(status)]
    return {
        "fault": "",
        "fleet": fleet,
        "waves": describe_waves(status),
        "rows": describe_rows(status["hosts"]),
    }


def describe_rows(hosts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows of the table, equal nodes folded, the worst state first.

    {state, meaning, why, now, versions, gone, left, undone, boots, alone, bandwidth, next, hosts,
    undo}. now: the current step; alone, bandwidth: results of the smoke tests; undo: the command
    for one node.
    """
    folded: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in sorted(hosts, key=lambda one: ORDER.index(one["state"])):
        folded.setdefault(tuple(_shown(row).values()), []).append(row)
    return [
        {
            **_shown(alike[0]),
            "hosts": shortened(fold_hosts(one["host"] for one in alike), LONGEST_LIST),
            "undo": alike[0]["undo"],
        }
        for alike in folded.values()
    ]


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    """The row of one node, without its name."""
    return {
        **{name: row[name] for name in ("state", "meaning", "why", "next")},
        "now": step_now(row),
        "versions": versions_of(row),
        "gone": ", ".join(row["gone"]),
        "left": ", ".join(row["left"]),
        "undone": row["undone"],
        "boots": ", ".join(boot.partition(",")[0] for boot in row["boots"]),
        "alone": _rates(row["bandwidth_alone"]),
        "bandwidth": _rates(row["bandwidth"]),
    }


def _rates(measured: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{one['op']} {one['busbw_gb_s']:.1f} GB/s at {one['size_bytes']:,} bytes"
        for one in measured
    )
