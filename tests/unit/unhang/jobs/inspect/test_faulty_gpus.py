"""The verdict of a look names what a faulty GPU of the job's nodes needs: by the Xids since the job
began and by NVML's recovery action."""

from __future__ import annotations

import copy
import json

import pytest
from inspected import EVIDENCE, inspection_of

from unhang.core.schemas.check import check_schema

NEVER = json.loads((EVIDENCE / "never-RAS-and-stacks.json").read_text(encoding="utf-8"))
AT, UUID = "0000:3b:00.0", "GPU-00000002-0000-4000-8000-000000000000"
LINE = "NVRM: Xid (PCI:0000:3b:00): {}, pid=508"


def look(*codes, action="none", last_s=1e9, devices=True):
    document = copy.deepcopy(NEVER)
    document["sections"].pop("nvml", None)
    document["sections"]["kernel_log"] = {
        "probe": NEVER["sections"]["ranks"]["probe"],
        "events": [
            {
                "kind": "xid", "code": code, "pci_address": AT, "count": 1,
                "line": LINE.format(code), "first_s": last_s, "last_s": last_s,
            }
            for code in codes
        ],
    }  # fmt: skip
    gpu = {"index": 2, "uuid": UUID, "pci_address": AT, "recovery_action": action}
    if devices:
        document["sections"].setdefault("nvml", {"probe": NEVER["sections"]["ranks"]["probe"]})
        document["sections"]["nvml"]["gpus_1"] = [gpu]
    found = inspection_of([document])
    assert list(check_schema(found, "inspection-1")) == []
    return found


def needs(found):
    return [(row["gpu"], row["verb"], row["because"]) for row in found["gpus"]]


def test_a_look_at_a_healthy_gpu_names_none():
    found = look()
    assert found["gpus"] == []
    assert "asks to" not in found["suspects"][0]["why"]


@pytest.mark.parametrize(
    ("codes", "action", "verb", "because", "clue"),
    [
        ((95,), "none", "reset the GPU", ["Xid 95"], "reset the GPU, for Xid 95"),
        ((31,), "none", "restart the job", ["Xid 31"], "restart the job, for Xid 31"),
        ((79,), "none", "reboot the node", ["Xid 79"], "reboot the node, for Xid 79"),
        ((54,), "none", "power-cycle", ["Xid 54"], "power-cycle its node, for Xid 54"),
        (
            (31,), "reset", "reset the GPU", ["NVML's recovery action reset"],
            "reset the GPU, for NVML's recovery action reset",
        ),
    ],
)  # fmt: skip
def test_the_verdict_says_what_the_gpu_needs_and_for_what(codes, action, verb, because, clue):
    found = look(*codes, action=action)
    assert needs(found) == [(2, verb, because)]
    assert f"likely: GPU 2 ({UUID}, {AT}) asks to {clue}" in found["suspects"][0]["why"]


def test_what_a_node_says_instead_of_a_fault_or_an_action_is_left_out():
    assert look("79")["gpus"] == look(action=[])["gpus"] == []


def test_an_xid_from_before_the_job_says_nothing():
    assert look(95, last_s=0.0)["gpus"] == []


def test_without_nvml_the_xid_alone_decides():
    found = look(95, devices=False)
    assert [(row["gpu"], row["pci_address"]) for row in found["gpus"]] == [(None, AT)]
    # NVML was not asked: nobody knows that the GPU cannot be reset
    assert found["gpus"][0]["verb"] == "reset the GPU"
