"""What the kubelet leaves on a node: devices offered to pods, policies of state files, restarts of
pods."""

from __future__ import annotations

import errno
import json
import os

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.sections.kubernetes import read_kubernetes, read_pods

GPU = "GPU-00000001-0000-4000-8000-000000000000"
PLUGINS = "/var/lib/kubelet/device-plugins/"
CHECKPOINT = PLUGINS + "kubelet_internal_checkpoint"
LOGS = "/var/log/pods/"
NOW_S = 1_800_000_000.0
NEW = ("resources", "gpus_offered", "cpu_manager_kept", "memory_manager_kept", "pods")


@pytest.fixture
def node(tmp_path):
    """A recorded node with a kubelet."""
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/var/lib/kubelet/config.yaml", "cpuManagerPolicy: static\n")
    return folder


def kubernetes(folder):
    """The facts of a recorded node."""
    return facts(folder, "node")["kubernetes"]


def log(folder, path, age_s):
    """A container's log, last written age_s seconds before NOW_S."""
    write(folder, LOGS + path, "")
    os.utime(str(folder) + LOGS + path, (NOW_S - age_s, NOW_S - age_s))


def test_a_node_without_a_kubelet_is_not_looked_into(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder, CHECKPOINT, json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": [GPU]}}})
    )
    assert [kubernetes(folder)[field] for field in NEW] == [None] * 5
    assert not any(field.startswith("kubernetes") for field in unread(folder, "node"))


def test_a_node_without_a_kubelet_costs_the_look_for_it(tmp_path):
    opened = []
    root = Root([str(copied("rdma-h100", tmp_path))])
    root.watch = opened.append
    read_kubernetes(root, Unread(), NOW_S)
    assert {line.partition(" ")[0] for line in opened} <= {"stat", "open", "resolve"}
    assert not any("device-plugins" in line or "/var/log" in line for line in opened)


def test_registered_devices_and_kept_policies_are_read(node):
    write(node, CHECKPOINT, json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": [GPU]}}}))
    write(node, "/var/lib/kubelet/cpu_manager_state", '{"policyName":"none"}')
    write(node, "/var/lib/kubelet/memory_manager_state", '{"policyName":"Static"}')
    found = kubernetes(node)
    assert found["resources"] == [{"name": "nvidia.com/gpu", "devices": 1}]
    assert (found["gpus_offered"], found["cpu_manager_kept"], found["memory_manager_kept"]) == (
        [GPU],
        "none",
        "Static",
    )


def test_a_kubelet_that_no_plugin_met_offers_nothing(node):
    (node / PLUGINS[1:]).mkdir(parents=True)
    assert (kubernetes(node)["resources"], kubernetes(node)["gpus_offered"]) == ([], [])


def test_a_kubelet_with_a_root_of_its_own_is_not_known(node):
    assert (kubernetes(node)["resources"], kubernetes(node)["gpus_offered"]) == (None, None)
    rows = unread(node, "node")
    assert (
        rows["kubernetes.resources"]["status"]
        == rows["kubernetes.gpus_offered"]["status"]
        == "absent"
    )


def test_without_state_files_any_policy_may_start(node):
    assert (kubernetes(node)["cpu_manager_kept"], kubernetes(node)["memory_manager_kept"]) == (
        "",
        "",
    )


PLACES = [
    ("/usr/bin/kubelet", "/var/lib/kubelet"),  # kubeadm, EKS
    ("/home/kubernetes/bin/kubelet", "/var/lib/kubelet"),  # GKE
    ("/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "/var/lib/kubelet"),
    ("/var/lib/rancher/rke2/bin/kubelet", "/var/lib/kubelet"),
    (
        "/var/snap/microk8s/common/var/lib/kubelet/pki/kubelet.crt",
        "/var/snap/microk8s/common/var/lib/kubelet",
    ),
    ("/var/lib/k0s/bin/kubelet", "/var/lib/k0s/kubelet"),
]


@pytest.mark.parametrize(("known_by", "kept_in"), PLACES)
def test_each_distribution_keeps_its_kubelets_state_in_its_own_folder_and_plugins_in_the_usual_one(
    tmp_path, known_by, kept_in
):
    folder = copied("rdma-h100", tmp_path)
    write(folder, known_by, "")
    write(
        folder, CHECKPOINT, json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": [GPU]}}})
    )
    write(folder, kept_in + "/cpu_manager_state", '{"policyName":"static"}')
    found = kubernetes(folder)
    assert (
        found["kubelet"],
        found["gpus_offered"],
        found["cpu_manager_kept"],
        found["memory_manager_kept"],
    ) == (True, [GPU], "static", "")


def test_a_microk8s_whose_folder_the_usual_path_leads_to_is_read_once(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder,
        "/var/snap/microk8s/common" + CHECKPOINT,
        json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": [GPU]}}}),
    )
    write(
        folder,
        "/var/snap/microk8s/common/var/lib/kubelet/cpu_manager_state",
        '{"policyName":"none"}',
    )
    (folder / "var/lib").mkdir(parents=True, exist_ok=True)
    (folder / "var/lib/kubelet").symlink_to("/var/snap/microk8s/common/var/lib/kubelet")
    assert (kubernetes(folder)["gpus_offered"], kubernetes(folder)["cpu_manager_kept"]) == (
        [GPU],
        "none",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}" * 9,
        "\x00",
        '{"policyName": 1, "Data": 1}',
        '{"x": "' + "a" * (5 << 20),
    ],
)
def test_a_file_of_another_shape_is_unknown_and_the_rest_is_read(node, text):
    write(node, CHECKPOINT, text)
    write(node, "/var/lib/kubelet/cpu_manager_state", text)
    write(node, "/var/lib/kubelet/memory_manager_state", '{"policyName":"None"}')
    found = kubernetes(node)
    assert (found["cpu_manager_kept"], found["memory_manager_kept"]) == (None, "None")
    assert unread(node, "node")["kubernetes.cpu_manager_kept"]["status"] == "error"
    assert found["resources"] is None
    assert unread(node, "node")["kubernetes.gpus_offered"]["status"] == "error"


