"""What the page of a run shows of the rollout of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.errors import UserError
from unhang.nodeset import fold_hosts, shortened
from unhang.plan.plan_document import read_plan
from unhang.project import playbook_as_typed
from unhang.rollout.journal import JOURNAL, read_journal
from unhang.rollout.status import status_of, undo_command
from unhang.rollout.status_table import LONGEST_LIST, ORDER, describe_fleet
from unhang.run_folder import read_run


def rollout_view(folder: Path) -> dict[str, Any] | None:
    """{fault, fleet: lines, rows} for the page's template; None where no rollout has begun. fault: why it is not shown, else ""."""
    if not (folder / JOURNAL).is_file():
        return None
    try:
        status = status_of(read_plan(folder), read_journal(folder), undo_command(playbook_as_typed("rollback"), inventories_of_run(folder)))
    except UserError as problem:
        return {"fault": str(problem).partition(": ")[2] or str(problem), "fleet": [], "rows": []}
    return {"fault": "", "fleet": describe_fleet(status), "rows": describe_rows(status["hosts"])}


def describe_rows(hosts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows of the table, equal nodes folded, the worst state first: {state, meaning, hosts, versions, gone, left, before, bandwidth, undo}.

    before: of the smoke test before the change; undo: one node's.
    """
    folded: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in sorted(hosts, key=lambda one: ORDER.index(one["state"])):
        versions = "; ".join(f"{role} {before} -> {row['wanted'].get(role, 'as it was')}" for role, before in row["before"].items()) if row["gone"] else ""
        busbw = "; ".join(f"{one['op']} {one['busbw_gb_s']:.1f} GB/s at {one['size_bytes']:,} bytes" for one in row["bandwidth"])
        rates = "; ".join(f"{one['op']} {one['busbw_gb_s']:.1f} GB/s at {one['size_bytes']:,} bytes" for one in row["smoke_before"]["bandwidth"])
        before = "; ".join(filter(None, (row["smoke_before"]["why"], rates)))
        shown = (row["state"], row["meaning"], row["why"], versions, ", ".join(row["gone"]), ", ".join(row["left"]), before, busbw)
        folded.setdefault(shown, []).append(row)
    names = ("state", "meaning", "why", "versions", "gone", "left", "before", "bandwidth")
    return [
        {**dict(zip(names, shown, strict=True)), "hosts": shortened(fold_hosts(one["host"] for one in alike), LONGEST_LIST), "undo": alike[0]["undo"]}
        for shown, alike in folded.items()
    ]


def inventories_of_run(folder: Path) -> list[str]:
    """Those that the run was made with. Raises UserError."""
    given = read_run(folder).document.get("inventory") or []
    return [str(one) for one in (given if isinstance(given, list) else [given])]
