"""One verb for each faulty GPU: NVML's recovery action, its row remap and the Xids of the kernel log,
the strongest counts; and the same fault within a day asks for more."""

from __future__ import annotations

import pytest

from unhang.core.catalogue.own_tables import table
from unhang.core.gpu_verbs import AGAIN_S, TABLES, VERBS, gpu_verbs, verb_of_xid
from unhang_node.base.nvml.gpu_fields import RECOVERY_ACTIONS

T = {name: table(name) for name in TABLES}
AT, UUID = "0000:1a:00.0", "GPU-5"
XID_154 = "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x0 (None) to {}"


def device(**more):
    return {
        "index": 3, "uuid": UUID, "pci_address": AT, "error": None, "recovery_action": "none",
        "row_remap": {"pending": False, "failed": False}, "retired_pages": None, **more,
    }  # fmt: skip


def xid(code, **more):
    return {"kind": "xid", "code": code, "count": 1, "pci_address": AT, "line": "", **more}


def reset(*because, verb="reset the GPU", **more):
    row = {"uuid": UUID, "pci_address": AT, "verb": verb, "because": list(because), "age_s": 60}
    return {**row, **more}


def verbs(*events, resets=(), devices=(), **of_device):
    gpus = {"devices": [device(**of_device), *devices]}
    sections = {"gpus": gpus, "faults": {"events": list(events), "resets": list(resets)}}
    return [(one.index, one.verb, one.because) for one in gpu_verbs(sections, T)]


def verb(*events, **more):
    (found,) = verbs(*events, **more)
    return found[1]


def test_a_healthy_gpu_and_one_with_an_xid_that_is_to_be_ignored_need_nothing():
    assert verbs() == []
    assert verbs(xid(43), xid(63), xid(999), xid(1)) == []


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        (13, "restart the job"), (31, "restart the job"), (45, "restart the job"),
        (94, "restart the job"), (48, "reset the GPU"), (64, "reset the GPU"),
        (74, "reset the GPU"), (95, "reset the GPU"), (119, "reset the GPU"),
        (144, "reset the GPU"), (172, "reset the GPU"), (79, "reboot the node"),
        (151, "reboot the node"), (54, "power-cycle"), (165, "replace"),
    ],
)  # fmt: skip
def test_an_xid_asks_for_what_the_catalogue_says(code, needed):
    assert verb(xid(code)) == needed == verb_of_xid(code, T)


@pytest.mark.parametrize(
    ("action", "needed"),
    [
        ("reset", "reset the GPU"), ("drain_and_reset", "reset the GPU"),
        ("reboot", "reboot the node"), ("system_reboot", "reboot the node"),
        ("bus_reset", "reboot the node"), ("drain_p2p", "restart the job"),
    ],
)  # fmt: skip
def test_nvmls_recovery_action_decides_as_well(action, needed):
    assert verb(recovery_action=action) == needed
    assert verbs(recovery_action="none") == verbs(recovery_action=None) == []


def test_a_row_remap_that_is_pending_asks_for_a_reset_and_one_that_failed_for_another_gpu():
    assert verb(row_remap={"pending": True, "failed": False}) == "reset the GPU"
    assert verb(xid(64), row_remap={"pending": True, "failed": True}) == "replace"
    assert verb(retired_pages={"pending": True}) == "reset the GPU"


def test_the_stronger_wins_and_only_its_reasons_are_named():
    assert verbs(xid(31), xid(95), recovery_action="drain_p2p") == [
        (3, "reset the GPU", ("Xid 95",))
    ]
    assert verbs(xid(95), recovery_action="reset") == [
        (3, "reset the GPU", ("NVML's recovery action reset", "Xid 95"))
    ]
    assert verb(xid(95), xid(79)) == "reboot the node"


def test_each_gpu_has_its_own_verb():
    other = device(index=4, uuid="GPU-6", pci_address="0000:1b:00.0")
    found = verbs(xid(95), xid(31, pci_address="0000:1b:00.0"), devices=[other])
    assert [row[:2] for row in found] == [(3, "reset the GPU"), (4, "restart the job")]


def test_a_gpu_that_nvml_does_not_reach_cannot_be_reset():
    assert verb(xid(95, pci_address="0000:ff:00.0")) == "reboot the node"
    assert verb(xid(95), error="NVML_ERROR_GPU_IS_LOST") == "reboot the node"
    assert verb(xid(31, pci_address="0000:ff:00.0")) == "restart the job"


def test_an_xid_154_counts_where_the_driver_does_not_say_its_action_itself():
    line = XID_154.format("0x2 (Node Reboot Required)")
    assert verb(xid(154, line=line), recovery_action=None) == "reboot the node"
    assert verbs(xid(154, line=line), recovery_action="none") == []
    # the kernel log's first line of several does not tell the last action
    assert verbs(xid(154, line=line, count=2), recovery_action=None) == []
    assert verbs(xid(154, line=XID_154.format("0xff")), recovery_action=None) == []


def test_the_same_fault_within_a_day_of_a_reset_asks_for_another_gpu():
    assert verbs(xid(95), resets=[reset("Xid 95")]) == [
        (3, "replace", ("Xid 95", "again within a day of a reset for it"))
    ]
    assert verb(xid(95), resets=[reset("Xid 95", age_s=AGAIN_S - 1)]) == "replace"
    assert verb(xid(79), resets=[reset("Xid 79", verb="reboot the node")]) == "power-cycle"


@pytest.mark.parametrize(
    "row",
    [
        reset("Xid 95", age_s=AGAIN_S), reset("Xid 119"), reset("Xid 95", verb="reboot the node"),
        reset("Xid 95", uuid="GPU-9", pci_address="0000:ff:00.0"), reset(),
    ],
)  # fmt: skip
def test_an_older_reset_or_one_for_another_fault_or_gpu_does_not_count(row):
    assert verb(xid(95), resets=[row]) == "reset the GPU"


def test_the_tables_know_the_same_verbs_and_all_actions_in_nvmls_order():
    assert tuple(T["gpu_verbs"]) == VERBS
    assert tuple(T["recovery_actions"]) == RECOVERY_ACTIONS
    used = {row["verb"] for name in ("recovery_actions", "xid_actions") for row in T[name].values()}
    assert used | {"replace"} == set(VERBS)
    order = VERBS.index
    assert all(order(row["again"]) >= order(one) for one, row in T["gpu_verbs"].items())


def test_each_fatal_xid_asks_for_a_reset_or_more():
    weak = {
        code
        for code in T["xid_levels"]["fatal"]["codes"]
        if VERBS.index(verb_of_xid(code, T)) < VERBS.index("reset the GPU")
    }
    assert weak == set()
