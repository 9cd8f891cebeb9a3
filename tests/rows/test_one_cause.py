"""One fault is one cause: whole runs of healthy nodes of which one has a fault, judged by the
catalogue's own rules."""

from __future__ import annotations

import json

import pytest
from changed_nodes import PLATFORMS, catalogue, changed
from judge_cases import write_run

from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.triage.run_judging import conclusion

POLICY = {"gpu": {"count": 8}, "nvlink": {"links_per_gpu": 18}}
FELL_OFF = {
    "kind": "xid",
    "code": 79,
    "count": 1,
    "pci_address": "0000:15:00.0",
    "first_s": 910.5,
    "last_s": 910.5,
}
LOST = {
    "gpus.devices[5].error": "NVML_ERROR_GPU_IS_LOST from nvmlDeviceGetHandleByIndex_v2",
    "faults.events": [
        {**FELL_OFF, "line": "NVRM: Xid (PCI:0000:15:00): 79, GPU has fallen off the bus."}
    ],
}
DOWN = {"interconnect.by_gpu[3].nvlinks_active": 17}
IMAGE = {
    "driver": "580.95.05",
    "kernel": "5.15.0-160-generic",
    "nccl": "2.26.2",
    "facts": {
        "node.os.pretty_name": "Ubuntu 22.04.5 LTS",
        "node.os.version_id": "22.04",
        "torch.environments[0].torch": "2.8.0+cu128",
    },
}


@pytest.fixture
def causes_of(tmp_path):
    """The causes that stand beside those of the healthy fleet when one of four nodes is changed."""

    def causes(name, change):
        shown = []
        for folder, fault in (("healthy", {}), ("faulty", change)):
            documents = {
                f"gpu{number}": changed(PLATFORMS[name](), fault if number == 3 else {})
                for number in range(1, 5)
            }
            nodes = [
                {
                    "schema": "unhang/node/1", "host": host, "groups": ["gpu"], "policy": POLICY,
                    "status": "ok", "message": None,
                    "facts": {"schema": "unhang/node-facts/1", "collector": {"version": "1"},
                    **document},
                }
                for host, document in documents.items()
            ]  # fmt: skip
            run = write_run(tmp_path / folder, *nodes)
            judge_run(
                read_run_input(run),
                catalogue(),
                "2026-11-20",
                conclude=conclusion(catalogue().rules),
            )
            found = json.loads((run / "findings.json").read_text())
            assert found["nodes"] == {"ok": 4}, found["findings"][:1]
            shown.append(found["causes"])
        known = {cause["rule"] for cause in shown[0]}
        return [
            cause
            for cause in shown[1]
            if cause["rule"] not in known and cause["severity"] != "info"
        ]

    return causes


def test_a_gpu_that_fell_off_the_bus_is_one_cause_with_the_address_of_its_slot(causes_of):
    (cause,) = causes_of("h200_infiniband", {"facts": LOST})
    assert (cause["rule"], cause["severity"], cause["nodes"]) == (
        "gpu-needs-reboot",
        "critical",
        ["gpu3"],
    )
    assert {"gpu-gives-no-handle", "xid-fatal"} <= set(cause["explains"])
    (device,) = cause["devices"]
    assert device == {
        "host": "gpu3",
        "gpu": 5,
        "uuid": "GPU-00000005-0000-4000-8000-000000000000",
        "pci_address": "0000:15:00.0",
        "serial": None,
    }
    assert cause["command"].startswith("unhang remediate ")
    assert cause["command"].endswith(" --rule gpu-needs-reboot --host gpu3")


def test_another_fatal_xid_does_not_account_for_a_gpu_that_is_gone(causes_of):
    other = {
        **LOST,
        "faults.events": [
            {**FELL_OFF, "code": 95, "line": "NVRM: Xid (PCI:0000:15:00): 95, Uncontained"}
        ],
    }
    assert {cause["rule"] for cause in causes_of("h200_infiniband", {"facts": other})} == {
        "gpu-needs-reboot",
        "gpu-gives-no-handle",
    }


NO_ROOM = {
    "kind": "other", "subject": "gpu-bar-no-space", "count": 1, "pci_address": "0000:15:00.0",
    "line": "pci 0000:15:00.0: BAR 2 [mem size 0x4000000000 64bit pref]: can't assign; no space",
}  # fmt: skip


@pytest.mark.parametrize(
    ("events", "complete", "expected"),
    [
        ([], True, "gpu-fell-off-the-bus"),
        ([], False, "gpu-fell-off-the-bus"),
        ([NO_ROOM], True, "gpus-without-room-in-guest"),
    ],
)
def test_a_gpu_that_a_guest_lacks_has_no_room_only_where_the_kernel_says_so(
    causes_of, events, complete, expected
):
    facts = {
        "node.virtualization": {"kind": "qemu", "is_vm": True, "is_container": False},
        "gpus.pci_count": 9,
        "faults.events": events,
        "faults.complete": complete,
    }
    causes = causes_of("h200_infiniband", {"facts": facts})
    assert [cause["rule"] for cause in causes if cause["severity"] == "critical"] == [expected]


def test_memory_that_no_process_holds_asks_no_vendor(causes_of):
    (cause,) = causes_of(
        "h200_infiniband",
        {"facts": {"gpus.devices[3].memory_used_mib": 120000.0, "gpus.devices[3].processes": []}},
    )
    assert (cause["rule"], cause["owner"]) == ("gpu-memory-without-process", "sre")


def test_a_link_that_is_down_is_one_cause(causes_of):
    (cause,) = causes_of("h200_infiniband", {"facts": DOWN})
    assert (cause["rule"], cause["nodes"]) == ("nvlink-some-inactive", ["gpu3"])
    assert {"policy-nvlinks", "group-nvlinks-differ", "gpu-not-as-its-model-should-be"} <= set(
        cause["explains"]
    )


def test_a_wrong_image_is_one_cause(causes_of):
    (cause,) = causes_of("h200_infiniband", IMAGE)
    assert (cause["rule"], cause["nodes"]) == ("group-os-differs", ["gpu3"])
    assert len(cause["findings"]) >= 6
