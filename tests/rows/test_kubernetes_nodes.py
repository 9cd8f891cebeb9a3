"""A Kubernetes node with eight GPUs: silent when it is healthy, and each fault that the kubelet's
files show is found with its GPU or pod."""

from __future__ import annotations

import functools

import pytest
from changed_nodes import (
    PLATFORMS,
    catalogue,
    changed,
    found_on_node,
    schema_faults,
    view,
    words_of,
)

from unhang.audit.rules.node_rules import NodeView, judge_rule, node_world
from unhang.core.run.documents import to_fragment

NEW = (
    "kubernetes-gpu-not-offered",
    "kubernetes-offers-no-gpus",
    "kubelet-state-of-another-policy",
    "kubernetes-gpu-pod-restarts-again-and-again",
)
KUBELET = {
    "cgroup_driver": "systemd",
    "pod_pids_limit": None,
    "cpu_manager": "static",
    "memory_manager": "",
    "topology_manager": "best-effort",
}


def pod(name, container="main", restarts=1, previous_ended_s=400000.0):
    return {
        "namespace": "gpu-operator",
        "name": name,
        "container": container,
        "restarts": restarts,
        "previous_ended_s": previous_ended_s,
    }


@functools.cache
def healthy():
    """The healthy H200 node, with a kubelet that offers its eight GPUs."""
    document = PLATFORMS["h200_infiniband"]()
    uuids = [device["uuid"] for device in document["sections"]["gpus"]["devices"]]
    facts = {
        "node.kubernetes": {
            "kubelet": True, "gpu_operator": True,
            "resources": [{"name": "nvidia.com/gpu", "devices": 8}, {"name": "rdma/hca_shared",
            "devices": 1000}],
            "gpus_offered": uuids, "cpu_manager_kept": "static", "memory_manager_kept": "None",
            "pods": [pod("nvidia-device-plugin-daemonset-x2x4z"),
            pod("nvidia-operator-validator-df5wt", "driver-validation", 0, None)],
        },
        "node.containers.kubelet": KUBELET,
    }  # fmt: skip
    return changed(document, {"facts": facts})


def changes_of(**values):
    return changed(
        healthy(), {"facts": {f"node.kubernetes.{name}": value for name, value in values.items()}}
    )


def new_rules(document):
    assert schema_faults(document) == []
    return {rule for rule in found_on_node(document) if rule in NEW}


def verdicts(document, rule_id):
    (rule,) = [one for one in catalogue().rules if one.id == rule_id]
    world = node_world(
        NodeView("node1", ("training",), {}, "ok", "", "", to_fragment(document["sections"])),
        view(),
    )
    return {one.verdict for one in judge_rule(rule, world)}


def test_a_healthy_node_has_none_of_the_findings():
    assert new_rules(healthy()) == set()
    assert {
        severity
        for rule, severity in found_on_node(healthy()).items()
        if rule not in found_on_node(PLATFORMS["h200_infiniband"]())
    } <= {"info"}


def test_the_gpu_that_the_plugin_gave_up_is_named():
    uuids = healthy()["sections"]["node"]["kubernetes"]["gpus_offered"]
    document = changes_of(
        gpus_offered=[uuid for uuid in uuids if uuid != uuids[5]],
        resources=[{"name": "nvidia.com/gpu", "devices": 7}],
    )
    assert new_rules(document) == {"kubernetes-gpu-not-offered"}
    (words,) = words_of(document, "kubernetes-gpu-not-offered")
    assert words.startswith(f"GPU 5 ({uuids[5]}, ")


@pytest.mark.parametrize(
    "resources",
    [
        [],
        [{"name": "nvidia.com/gpu", "devices": 0}],
        [{"name": "rdma/hca_shared", "devices": 1000}],
    ],
)
def test_a_plugin_that_offers_nothing_is_one_finding_and_not_one_for_each_gpu(resources):
    document = changes_of(gpus_offered=[], resources=resources)
    assert new_rules(document) == {"kubernetes-offers-no-gpus"}
    assert len(words_of(document, "kubernetes-offers-no-gpus")) == 1


def test_gpus_that_go_by_number_are_offered_too():
    """Google's plugin registers nvidia0 and so on."""
    assert (
        new_rules(
            changes_of(gpus_offered=[], pods=[pod("nvidia-gpu-device-plugin-small-cos-abcde")])
        )
        == set()
    )


@pytest.mark.parametrize(
    ("field", "kept"), [("cpu_manager_kept", "none"), ("memory_manager_kept", "Static")]
)
def test_only_a_policy_that_the_configuration_sets_can_differ(field, kept):
    found = new_rules(changes_of(**{field: kept}))
    assert found == ({"kubelet-state-of-another-policy"} if field == "cpu_manager_kept" else set())
    set_too = changed(
        changes_of(**{field: kept}), {"facts": {"node.containers.kubelet.memory_manager": "None"}}
    )
    assert new_rules(set_too) == {"kubelet-state-of-another-policy"}


def test_the_pod_in_a_crash_loop_is_named_with_its_container():
    document = changes_of(
        pods=[
            pod("nvidia-device-plugin-daemonset-x2x4z"),
            pod("nvidia-operator-validator-df5wt", "toolkit-validation", 17, 380.0),
        ]
    )
    assert new_rules(document) == {"kubernetes-gpu-pod-restarts-again-and-again"}
    assert words_of(document, NEW[3]) == [
        "toolkit-validation of gpu-operator/nvidia-operator-validator-df5wt was restarted 17 times,"
        " the last time within the hour"
    ]


def test_what_could_not_be_read_is_unknown_and_no_fault():
    document = changes_of(
        **dict.fromkeys(
            ("resources", "gpus_offered", "cpu_manager_kept", "memory_manager_kept", "pods")
        )
    )
    missing = [{"field": f"kubernetes.{field}", "status": "denied", "reason": "PermissionError"} for field in
               ("resources", "gpus_offered", "cpu_manager_kept", "memory_manager_kept",
               "pods")]  # fmt: skip
    document["sections"]["node"]["probe"]["unread"].extend(missing)
    assert new_rules(document) == set()
    assert {rule: verdicts(document, rule) for rule in NEW} == {rule: {"unknown"} for rule in NEW}


def test_a_node_without_a_kubelet_is_skipped():
    assert {rule: verdicts(PLATFORMS["h200_infiniband"](), rule) for rule in NEW} == {
        rule: {"skip"} for rule in NEW
    }
