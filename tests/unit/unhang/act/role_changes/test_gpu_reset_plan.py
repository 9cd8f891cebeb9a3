"""Plans of the role gpu_reset: which GPUs, alone or all together, a boot instead, and refusals."""

from __future__ import annotations

import pytest
from case_rows import case_rows
from driver_cases import JOB, case

from unhang.act.role_changes.gpu_reset_plan import needs_whole, plan_gpu_reset

ROWS = case_rows(__file__)

UUID = "GPU-00000005-0000-4000-8000-000000000000"
AT = "0000:1a:00.0"


def inputs(*codes, users=None, previews=False, architecture="hopper", **changes):
    device = {
        "index": 3, "uuid": UUID, "pci_address": AT, "minor": 3, "architecture": architecture,
        "recovery_action": "none", "processes": [], "mig": {"enabled": False},
    }  # fmt: skip
    other = {**device, "index": 4, "uuid": "GPU-other", "pci_address": "0000:1b:00.0", "minor": 4}
    events = [
        {"kind": "xid", "code": code, "count": 1, "pci_address": AT, "line": ""} for code in codes
    ]
    facts = {
        "gpus.devices": [device, other],
        "faults": {"events": events, "resets": []},
        "fabric_manager": {"nvswitch_present": True, "running": True},
        "interconnect": {"by_gpu": [{"uuid": UUID, "nvlinks_active": 18}]},
        **{path.replace("__", "."): value for path, value in changes.items()},
    }
    return case({}, facts, {}, users, previews=previews)


def plan(*codes, pending="", **more):
    return plan_gpu_reset(inputs(*codes, **more), pending)


def refused(*codes, **more):
    return [one["id"] for one in plan(*codes, **more)["refusals"]]


def test_a_healthy_node_is_left_alone_and_an_application_error_too():
    empty = {"gpus": [], "whole": False, "reboot": "", "refusals": [], "notes": []}
    assert plan() == empty
    assert plan(31)["gpus"] == []
    assert "restart the job" in plan(31)["notes"][0]


def test_the_faulty_gpu_alone_is_reset_for_its_fault():
    found = plan(95)
    assert found["gpus"] == [
        {"uuid": UUID, "pci_address": AT, "verb": "reset the GPU", "because": ["Xid 95"]}
    ]
    assert (found["whole"], found["reboot"], found["refusals"]) == (False, "", [])


def test_a_gpu_that_needs_a_boot_and_a_boot_that_is_due_take_the_place_of_a_reset():
    found = plan(79)
    assert found["reboot"] == f"reboot the node: GPU 3 ({UUID}, {AT}), for Xid 79"
    assert found["gpus"][0]["verb"] == "reboot the node"
    assert plan(95, pending="the new driver is loaded")["reboot"]
    # whoever uses the GPUs is asked before the boot, by the frame
    assert refused(79, users={"processes": [JOB]}) == []


def test_a_gpu_to_replace_is_not_reset_and_the_ticket_is_named():
    again = [{"uuid": UUID, "pci_address": AT, "verb": "reset the GPU", "because": ["Xid 95"],
              "age_s": 60}]  # fmt: skip
    events = [{"kind": "xid", "code": 95, "count": 1, "pci_address": AT, "line": ""}]
    found = plan(faults={"events": events, "resets": again})
    assert found["gpus"] == []
    assert found["notes"][0].startswith("not done by this role: replace: GPU 3")
    assert found["notes"][0].endswith("unhang report -o ticket writes the vendor's ticket")


def test_it_is_refused_while_anybody_holds_a_gpu_and_a_preview_says_so():
    assert refused(95, users={"processes": [JOB]}) == ["in-use"]
    hidden = {
        "index": 3, "uuid": UUID, "pci_address": AT, "architecture": "hopper",
        "processes": [{"pid": 4242}],
    }  # fmt: skip
    found = plan(95, gpus__devices=[hidden])
    assert "process 4242 on GPU 3, by NVML" in found["refusals"][0]["text"]
    foretold = plan(95, users={"processes": [JOB]}, previews=True)
    assert foretold["refusals"] == []
    assert any(note.startswith("refused as long as it is so") for note in foretold["notes"])


def test_services_alone_do_not_refuse_it():
    service = {**JOB, "service": "nvidia-dcgm.service"}
    assert refused(95, users={"processes": [service]}) == []


def test_a_gpu_in_mig_mode_is_refused():
    on = {"index": 3, "uuid": UUID, "pci_address": AT, "mig": {"enabled": True}}
    assert refused(95, gpus__devices=[on]) == ["mig"]


@pytest.mark.parametrize(
    ("changes", "whole"),
    ROWS["test_the_board_decides_whether_all_gpus_are_reset_together"],
)
def test_the_board_decides_whether_all_gpus_are_reset_together(changes, whole):
    assert needs_whole(inputs(95, **changes)) is whole
    assert refused(95, **changes) == (["links-unknown"] if whole is None else [])
