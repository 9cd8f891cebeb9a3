"""Decisions about a node of Kubernetes, and the pods whose work would be lost."""

from __future__ import annotations

import pytest
from kubernetes_cluster import make_node, make_pod

from unhang.act.rollout.kubernetes_drain import (
    ANNOTATION,
    drain_answer,
    is_job,
    jobs_by_node,
    list_states,
    plan_drain,
    plan_release,
)

OURS, EARLIER = "unhang r1: driver", "unhang r0: driver"


def node(mark=None, cordoned=False):
    made = make_node("gpu001")
    made["metadata"]["annotations"] |= {ANNOTATION: mark} if mark else {}
    made["spec"] |= {"unschedulable": True} if cordoned else {}
    return made


@pytest.mark.parametrize(
    ("mark", "cordoned", "act", "owned"),
    [
        (None, False, True, False),
        (OURS, True, False, True),
        ("unhang r1: another reason", True, True, True),
        (OURS, False, True, False),  # another user has uncordoned it since
        (None, True, False, False),
        (EARLIER, True, False, False),
        (EARLIER, False, True, False),
        ("somebody's own note", True, False, False),
    ],
)
def test_what_is_cordoned_and_what_is_left_alone(mark, cordoned, act, owned):
    step = plan_drain(node(mark, cordoned), [], "r1", "driver")
    assert (step.act, step.answer.owned, step.refused) == (act, owned, "")
    assert bool(step.patch) is act


def test_a_node_of_another_boot_is_another_machine_and_is_not_cordoned():
    other = node()
    other.setdefault("status", {})["nodeInfo"] = {"bootID": "aaaa"}
    with pytest.raises(
        ValueError,
        match=(
            "gpu001 is the machine of boot aaaa, not of bbbb: drain_node names another machine, or its kubelet is away"
        ),
    ):
        plan_drain(other, [], "r1", "driver", boot_id="bbbb")
    assert plan_drain(other, [], "r1", "driver", boot_id="aaaa").act
    assert plan_drain(other, [], "r1", "driver").act
    # it has rebooted since, and its kubelet has not reported that yet
    ours = node(OURS, cordoned=True)
    ours.setdefault("status", {})["nodeInfo"] = {"bootID": "aaaa"}
    assert plan_drain(ours, [], "r1", "driver", boot_id="bbbb").answer.owned


def test_mark_and_cordon_are_one_change_that_the_api_can_refuse():
    metadata = {"name": "gpu001", "resourceVersion": "1", "annotations": {ANNOTATION: OURS}}
    assert plan_drain(node(), [], "r1", "driver").patch == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"unschedulable": True},
    }
    undone = plan_release(node(OURS, True), [], "r1").patch
    assert (undone["metadata"]["annotations"], undone["spec"]) == (
        {ANNOTATION: None},
        {"unschedulable": None},
    )


@pytest.mark.parametrize(
    ("mark", "cordoned", "takes_over", "act"),
    [
        (OURS, True, "", True),
        (None, True, "", False),
        (EARLIER, True, "", False),
        (EARLIER, True, "r0", True),
        (None, False, "", False),
        (OURS, False, "", True),
    ],
)
def test_only_what_this_run_cordoned_is_uncordoned(mark, cordoned, takes_over, act):
    assert plan_release(node(mark, cordoned), [], "r1", takes_over).act is act


def test_a_node_that_is_not_ready_is_not_uncordoned():
    sick = node(OURS, True)
    sick["status"]["conditions"] = [{"type": "Ready", "status": "False"}, "rubbish"]
    assert "stays cordoned" in plan_release(sick, [], "r1").refused


