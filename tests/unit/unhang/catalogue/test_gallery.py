"""The gallery of health: on machines without a fault the audit says nothing above info but what stands on their list, and that is little."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from changed_nodes import found_on_node, schema_faults

from unhang.audit.judge.gallery import changed, read_gallery

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "gallery"
MACHINES = {machine.name: machine for machine in read_gallery(FOLDER)}
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


def test_machines_have_few_findings_above_info():
    listed = [rule for machine in MACHINES.values() for rule in machine.above_info]
    assert len(listed) <= MOST_ABOVE_INFO * len(MACHINES)


def test_every_finding_on_the_list_has_a_reason_that_begins_with_right():
    assert [name for name, machine in MACHINES.items() if not all(reason.startswith("right: ") for reason in machine.above_info.values())] == []


def test_a_fault_is_found_on_every_machine():
    """The tests above can fail."""
    for machine in MACHINES.values():
        document = copy.deepcopy(machine.document)
        document["sections"]["kernel"].update(reboot_required=True, reboot_reasons=["linux-image"])
        assert "kernel-reboot-required" in above_info(document), machine.name


def test_repeated_items_are_written_out_with_their_number():
    made = changed(
        {"sections": {"node": {"disks": []}}}, {"filled": {"node.disks": {"repeat": 2, "item": {"name": "nvme{n}"}, "vary": {"state": ["live", "dead"]}}}}
    )
    assert made["sections"]["node"]["disks"] == [{"name": "nvme0", "state": "live"}, {"name": "nvme1", "state": "dead"}]


def test_a_change_that_nobody_knows_is_refused():
    with pytest.raises(KeyError, match="colour"):
        changed({"sections": {}}, {"colour": {}})
