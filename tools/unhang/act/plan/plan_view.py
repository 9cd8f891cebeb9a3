"""The plan on the page of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.act.plan.description import (
    describe_limits,
    describe_persons,
    describe_refusals,
    describe_totals,
    describe_waves,
)
from unhang.act.plan.plan_document import FILE, read_plan
from unhang.core.errors import UserError


def plan_view(folder: Path) -> dict[str, Any] | None:
    """{fault, limits, totals, waves, refused, person} for the page's template; None if the run has
    no plan. fault: why its plan is not shown, and then all of the view, else ""."""
    if not (folder / FILE).is_file():
        return None
    try:
        plan = read_plan(folder)
    except UserError as problem:
        return {"fault": str(problem)}
    return {
        "fault": "",
        "limits": describe_limits(plan),
        "totals": f"Of findings judged on {plan.day}: {describe_totals(plan)}",
        "waves": describe_waves(plan),
        "refused": describe_refusals(plan),
        "person": describe_persons(plan),
    }
