"""What the module package_change answers: the plan, what was done, and why not."""

from __future__ import annotations

from . import change, dnf_run
from .change import NOTHING, changes_of, close_plan, is_change
from .dnf import is_rpm_node
from .judging import versions_after


def change_packages(options, check):
    """The answer to a request (change.DEFAULTS has its keys), with everything done unless `check` or simulate_only. Holds `failed` and `changed`."""
    looks_only = check or bool(options.get("simulate_only"))
    try:
        plan, done = _settle(options, looks_only)
    except (OSError, ValueError) as problem:
        return {"failed": True, "changed": False, "msg": str(problem)}
    answer = answer_of(plan, done, looks_only)
    if plan.refused:
        return dict(answer, failed=True, changed=False, msg="refused: " + "; ".join(plan.refused), refused=plan.refused)
    if done.stopped_at:
        untouched = done.stopped_at == "fetching"
        msg = "nothing was touched: " + done.said if untouched else done.said
        return dict(answer, failed=True, changed=not untouched, msg=msg, stopped_at=done.stopped_at, audit=done.audit)
    return dict(answer, failed=False, changed=is_change(plan) and not options.get("simulate_only"))


def _settle(options, looks_only):
    """(Plan, Done). Raises OSError, ValueError."""
    manager = dnf_run if is_rpm_node(options.get("rootfs") or "/") else change
    plan = manager.plan_change(options, writes=not looks_only)
    try:
        done = NOTHING if looks_only or plan.refused or not is_change(plan) else manager.apply_change(plan)
    finally:
        if manager is change:
            close_plan(plan)
    return plan, done


def answer_of(plan, done, foretold):
    """What is told of a plan, whatever became of it."""
    names = set(plan.request["install"]) | set(plan.request["expect"])
    versions = versions_after(plan.installed, plan.steps)
    answer = {
        "changes": changes_of(plan),
        "offered": plan.offers,
        "fetched": done.fetched,
        "repacked": done.repacked,
        "half_configured": plan.repairs,
        "after": {name: versions.get(name) for name in sorted(names)} if foretold or not done.after else done.after,
        "waited_for": plan.waited,
        "warnings_of_update": plan.warnings,
        "log": done.log,
        "diff": differences(plan),
    }
    if plan.streams:
        answer["streams"] = {module: {"before": before, "after": after} for module, (before, after) in plan.streams.items()}
    if plan.pin:
        path, before, after = plan.pin
        answer["pin"] = {"file": path, "before": before, "after": after}
    return answer


def differences(plan):
    """What --diff shows: versions, then the file of pins."""
    rows = changes_of(plan)
    shown = [{"before_header": "packages", "after_header": "packages"}] if rows else []
    for side in ("before", "after") if rows else ():
        shown[0][side] = "".join("{} {}\n".format(row["name"], row[side] or "not installed") for row in rows)
    if plan.streams:
        texts = ["".join("{}:{}\n".format(module, row[at]) for module, row in sorted(plan.streams.items()) if row[at]) for at in (0, 1)]
        shown.append({"before_header": "module streams", "after_header": "module streams", "before": texts[0], "after": texts[1]})
    if plan.pin and plan.pin[1] != plan.pin[2]:
        path, before, after = plan.pin
        shown.append({"before_header": path, "after_header": path, "before": before or "", "after": after or ""})
    return shown
