"""The result of the module package_change: the plan, the changes made, and the reason if a change
was not made."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .judging import versions_after
from .managers import backend_of
from .values import ChangeResult, PackagePlan, Request, Row


def change_packages(options: Dict[str, Any], check: bool) -> Dict[str, Any]:
    """Carries out a request (options: the keys of Request), unless `check` is set, and returns the
    result with `failed` and `changed`."""
    try:
        plan, result = _run(Request.of_options(options), check)
    except (OSError, ValueError) as problem:
        return {"failed": True, "changed": False, "msg": str(problem)}
    answer = package_result(plan, result, check)
    if plan.refused:
        return dict(
            answer,
            failed=True,
            changed=False,
            msg="refused: " + "; ".join(plan.refused),
            refused=plan.refused,
        )
    if result.stopped_at:
        untouched = result.stopped_at == "fetching"
        message = "nothing was touched: " + result.message if untouched else result.message
        return dict(
            answer,
            failed=True,
            changed=not untouched,
            msg=message,
            stopped_at=result.stopped_at,
            audit=result.audit,
        )
    return dict(answer, failed=False, changed=plan.is_change())


def _run(request: Request, simulates: bool) -> Tuple[PackagePlan, ChangeResult]:
    """Raises OSError, ValueError."""
    backend = backend_of(request.rootfs)
    plan = backend.plan_change(request, not simulates)
    try:
        done = (
            ChangeResult()
            if simulates or plan.refused or not plan.is_change()
            else backend.apply_change(plan)
        )
    finally:
        backend.close_plan(plan)
    return plan, done


def package_result(plan: PackagePlan, result: ChangeResult, simulated: bool) -> Dict[str, Any]:
    """The part of the result that describes the plan, whether or not it was carried out."""
    names = set(plan.request.install) | set(plan.request.expect)
    versions = versions_after(plan.installed, plan.steps)
    answer: Dict[str, Any] = {
        "changes": plan.changes(),
        "offered": plan.offers,
        "fetched": result.fetched,
        "repacked": result.repacked,
        "half_configured": plan.repairs,
        "after": {name: versions.get(name) for name in sorted(names)}
        if simulated or not result.after
        else result.after,
        "waited_for": plan.waited,
        "warnings_of_update": plan.warnings,
        "log": result.log,
        "diff": differences(plan),
    }
    if plan.streams:
        answer["streams"] = {
            module: {"before": before, "after": after}
            for module, (before, after) in plan.streams.items()
        }
    if plan.pin:
        path, before, after = plan.pin
        answer["pin"] = {"file": path, "before": before, "after": after}
    return answer


def differences(plan: PackagePlan) -> List[Row]:
    """The differences for --diff: versions, module streams, the file of pins."""
    rows = plan.changes()
    shown = []
    if rows:
        texts = [
            "".join(f"{row['name']} {row[side] or 'not installed'}\n" for row in rows)
            for side in ("before", "after")
        ]
        shown.append(_difference("packages", *texts))
    if plan.streams:
        texts = [
            "".join(
                f"{module}:{row[at]}\n" for module, row in sorted(plan.streams.items()) if row[at]
            )
            for at in (0, 1)
        ]
        shown.append(_difference("module streams", *texts))
    if plan.pin and plan.writes_pin():
        path, text_before, text_after = plan.pin
        shown.append(_difference(path, text_before or "", text_after or ""))
    return shown


def _difference(title: str, before: str, after: str) -> Row:
    return {"before_header": title, "after_header": title, "before": before, "after": after}
