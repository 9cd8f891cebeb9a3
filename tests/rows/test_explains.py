"""`explains` names rules that are there, goes through as many rules as it takes, and never in a
circle."""

from __future__ import annotations

import pytest
from changed_nodes import PLATFORMS, catalogue, changed, found_on_node

from unhang.core.catalogue.explains import circles, explained_by

ROWS = {rule.id: rule.row for rule in catalogue().rules}


def test_what_a_rule_explains_is_followed_through_other_rules():
    rows = {"switch": {"explains": ["manager"]}, "manager": {"explains": ["fabric"]}, "fabric": {}}
    assert explained_by(rows, "switch") == {"manager", "fabric"}
    assert list(circles(rows)) == []


def test_two_rules_that_explain_each_other_are_a_fault():
    rows = {"a": {"explains": ["b"]}, "b": {"explains": ["a"]}}
    assert list(circles(rows)) == [
        "rule a: explains: it explains itself through b",
        "rule b: explains: it explains itself through a",
    ]


def test_one_fault_is_told_by_one_finding_once_those_that_it_explains_are_set_aside():
    """No NVLSM on a B200: fabric manager, fabric and each GPU follow from it."""
    gone = {"packages.installed": [], "fabric_manager.running": False, "fabric_manager.started_s": None, "interconnect.fabric_state": "in_progress",
        "gpus.devices[*].fabric.state": "in_progress"}  # fmt: skip
    shown = {
        rule
        for rule, severity in found_on_node(
            changed(PLATFORMS["b200_infiniband"](), {"facts": gone})
        ).items()
        if severity != "info"
    }
    explained = frozenset().union(*(explained_by(ROWS, rule) for rule in shown))
    assert shown - explained == {"fabric-manager-without-nvlsm"}


UPGRADED = {
    "driver.mismatch": True,
    "driver.userspace.libnvidia_ml.version": "580.178.02",
    "fabric_manager.version": "580.178.02",
}
NO_SUBNET_MANAGER = {"network.rdma[5].ports[0].state": "init", "network.rdma[5].ports[0].sm_lid": 0}
OTHER_MANAGER = {"fabric_manager.version": "580.95.05", "fabric_manager.running": False, "fabric_manager.started_s": None,
    "interconnect.fabric_state": "in_progress",
    "gpus.devices[*].fabric.state": "in_progress"}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "cause", "follows"),
    [
        (UPGRADED, "driver-library-mismatch", "fabric-manager-differs-at-next-start"),
        (OTHER_MANAGER, "fabric-manager-version-differs", "fabric-manager-not-running"),
        (NO_SUBNET_MANAGER, "rdma-port-waits-for-subnet-manager", "rdma-rail-down"),
    ],
)
def test_what_follows_from_another_finding_is_no_cause_with_a_remedy_of_its_own(
    facts, cause, follows
):
    shown = {
        rule
        for rule, severity in found_on_node(
            changed(PLATFORMS["h200_infiniband"](), {"facts": facts})
        ).items()
        if severity != "info"
    }
    assert {cause, follows} <= shown
    assert shown - frozenset().union(*(explained_by(ROWS, rule) for rule in shown)) == {cause}
