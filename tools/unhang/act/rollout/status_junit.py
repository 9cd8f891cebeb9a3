"""A rollout as JUnit: one test case for each node, which passes if the node is proved healthy and
released, or drained by others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.act.rollout.bandwidth import describe_before, rates_of
from unhang.act.rollout.status import PROVED_HEALTHY, UNDONE
from unhang.act.rollout.steps import FINAL
from unhang.core.junit import Case, Outcome, render_suite


def render_status_junit(status: Mapping[str, Any]) -> str:
    """One suite. A node that ended unproved is a failure; a node without a verdict is an error,
    because a skipped test case would look good."""
    return render_suite("unhang rollout", map(_case, status["hosts"]))


def _case(row: Mapping[str, Any]) -> Case:
    outcome = None
    if row["state"] not in PROVED_HEALTHY:
        lines = ["; ".join(filter(None, (row["why"], row["next"])))]
        outcome = Outcome(
            "failure" if row["state"] in (*FINAL, UNDONE) else "error",
            row["meaning"],
            lines,
            row["state"],
        )
    return Case(
        f"unhang.rollout.{row['wave'].replace(' ', '-')}", row["host"], outcome, _evidence(row)
    )


def _evidence(row: Mapping[str, Any]) -> list[str]:
    """Before and after, one line each."""
    rows = [(f"before {role}", version) for role, version in row["before"].items()]
    rows += [(f"running {name}", version) for name, version in row["running"].items()]
    rows += [(name, ", ".join(row[name])) for name in ("found", "gone", "left", "boots")]
    rows += [("smoke test before the change", describe_before(row))]
    for name, when in (("before", ", alone before the change"), ("alone", ", alone"), ("last", "")):
        rows += [
            (
                f"busbw {one['op']} at {one['size_bytes']} bytes{when}",
                f"{one['busbw_gb_s']:.1f} GB/s",
            )
            for one in rates_of(row)[name]
        ]
    return [f"{name}: {text}" for name, text in (*rows, ("undo", row["undo"])) if text]
