"""Resets of faulty GPUs: what is refused, what is recorded, and which Xids a reset settles."""

from __future__ import annotations

import json

import pytest

from unhang_node.change.gpu.exchange_steps import RESET_ENDED, reset_steps_of
from unhang_node.change.gpu.resets import DAY_S, log_end_s, refuse_again, uuids_to_reset
from unhang_node.facts.parse.gpu_resets import MOST, parse_gpu_resets, without_settled

UUID, OTHER = (f"GPU-0000000{number}-0000-4000-8000-000000000000" for number in (5, 6))
AT = "0000:1a:00.0"
UNITS = ("nvidia-persistenced.service", "nvidia-dcgm.service", "nvidia-fabricmanager.service")


def gpu(*because, verb="reset the GPU", uuid=UUID, address=AT):
    return {"uuid": uuid, "pci_address": address, "verb": verb, "because": list(because)}


def row(*because, at=1000.0, log_s=50.0, boot_id="b", **more):
    return {**gpu(*because, **more), "at": at, "log_s": log_s, "boot_id": boot_id}


def event(last_s, kind="xid", address=AT):
    return {"kind": kind, "pci_address": address, "last_s": last_s}


def test_one_gpu_is_reset_with_its_services_stopped_and_fabric_manager_runs_on():
    assert [step.line() for step in reset_steps_of(UNITS, [UUID, OTHER])] == [
        "systemctl stop nvidia-dcgm.service",
        "systemctl stop nvidia-persistenced.service",
        f"nvidia-smi --gpu-reset -i {UUID},{OTHER}",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-dcgm.service",
    ]
    assert [step.line() for step in reset_steps_of((), ())] == ["nvidia-smi -r"]


@pytest.mark.parametrize(
    ("last", "wanted_s"),
    [
        (["[86400.250000] NVRM: GPU at PCI:0000:1a:00", "systemctl start x"], 86400.25),
        (["dmesg: read kernel buffer failed: Operation not permitted"], 86399.5),
        (["systemctl start nvidia-dcgm.service"], 86399.5),
        ([], 86399.5),
    ],
)
def test_the_log_ends_for_a_reset_before_the_services_start(last, wanted_s):
    assert log_end_s(["nvidia-smi -r", RESET_ENDED, "86399.50 1.00", *last]) == wanted_s


@pytest.mark.parametrize("uuid", [None, "", "3", "GPU-1; reboot", f"{UUID},{OTHER}", "-i"])
def test_nothing_but_a_uuid_comes_to_the_command(uuid):
    with pytest.raises(ValueError, match="is not the UUID of a GPU"):
        uuids_to_reset([gpu("Xid 95", uuid=uuid)])


def test_a_boot_resets_all_so_that_none_is_reset_before_it():
    boot = gpu("Xid 79", verb="reboot the node", uuid=None)
    assert uuids_to_reset([gpu("Xid 95"), boot]) == []
    assert uuids_to_reset([gpu("Xid 95"), gpu("Xid 64", uuid=OTHER)]) == [UUID, OTHER]


def test_the_same_fault_is_not_treated_twice_within_a_day():
    with pytest.raises(ValueError, match=r"only 2 hours ago for Xid 95; have the GPU"):
        refuse_again([gpu("Xid 95", "Xid 48")], [row("Xid 95")], 1000.0 + 7200)
    with pytest.raises(ValueError, match="have the GPU replaced"):
        refuse_again([gpu("Xid 95")], [row("Xid 95")], 0.0)  # the clock was set back
    with pytest.raises(ValueError, match="have the GPU replaced"):
        refuse_again([gpu("Xid 95", uuid=None)], [row("Xid 95")], 1001.0)


@pytest.mark.parametrize(
    ("known", "now"),
    [
        (row("Xid 95"), 1000.0 + DAY_S), (row("Xid 64"), 1001.0),
        (row("Xid 95", uuid=OTHER, address="0000:1b:00.0"), 1001.0),
        (row("Xid 95", verb="reboot the node"), 1001.0),
        (row("Xid 95", uuid=None, address=None), 1001.0),
    ],
)  # fmt: skip
def test_another_day_fault_gpu_or_treatment_is_no_repetition(known, now):
    refuse_again([gpu("Xid 95")], [known], now)


def test_xids_before_the_last_reset_of_their_gpu_are_settled_and_no_others():
    events = [
        event(50.0), event(50.1), event(None), event(10.0, address="0000:1b:00.0"),
        event(10.0, kind="aer"), event(20.0),
    ]  # fmt: skip
    assert without_settled(events, [row("Xid 95")], "b") == events[1:5]
    twice = [row("Xid 95", at=2000.0, log_s=15.0), row("Xid 95", at=1000.0, log_s=50.0)]
    assert without_settled(events, twice, "b") == events  # the newest counts


@pytest.mark.parametrize("known", [row("Xid 95", log_s=None), row("Xid 95", boot_id="earlier")])
def test_a_reset_that_did_not_end_and_one_of_an_earlier_boot_settle_nothing(known):
    assert without_settled([event(10.0)], [known], "b") == [event(10.0)]
    assert without_settled([event(10.0)], [row("Xid 95", boot_id=None)], None) == [event(10.0)]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"resets": 1}', '{"resets": [1, {}, {"verb": 1}]}', "[" * 10_000],
)
def test_a_broken_record_holds_nothing(text):
    assert parse_gpu_resets(text) == []


def test_a_record_is_read_row_by_row_and_no_longer_than_it_may_be():
    good = row("Xid 95")
    bad = [{**good, "at": "x"}, {**good, "at": True}, {**good, "because": "Xid 95"}]
    assert parse_gpu_resets(json.dumps({"resets": [*bad, good]})) == [good]
    assert len(parse_gpu_resets(json.dumps({"resets": [good] * (MOST + 9)}))) == MOST
