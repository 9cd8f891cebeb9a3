"""Faults on healthy machines of the gallery are found by the rule and with the severity beside
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_nodes import found_on_node, schema_faults
from gallery import changed, read_gallery

from unhang.core.strict_yaml import load_yaml

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
MACHINES = {machine.name: machine.document for machine in read_gallery()}
ROWS = load_yaml(FIXTURES / "incidents" / "gallery_faults.yml")[0]


def faulty(row):
    return changed(
        MACHINES[row["machine"]], {"filled": row.get("facts", {}), "drop": row.get("drop", {})}
    )


@pytest.mark.parametrize("row", ROWS["faults"], ids=lambda row: f"{row['machine']}: {row['name']}")
def test_fault_is_found_with_its_severity(row):
    document = faulty(row)
    assert schema_faults(document) == []
    assert found_on_node(document).get(row["found_by"]) == row.get("now", row["severity"])
    assert row["found_by"] not in found_on_node(MACHINES[row["machine"]])


@pytest.mark.parametrize("row", ROWS["healthy"], ids=lambda row: f"{row['machine']}: {row['name']}")
def test_what_is_no_fault_is_no_finding(row):
    document = faulty(row)
    assert schema_faults(document) == []
    assert set(row["silent"]) & set(found_on_node(document)) == set()