@pytest.mark.parametrize(
    "label", ["nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state"]
)
@pytest.mark.parametrize(
    "state",
    [
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "pod-restart-required",
        "uncordon-required",
    ],
)
def test_a_node_on_which_an_operator_exchanges_a_driver_is_neither_drained_nor_released(
    label, state
):
    upgraded, ours = node(), node(OURS, True)
    upgraded["metadata"]["labels"][label] = ours["metadata"]["labels"][label] = state
    with pytest.raises(
        ValueError,
        match=rf"a driver upgrade is under way on gpu001 \({label} {state}\): an operator cordons",
    ):
        plan_drain(upgraded, [], "r1", "driver")
    assert plan_drain(ours, [], "r1", "driver").answer.owned  # it began after this run's drain
    assert (
        f"({label} {state}): the operator ends jobs for it" in plan_release(ours, [], "r1").refused
    )


@pytest.mark.parametrize("state", ["", "upgrade-required", "upgrade-done", "upgrade-failed"])
def test_a_node_on_which_an_operator_does_nothing_is_drained_and_released(state):
    idle, ours = node(), node(OURS, True)
    idle["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = ours["metadata"]["labels"][
        "nvidia.com/gpu-driver-upgrade-state"
    ] = state
    assert plan_drain(idle, [], "r1", "driver").act
    assert plan_release(ours, [], "r1").refused == ""


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        (make_pod("a", "gpu001"), False),
        (make_pod("a", "gpu001", "StatefulSet"), False),
        (make_pod("a", "gpu001", "ReplicaSet", gpus=8), True),
        (make_pod("a", "gpu001", "Job"), True),
        (make_pod("a", "gpu001", "PyTorchJob"), True),
        (make_pod("a", "gpu001", None), True),
        (make_pod("a", "gpu001", None, phase="Succeeded"), False),
        (make_pod("a", "gpu001", "DaemonSet", gpus=1), False),
        (make_pod("a", "gpu001", "Job", phase="Pending"), True),
    ],
)
def test_which_pods_are_waited_for(pod, job):
    assert is_job(pod) is job


def test_static_pods_and_claims_of_devices():
    static, claims = make_pod("a", "gpu001", None), make_pod("a", "gpu001")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    claims["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert (is_job(static), is_job(claims)) == (False, True)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None},
        {"metadata": {"name": 7, "resourceVersion": "1"}},
        {"metadata": {"name": "gpu001"}},
    ],
)
def test_a_document_that_is_no_node_is_refused(document):
    with pytest.raises(ValueError, match="a node without a name"):
        plan_drain(document, [], "r1", "x")


def test_rubbish_in_pods_is_a_job_and_not_a_crash():
    answer = drain_answer(
        node(), [{}, {"metadata": [], "spec": {"containers": "x"}, "status": 7}], "r1"
    )
    assert len(answer.jobs) == 2


def test_nodes_that_take_pods_and_who_took_the_others_out_of_service():
    away, ours, theirs = make_node("gpu002"), make_node("gpu003"), make_node("gpu004")
    away["status"]["conditions"][0]["status"] = "Unknown"
    ours["spec"]["unschedulable"], ours["metadata"]["annotations"] = (
        True,
        {ANNOTATION: "unhang r1: driver"},
    )
    theirs["spec"]["unschedulable"] = True
    found = list_states([make_node("gpu001"), away, ours, theirs])
    assert found["in_service"] == ["gpu001"]
    why = "unhang's run r1 (unhang r1: driver) cordoned it"
    assert found["out"] == {
        "gpu002": "it is not Ready",
        "gpu003": why,
        "gpu004": "somebody else cordoned it",
    }
    with pytest.raises(ValueError, match="a node without a name"):
        list_states([{}])


def test_the_pods_of_all_nodes_count_by_node_and_pods_without_one_do_not():
    pods = [
        make_pod("train", "gpu001", "Job", gpus=8),
        make_pod("web", "gpu001"),
        make_pod("agent", "gpu002", "DaemonSet"),
        make_pod("waits", "", "Job", gpus=8),
        {},
    ]
    found = jobs_by_node(pods)
    assert {node: [job["id"] for job in jobs] for node, jobs in found.items()} == {
        "gpu001": ["work/train"]
    }
