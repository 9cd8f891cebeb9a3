"""What commands are handed: those that judge a run the wing act and the page, those that plan the
vendor's ticket; each is imported when it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core.run.handed_over import HandedOver


def _page(folder: Path, **parts: Any) -> str:
    from unhang.audit.history.past import node_pasts
    from unhang.audit.report.html import render_html

    return render_html(folder, pasts=node_pasts(folder), **parts)


def _plan(folder: Path) -> dict[str, Any] | None:
    from unhang.act.plan.plan_view import plan_view

    return plan_view(folder)


def _rollout(folder: Path) -> dict[str, Any] | None:
    from unhang.act.rollout.status_view import rollout_view

    return rollout_view(folder)


def _repairs(*given: Any) -> Any:
    from unhang.act.plan.role_coverage import repairs_of_run

    return repairs_of_run(*given)


def keep_ticket(*given: Any) -> Path:
    """As report_ticket.keep_ticket."""
    from unhang.audit.commands.report_ticket import keep_ticket

    return keep_ticket(*given)


HANDED_OVER = HandedOver(_page, _plan, _rollout, _repairs)