class Denied(Root):
    """A node whose files of the kubelet and of pods only root may read."""

    def _open(self, path):
        if path.startswith("/var/lib/kubelet/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super()._open(path)

    def names(self, path):
        if path.startswith("/var/log/pods"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().names(path)


def test_what_only_root_may_read_is_denied_and_not_empty(node):
    write(node, CHECKPOINT, "{}")
    write(node, "/var/lib/kubelet/cpu_manager_state", "{}")
    write(node, "/var/lib/kubelet/memory_manager_state", "{}")
    missing = Unread()
    found = read_kubernetes(Denied([str(node)]), missing, NOW_S)
    assert [found[field] for field in NEW] == [None] * 5
    assert {row["field"]: row["status"] for row in missing.rows} == {
        "kubernetes." + field: "denied" for field in NEW
    }


class Closed(Root):
    """A node whose programs and folders cannot be looked up."""

    def stat(self, path):
        raise PermissionError(errno.EACCES, "Permission denied", path)


def test_whether_there_is_a_kubelet_may_be_unknown(node):
    missing = Unread()
    found = read_kubernetes(Closed([str(node)]), missing, NOW_S)
    assert found["kubelet"] is None
    assert {row["status"] for row in missing.rows} == {"denied"}
    assert {"kubernetes." + field for field in NEW} <= {row["field"] for row in missing.rows}


def test_restarts_are_counted_by_the_newest_log_of_each_container(node):
    folder = "gpu-operator_nvidia-operator-validator-df5wt_9a42-11e9/"
    log(node, folder + "toolkit-validation/17.log", 20)
    log(node, folder + "toolkit-validation/16.log", 380)
    log(node, folder + "toolkit-validation/16.log.20260401-120000.gz", 90000)
    log(node, folder + "driver-validation/0.log", 9000)
    log(node, folder + "empty/readme", 1)
    log(node, "jobs_train-0_11-22/worker/40.log", 3)
    assert read_pods(Root([str(node)]), NOW_S) == [
        {"namespace": "gpu-operator", "name": "nvidia-operator-validator-df5wt",
        "container": "driver-validation", "restarts": 0, "previous_ended_s": None},
        {"namespace": "gpu-operator", "name": "nvidia-operator-validator-df5wt",
        "container": "toolkit-validation", "restarts": 17, "previous_ended_s": 380.0},
    ]  # fmt: skip
    assert [row["previous_ended_s"] for row in kubernetes(node)["pods"]] == [None, None], (
        "a recorded tree has no clock of its own"
    )


def test_strange_names_in_the_log_folder_are_skipped(node):
    write(node, LOGS + "not-a-pod/0.log", "")
    write(node, LOGS + "a_nvidia-device-plugin-x_u", "a file")
    write(
        node,
        LOGS + "a_nvidia-device-plugin-y_u/file",
        "a file where a container's folder is expected",
    )
    write(node, LOGS + "a_nvidia-device-plugin-z_u/ctr\x1b[31m/3.log", "")
    (node / (LOGS + "a_nvidia-device-plugin-z_u/gone")[1:]).symlink_to("/nowhere")
    rows = kubernetes(node)["pods"]
    assert [(row["name"], row["container"], row["restarts"]) for row in rows] == [
        ("nvidia-device-plugin-z", "ctr [31m", 3)
    ]


def test_a_folder_of_many_pods_is_cut_and_the_rest_of_it_not_listed(node):
    for number in range(100, 163):
        write(node, f"{LOGS}a_nvidia-device-plugin-{number}_u/ctr/1.log", "")
    for container in "abc":
        write(node, f"{LOGS}a_nvidia-device-plugin-163_u/{container}/1.log", "")
    write(node, f"{LOGS}a_nvidia-device-plugin-164_u/ctr/1.log", "")
    listed = []
    root = Root([str(node)])
    root.watch = listed.append
    rows = read_pods(root, NOW_S)
    assert (len(rows), rows[-1]["name"], rows[-1]["container"]) == (
        64,
        "nvidia-device-plugin-163",
        "a",
    )
    assert not any("device-plugin-164" in line for line in listed)


def test_no_folder_of_logs_is_absent(node):
    assert kubernetes(node)["pods"] is None
    assert unread(node, "node")["kubernetes.pods"]["status"] == "absent"
