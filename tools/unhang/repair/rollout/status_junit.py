"""A rollout as JUnit: one test case for each node, which passes if the node is proved healthy and released, or drained by others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from unhang.base.text import visible
from unhang.repair.rollout.bandwidth import describe_before, rates_of
from unhang.repair.rollout.status import PROVED_HEALTHY
from unhang.repair.rollout.steps import FINAL

LONGEST = 4000


def render_status_junit(status: Mapping[str, Any]) -> str:
    """One suite. A node that ended unproved is a failure; a node without a verdict is an error, because a skipped test case would look good."""
    suite = ElementTree.Element("testsuite", name="unhang rollout", tests=str(len(status["hosts"])))
    for row in status["hosts"]:
        case = ElementTree.SubElement(suite, "testcase", classname=f"unhang.rollout.{row['wave'].replace(' ', '-')}", name=visible(row["host"], 1024))
        if row["state"] not in PROVED_HEALTHY:
            kind = "failure" if row["state"] in FINAL else "error"
            element = ElementTree.SubElement(case, kind, type=row["state"], message=visible(row["meaning"], 300))
            element.text = visible("; ".join(filter(None, (row["why"], row["next"]))), LONGEST)
        ElementTree.SubElement(case, "system-out").text = "\n".join(_evidence(row))
    for name, kind in (("failures", "failure"), ("errors", "error")):
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _evidence(row: Mapping[str, Any]) -> list[str]:
    """Before and after, one line each."""
    rows = [(f"before {role}", version) for role, version in row["before"].items()]
    rows += [(f"running {name}", version) for name, version in row["running"].items()]
    rows += [(name, ", ".join(row[name])) for name in ("found", "gone", "left", "boots")]
    rows += [("smoke test before the change", describe_before(row))]
    for name, when in (("before", ", alone before the change"), ("alone", ", alone"), ("last", "")):
        rows += [(f"busbw {one['op']} at {one['size_bytes']} bytes{when}", f"{one['busbw_gb_s']:.1f} GB/s") for one in rates_of(row)[name]]
    return [f"{name}: {visible(text, LONGEST)}" for name, text in (*rows, ("undo", row["undo"])) if text]
