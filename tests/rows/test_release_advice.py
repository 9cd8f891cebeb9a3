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
from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.triage.run_judging import judge_folder

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


@pytest.mark.parametrize("table", TABLES)
def test_a_plan_proposes_the_release_that_the_row_advises(table):
    rows = load_catalogue().tables[table].values()
    proposing = [row for row in rows if row.get("min")]
    assert [row["min"] for row in proposing] == [
        advised[1] for row in proposing if (advised := ADVISED.search(row["do"]))
    ]


OK = {"probe": {"status": "ok"}}
COLLNET = {
    "name": "NCCL_COLLNET_ENABLE",
    "file": "/etc/nccl.conf",
    "line": 1,
    "source": "nccl_conf",
}
PACKAGED = {"path": "/usr/lib/libnccl.so.2", "package": "libnccl2", "version": "2.17.1"}
WHEEL = {"path": "/opt/train/libnccl.so.2", "package": None, "version": "2.17.1"}


def plan_of(folder, **sections):
    """(the plan's remedies: role -> its policy, the findings) of one node."""
    facts = {"gpus": {**OK, "count": 8, "model": "NVIDIA A100-SXM4-80GB"}, **sections}
    node = judge_cases.node("gpu1", {name: {**OK, **part} for name, part in facts.items()})
    judge_cases.write_run(folder, node)
    judge_folder(folder, [], None, "2026-11-20", repairs=repairs_of_run)
    hosts = plan_run(folder, load_catalogue(), PlanOptions()).hosts
    roles = {one.role: one.policy for host in hosts for one in host.remedies}
    return roles, json.loads((folder / "findings.json").read_text())


def nccl(*libraries, value="1"):
    return {"libraries": list(libraries), "settings": [{**COLLNET, "value": value}]}


def test_a_plan_brings_a_package_to_a_release_without_the_row_s_fault(tmp_path):
    roles, found = plan_of(tmp_path / "run", nccl=nccl(PACKAGED, WHEEL))
    wanted = roles["nccl_profile"]["nccl"]["min"]
    rows = load_catalogue().tables["nccl_issues"]
    row = rows["collnet-hangs-and-corrupts"]
    assert Version(wanted) >= Version(row["below"])
    assert advised_faults({**row, "do": f"NCCL {wanted} or newer"}, list(rows.values())) == []
    (cause,) = [one for one in found["causes"] if one["rule"] == "nccl-release-has-fault"]
    assert (cause["remedy"]["role"], cause["remedy"]["policy"]) == (
        "nccl_profile", {"nccl": {"min": wanted}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("libraries", "value", "fails"),
    [
        ((WHEEL,), "1", True),
        ((WHEEL, {**PACKAGED, "version": "2.30.7"}), "1", True),
        ((WHEEL, {**PACKAGED, "package": None}), "1", True),
        ((PACKAGED,), "0", False),
        (({**PACKAGED, "version": "2.18.3"},), "1", False),
    ],
    ids=["of a wheel", "the package is another", "no package", "CollNet is off", "repaired"],
)
def test_a_plan_exchanges_no_package_that_has_not_the_row_s_fault(
    tmp_path, libraries, value, fails
):
    roles, found = plan_of(tmp_path / "run", nccl=nccl(*libraries, value=value))
    assert "nccl_profile" not in roles
    about = [
        one["remedy"].keys()
        for one in found["findings"]
        if one["verdict"] == "fail"
        and str(one["where"].get("path")).endswith(".collnet-hangs-and-corrupts")
    ]
    assert about == [{"role", "person"}] * fails
