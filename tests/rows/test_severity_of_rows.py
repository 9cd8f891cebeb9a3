"""A rule may take the severity of each finding from a table, or choose one of two by a condition:
never a word of a node, and never another than the four."""

from __future__ import annotations

import pytest

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import judge_rule, node_world
from unhang.judge.rules.rules import RuleError, compile_rule

CATALOGUE = load_catalogue()
ROW = {
    "id": "own", "title": "Own", "scope": "node", "for_each": "tables.kernel_issues | values",
    "when": "item.build in kernel.release",
    "severity": "item.severity", "expected": "x", "found": "y", "remedy": {"person": "look"},
    "sources": [], "confidence": "reported",
}  # fmt: skip


def compiled(**change):
    return compile_rule({**ROW, **change}, CATALOGUE.tables)


def test_a_rule_counts_as_the_most_severe_of_its_rows():
    assert compiled().severity == "error"
    assert compiled(severity="info").severity_of is None


@pytest.mark.parametrize(
    "change",
    [
        {"severity": "eror"},
        {"severity": "item.id"},
        {"severity": "kernel.release"},
        {"severity": "faults.events[0].severity"},
        {"for_each": "faults.events", "when": "item.count > 0"},
        {"for_each": "unlike", "when": "item.others > 0", "severity": "item.value"},
        {"severity": "'error' if item.build == 'x' else item.severity"},
    ],
)
def test_what_is_no_column_of_severities_in_a_table_is_refused(change):
    with pytest.raises(RuleError) as refused:
        compiled(**change)
    assert refused.value.field == "severity"


def test_each_finding_has_the_severity_of_its_own_row():
    rule = next(one for one in CATALOGUE.rules if one.id == "kernel-message-of-fault")
    events = [
        {"kind": "other", "subject": name, "count": 1, "line": "x", "pci_address": None}
        for name in ("neighbour-table", "nfs-server", "memory-corrected")
    ]
    node = example_node({"faults": {"events": events}})
    judged = judge_rule(rule, node_world(node, catalogue_view(CATALOGUE.tables)))
    assert [one.severity for one in judged if one.verdict == "fail"] == ["error", "warning", "info"]


LINK = {"kind": "link_down", "subject": "ib0", "line": "x", "pci_address": "0000:5e:00.0"}
CARD = {"network": {"rdma": [{"name": "mlx5_3", "pci_address": "0000:5e:00.0"}]}}


def flapping(count, *, first_s, last_s, uptime_s=1_440_000.0):
    event = {**LINK, "count": count, "first_s": first_s, "last_s": last_s}
    return {"node": {"uptime_s": uptime_s}, "faults": {"events": [event]}, **CARD}


def lanes(width_now, model):
    pcie = {"width_now": width_now, "width_max": 16}
    gpus = [{"index": 0, "model": model, "pcie": pcie}, {"index": 1, "model": model, "pcie": pcie}]
    return {"node": {"virtualization": {"is_vm": False}}, "gpus": {"devices": gpus}}


def cpus(limit_mhz):
    frequency = {"max_mhz": 3800, "limit_mhz": limit_mhz}
    return {"gpus": {"count": 8}, "node": {"cpu": {"frequency": frequency}}}


def huge_pages(total):
    memory = {"node": {"memory_total_bytes": 2164135034880}, "limits": {"hugepages_total": total}}
    return {"gpus": {"count": 8}, **memory}


def mig(slurm):
    devices = [{"index": one, "mig": {"enabled": one == 1}} for one in range(2)]
    return {"gpus": {"count": 2, "devices": devices}, "node": {"slurm": slurm}}


@pytest.mark.parametrize(
    ("rule", "facts", "severity"),
    [
        ("cpu-frequency-limited", cpus(800), "error"),
        ("cpu-frequency-limited", cpus(2400), "warning"),
        ("pcie-width-below-max", lanes(4, "NVIDIA L40S"), "error"),
        ("pcie-width-below-max", lanes(8, "NVIDIA L40S"), "warning"),
        ("pcie-width-below-max", lanes(4, "NVIDIA GeForce RTX 4090"), "warning"),
        ("hugepages-hold-the-memory", huge_pages(921600), "error"),
        ("hugepages-hold-the-memory", huge_pages(600000), "warning"),
        ("gpu-mig-on-some", mig({"config": {"gpus": 2}}), "error"),
        ("gpu-mig-on-some", mig({"config": {"gpus": 8}}), "info"),
        ("gpu-mig-on-some", mig(None), "info"),
        ("network-link-went-down", flapping(141, first_s=1.29e6, last_s=1.43e6), "error"),
        # a switch was repaired in an hour; a link that went down seven times in half a month
        ("network-link-went-down", flapping(141, first_s=1.43e6, last_s=1.432e6), "warning"),
        ("network-link-went-down", flapping(7, first_s=1e5, last_s=1.43e6), "warning"),
    ],
)
def test_a_fact_that_proves_the_cost_makes_an_error_of_a_warning(rule, facts, severity):
    row = next(one for one in CATALOGUE.rules if one.id == rule)
    judged = judge_rule(row, node_world(example_node(facts), catalogue_view(CATALOGUE.tables)))
    assert {one.severity for one in judged if one.verdict == "fail"} == {severity}


def test_the_milder_severity_holds_where_the_condition_is_not_known():
    row = next(one for one in CATALOGUE.rules if one.id == "network-link-went-down")
    facts = flapping(141, first_s=1.29e6, last_s=1.43e6)
    del facts["network"]
    judged = judge_rule(row, node_world(example_node(facts), catalogue_view(CATALOGUE.tables)))
    assert [one.severity for one in judged] == ["warning"]
    assert row.severity == "error"
