"""What the wing act hands to the commands of the audit; it is imported when it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core.run.from_act import FromAct


def _plan(folder: Path) -> dict[str, Any] | None:
    from unhang.act.plan.plan_view import plan_view

    return plan_view(folder)


def _rollout(folder: Path) -> dict[str, Any] | None:
    from unhang.act.rollout.status_view import rollout_view

    return rollout_view(folder)


def _repairs(*given: Any) -> Any:
    from unhang.act.plan.role_coverage import repairs_of_run

    return repairs_of_run(*given)


FROM_ACT = FromAct(_plan, _rollout, _repairs)
