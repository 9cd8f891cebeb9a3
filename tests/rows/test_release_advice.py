"""A release that a row of the tables of faults advises has itself no fault above info that is
certain to show on the same nodes, and a plan proposes that release."""

from __future__ import annotations

import json
import re

import judge_cases
import pytest
from packaging.version import Version

from unhang.act.plan.planning import PlanOptions, plan_run
from unhang.act.plan.role_coverage import repairs_of_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import judge_folder

TABLES = ("nccl_issues", "driver_issues", "software_issues")
NO_CONDITIONS = {
    "id",
    "severity",
    "says",
    "from",
    "below",
    "do",
    "min",
    "sources",
    "confidence",
    "of",
    "names",
    "unless",
    "unless_values",
}
ADVISED = re.compile(r"(\d+\.\d[\d.]*)(?: \([^)]*\))? or newer")


def release(text):
    """A version without the epoch and the suffixes of packages."""
    return Version(re.match(r"[0-9.]*[0-9]", re.sub(r"^\d+:", "", str(text))).group())


def is_certain(other, row):
    """Whether a fault shows on each node on which the row's fault shows, if the release has it."""
    for name, wanted in other.items():
        if name in NO_CONDITIONS or not wanted:
            continue
        had = row.get(name)
        if not (
            had and set(had) <= set(wanted) if isinstance(wanted, (list, tuple)) else had == wanted
        ):
            return False
    return True


def advised_faults(row, rows):
    """Ids of the faults above info of the release that a row advises."""
    if not (advised := ADVISED.search(row["do"])):
        return []
    target = release(advised[1])
    of_same = [
        other
        for other in rows
        if other is not row and all(other.get(name) == row.get(name) for name in ("of", "names"))
    ]
    return [
        other["says"]
        for other in of_same
        if other["severity"] != "info"
        and is_certain(other, row)
        and release(other["from"]) <= target < release(other["below"])
    ]


@pytest.mark.parametrize("table", TABLES)
def test_no_row_advises_a_release_that_has_an_open_fault_of_its_own(table):
    rows = load_catalogue().tables[table]
    assert {
        key: faults
        for key, row in rows.items()
        if (faults := advised_faults(row, list(rows.values())))
    } == {}


def test_a_row_that_advises_a_faulty_release_is_seen():
    old = {"severity": "error", "says": "old", "from": "1.0", "below": "1.2", "do": "1.2 or newer"}
    new = {
        "severity": "warning",
        "says": "new",
        "from": "1.2",
        "below": "1.4",
        "do": "1.4 or newer",
    }
    assert advised_faults(old, [old, new]) == ["new"]
    assert advised_faults(old, [old, {**new, "models": ["GB200"]}]) == []
    assert advised_faults(
        {**old, "models": ["GB200"]}, [{**new, "models": ["GB200", "GB300"]}]
    ) == ["new"]


OK = {"probe": {"status": "ok"}}
PACKAGED = {"path": "/usr/lib/libnccl.so.2", "package": "libnccl2", "version": "2.17.1"}
WHEEL = {**PACKAGED, "package": None}


@pytest.mark.parametrize(
    ("libraries", "value", "proposes"),
    [
        ((PACKAGED, WHEEL), "1", True),
        ((WHEEL,), "1", False),
        ((WHEEL, {**PACKAGED, "version": "2.30.7"}), "1", False),
        ((PACKAGED,), "0", False),
        (({**PACKAGED, "version": "2.18.3"},), "1", False),
    ],
)
def test_a_plan_brings_a_package_and_nothing_else_to_the_release_that_the_row_advises(
    tmp_path, libraries, value, proposes
):
    rows = load_catalogue().tables["nccl_issues"]
    wanted = rows["collnet-hangs-and-corrupts"]
    setting = {"name": wanted["setting"], "value": value}
    nccl = {**OK, "libraries": libraries, "settings": [setting]}
    run = judge_cases.write_run(
        tmp_path / "run", judge_cases.node("gpu1", {"gpus": {**OK, "count": 8}, "nccl": nccl})
    )
    judge_folder(run, [], None, "2026-11-20", repairs=repairs_of_run)
    hosts = plan_run(run, load_catalogue(), PlanOptions()).hosts
    proposed = [one.policy["nccl"] for host in hosts for one in host.remedies]
    assert proposed == [{"min": wanted["min"]}] * proposes
    assert not any(host.refused for host in hosts)
    causes = json.loads((run / "findings.json").read_text())["causes"]
    told = [one["remedy"] for one in causes if one["rule"] == "nccl-release-has-fault"]
    assert [one["policy"] for one in told] == [{"nccl": one} for one in proposed] or not proposes
    assert advised_faults({**wanted, "do": f"{wanted['min']} or newer"}, list(rows.values())) == []
