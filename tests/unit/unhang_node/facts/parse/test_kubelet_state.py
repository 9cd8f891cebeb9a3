"""State files of the kubelet and names of its log folders to values."""

from __future__ import annotations

import json

import pytest

from unhang_node.facts.parse.kubelet_state import (
    parse_container_log,
    parse_device_checkpoint,
    parse_pod_folder,
    parse_state_policy,
)

UUIDS = [f"GPU-0000000{number}-0000-4000-8000-000000000000" for number in range(3)]


def checkpoint(registered):
    """The kubelet's device checkpoint with these registered devices."""
    return json.dumps(
        {
            "Data": {
                "PodDeviceEntries": [{"DeviceIDs": {"0": UUIDS}}],
                "RegisteredDevices": registered,
            },
            "Checksum": 3364951114,
        }
    )


def test_devices_that_are_registered_are_counted_and_gpus_named():
    found = parse_device_checkpoint(
        checkpoint({"nvidia.com/gpu": [UUIDS[1], UUIDS[0]], "rdma/hca": ["0", "1"]})
    )
    assert found == {
        "resources": [{"name": "nvidia.com/gpu", "devices": 2}, {"name": "rdma/hca", "devices": 2}],
        "gpus_offered": UUIDS[:2],
    }


def test_a_gpu_that_pods_share_counts_once():
    found = parse_device_checkpoint(
        checkpoint({"nvidia.com/gpu.shared": [f"{UUIDS[0]}::{share}" for share in range(4)]})
    )
    assert found == {
        "resources": [{"name": "nvidia.com/gpu.shared", "devices": 1}],
        "gpus_offered": [UUIDS[0]],
    }


def test_instances_and_devices_by_number_are_no_gpus_with_a_uuid():
    found = parse_device_checkpoint(
        checkpoint(
            {
                "nvidia.com/gpu": ["nvidia0", "nvidia1/gi0"],
                "nvidia.com/mig-1g.10gb": ["MIG-" + UUIDS[0][4:]],
            }
        )
    )
    assert found == {
        "resources": [
            {"name": "nvidia.com/gpu", "devices": 2},
            {"name": "nvidia.com/mig-1g.10gb", "devices": 1},
        ],
        "gpus_offered": [],
    }


def test_no_registered_devices_are_an_empty_list():
    assert parse_device_checkpoint(checkpoint({})) == {"resources": [], "gpus_offered": []}


def test_a_resource_whose_devices_all_failed_has_none():
    assert parse_device_checkpoint(checkpoint({"nvidia.com/gpu": [], "rdma/hca": None}))["resources"] == [
        {"name": "nvidia.com/gpu", "devices": 0}, {"name": "rdma/hca", "devices": 0}
    ]  # fmt: skip


def test_the_checkpoint_of_an_old_kubelet_has_no_frame():
    assert (
        parse_device_checkpoint(json.dumps({"RegisteredDevices": {"nvidia.com/gpu": UUIDS}}))[
            "gpus_offered"
        ]
        == UUIDS
    )


NOT_A_CHECKPOINT = {
    "empty": "", "list": "[]", "null": "null", "cut": "{", "without data": "{}",
    "number": '{"Data": 1}', "zeros": "\x00" * 4096,
    "null inside": '{"Data": {"RegisteredDevices": null}}',
    "list inside": '{"Data": {"RegisteredDevices": [1]}}',
    "nested lists": "[" * 200_000, "nested objects": '{"Data": ' * 200_000,
    "long number": '{"Data": [], "Checksum": ' + "9" * 100_000 + "}",
    "devices by NUMA node": '{"Data": {"RegisteredDevices": {"a": {"0": []}}}}',
    "devices as numbers": '{"Data": {"RegisteredDevices": {"a": [1]}}}',
}  # fmt: skip


def test_a_number_of_any_length_is_read_past():
    """As a whole number it would be refused, or on older Pythons converted in quadratic time."""
    text = checkpoint({"nvidia.com/gpu": UUIDS}).replace("3364951114", "9" * 100_000)
    assert parse_device_checkpoint(text)["gpus_offered"] == UUIDS


@pytest.mark.parametrize("text", NOT_A_CHECKPOINT.values(), ids=NOT_A_CHECKPOINT)
def test_a_file_of_another_shape_is_an_error_and_no_empty_answer(text):
    with pytest.raises(ValueError):
        parse_device_checkpoint(text)


def test_lists_of_a_hostile_checkpoint_are_cut():
    registered = {f"x/{number}\x1b[31m": [f"GPU-{number:08d}"] for number in range(5000)}
    found = parse_device_checkpoint(checkpoint(registered))
    assert (len(found["resources"]), len(found["gpus_offered"])) == (64, 64)
    assert all(row["name"].isprintable() for row in found["resources"])


def test_a_state_file_names_its_policy():
    assert (
        parse_state_policy('{"policyName":"static","defaultCpuSet":"0-95","checksum":1353318690}')
        == "static"
    )


@pytest.mark.parametrize(
    "text", ["", "{}", '{"policyName": 7}', '{"policyName": null}', "[" * 200_000, '"static"']
)
def test_a_state_file_of_another_shape_is_an_error(text):
    with pytest.raises(ValueError):
        parse_state_policy(text)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("gpu-operator_nvidia-driver-daemonset-4xk2p_9a422c32-4fc2-11e9", ("gpu-operator",
    "nvidia-driver-daemonset-4xk2p")),
     ("9a422c32-4fc2-11e9", None), ("a_b", None), ("a__c", None), ("a_b_c_d", None)],
)  # fmt: skip
def test_a_log_folder_names_namespace_and_pod(name, wanted):
    assert parse_pod_folder(name) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("0.log", 0),
        ("41.log", 41),
        ("41.log.20260401-120000.gz", None),
        ("41.log.20260401-120000", None),
        ("x.log", None),
        ("٣.log", None),
    ],
)
def test_a_log_is_named_by_the_restarts_before_it(name, wanted):
    assert parse_container_log(name) == wanted
