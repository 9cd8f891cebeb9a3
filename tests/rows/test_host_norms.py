"""Each harmful setting, driver parameter and kernel parameter is found on a healthy node to which
it is added."""

from __future__ import annotations

import pytest
from changed_nodes import catalogue, changed, view
from healthy_platforms import PLATFORMS

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world

TABLES = {
    "setting_norms": "setting-",
    "driver_parameter_norms": "driver-parameter-",
    "boot_parameter_norms": "boot-parameter-",
}
ROWS = [(table, key) for table in TABLES for key in catalogue().tables[table]]
"""Every row of the tables of norms."""


def node_of(row):
    if "sxm" not in row.get("forms", ()) and (
        "nvl72" in row.get("forms", ()) or "aarch64" in row.get("processors", ())
    ):
        return PLATFORMS["gb200_nvl72"]()
    if "efa" in row.get("network", ()):
        return PLATFORMS["p5_efa"]()
    if "pcie" in row.get("forms", ()) and "sxm" not in row["forms"]:
        return PLATFORMS["l40s_ethernet"]()
    return PLATFORMS["h100_infiniband"]()


def harmed(table, row):
    """The healthy node with the fault of a row."""
    node = node_of(row)
    if table == "setting_norms":
        return changed(node, {"settings": {row["setting"]: next(iter(row["values"]), "another")}})
    if table == "driver_parameter_norms":
        return changed(node, {"facts": {f"driver.parameters.{row['parameter']}": "another"}})
    return changed(
        node, {"facts": {"kernel.cmdline": f"ro quiet iommu=pt {row['parameters'][-1]}"}}
    )


def shown(document, table):
    """Keys of the rows that a rule of this table finds on a document."""
    world = node_world(
        NodeView("node1", ("training",), {}, "ok", "", "", to_fragment(document["sections"])),
        view(),
    )
    rules = [
        rule
        for rule in catalogue().rules
        if rule.id.startswith(TABLES[table]) and f"tables.{table} " in rule.row.get("for_each", "")
    ]
    return {
        one.item.rpartition(".")[2]
        for rule in rules
        for one in judge_rule(rule, world)
        if one.verdict == "fail"
    }


@pytest.mark.parametrize(("table", "key"), ROWS)
def test_harm_is_found_where_it_is_and_nowhere_else(table, key):
    row = catalogue().tables[table][key]
    assert key in shown(harmed(table, row), table)
    assert shown(node_of(row), table) == set()
