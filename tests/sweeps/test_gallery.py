"""The gallery of health: on machines without a fault the audit says nothing above info but what
stands on their list, and that is little."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from changed_nodes import catalogue, found_on_node, schema_faults, view
from gallery import alarms, applies_to, changed, read_gallery

from unhang_node.facts.parse.addresses import shared_subnets

MACHINES = {machine.name: machine for machine in read_gallery()}
MOST_ABOVE_INFO = 0.5  # rules a machine, on average


def above_info(document):
    return {rule for rule, severity in found_on_node(document).items() if severity != "info"}


def test_gallery_has_at_least_forty_machines():
    assert len(MACHINES) >= 40


@pytest.mark.parametrize("name", MACHINES)
def test_document_is_such_as_the_collector_gives(name):
    assert schema_faults(MACHINES[name].document) == []


@pytest.mark.parametrize("name", MACHINES)
def test_only_what_stands_on_the_list_is_above_info(name):
    """A rule that is on the list and silent is a fault too: its reason no longer holds."""
    assert above_info(MACHINES[name].document) == set(MACHINES[name].above_info)


@pytest.mark.parametrize("name", MACHINES)
def test_shared_subnets_are_those_that_the_collector_would_give(name):
    network = MACHINES[name].document["sections"]["network"]
    assert network["shared_subnets"] == shared_subnets(network["interfaces"])


def test_machines_have_few_findings_above_info():
    listed = [rule for machine in MACHINES.values() for rule in machine.above_info]
    assert len(listed) <= MOST_ABOVE_INFO * len(MACHINES)


def test_every_finding_on_the_list_has_a_reason_that_begins_with_right():
    assert [
        name
        for name, machine in MACHINES.items()
        if not all(reason.startswith("right: ") for reason in machine.above_info.values())
    ] == []


def test_a_fault_is_found_on_every_machine():
    """The tests above can fail."""
    for machine in MACHINES.values():
        document = copy.deepcopy(machine.document)
        document["sections"]["kernel"].update(reboot_required=True, reboot_reasons=["linux-image"])
        assert "kernel-reboot-required" in above_info(document), machine.name


def test_repeated_items_are_written_out_with_their_number():
    made = changed(
        {"sections": {"node": {"disks": []}}},
        {
            "filled": {
                "node.disks": {
                    "repeat": 2,
                    "item": {"name": "nvme{n}"},
                    "vary": {"state": ["live", "dead"]},
                }
            }
        },
    )
    assert made["sections"]["node"]["disks"] == [
        {"name": "nvme0", "state": "live"},
        {"name": "nvme1", "state": "dead"},
    ]


def test_a_change_that_nobody_knows_is_refused():
    with pytest.raises(KeyError, match="colour"):
        changed({"sections": {}}, {"colour": {}})


def rule(name):
    return next(one for one in catalogue().rules if one.id == name)


def test_a_rule_names_the_healthy_machines_that_it_was_tried_on():
    """A rule about RoCE ports decides nothing on a machine without a network card for RDMA."""
    tried = applies_to(rule("nccl-2-26-2-slow-on-roce"), list(MACHINES.values()), view())
    assert "l40s_roce_nccl_2_27" in tried
    assert "desktop_3090" not in tried


def test_a_rule_that_cries_on_a_healthy_machine_is_an_alarm_where_it_is_not_listed():
    machines = list(MACHINES.values())
    assert alarms(rule("remove-ipc-on"), machines, view()) == []
    unlisted = [dataclasses.replace(machine, above_info={}) for machine in machines]
    assert "dgx_h100_535" in alarms(rule("remove-ipc-on"), unlisted, view())
