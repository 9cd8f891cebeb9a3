"""What the kubelet leaves on a node: devices offered to pods, policies of its state files, restarts
of pods that GPUs need. Part of section `node`.

No API is asked and no program started. A node without a kubelet costs the look for it.
"""

from __future__ import annotations

from ...base.parse.values import clean
from ..parse.kubelet_state import (
    parse_container_log,
    parse_device_checkpoint,
    parse_pod_folder,
    parse_state_policy,
)
from .reading import first_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

USUAL_ROOT = "/var/lib/kubelet"
MICROK8S_ROOT = "/var/snap/microk8s/common/var/lib/kubelet"
# What a node with a kubelet has, and the folder of that kubelet (its --root-dir): GKE, EKS,
# kubeadm, k3s and RKE2 keep the usual one.
KUBELETS = {
    "/usr/bin/kubelet": USUAL_ROOT,
    "/usr/local/bin/kubelet": USUAL_ROOT,
    "/opt/bin/kubelet": USUAL_ROOT,
    "/home/kubernetes/bin/kubelet": USUAL_ROOT,
    USUAL_ROOT + "/config.yaml": USUAL_ROOT,
    "/var/lib/rancher/rke2/bin/kubelet": USUAL_ROOT,
    # k3s and MicroK8s have the kubelet inside of another program
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig": USUAL_ROOT,
    MICROK8S_ROOT: MICROK8S_ROOT,
    "/var/lib/k0s/bin/kubelet": "/var/lib/k0s/kubelet",
}
GPU_OPERATOR_PATHS = ("/run/nvidia/driver", "/run/nvidia/validations")
# also of a kubelet with another folder: https://github.com/kubernetes/kubernetes/issues/120626
DEVICE_PLUGINS = USUAL_ROOT + "/device-plugins"
CHECKPOINT = DEVICE_PLUGINS + "/kubelet_internal_checkpoint"
STATES = {"cpu_manager_kept": "/cpu_manager_state", "memory_manager_kept": "/memory_manager_state"}
LOGS = "/var/log/pods"
# Parts of the names of pods without which pods get no GPUs or no fast network: charts of NVIDIA,
# clouds and network plugins name them so.
POD_WORDS = (
    "nvidia-device-plugin", "nvidia-gpu-device-plugin", "nvidia-driver-", "nvidia-gpu-driver",
    "nvidia-container-toolkit", "nvidia-operator-validator",
    "nvidia-mig-manager", "nvidia-vgpu-manager", "nvidia-dra-driver", "mofed-", "doca-driver",
    "rdma-shared-d", "sriov-device-plugin", "sriov-network-device",
    "aws-efa-k8s-device-plugin", "kube-multus", "whereabouts", "nv-ipam",
)  # fmt: skip
STATE_BYTES = 1 << 20
MOST_PODS = 64
MOST_CONTAINERS = 16


def read_kubernetes(root: Root, unread: Unread, now_s: float) -> dict[str, Any]:
    """{kubelet, gpu_operator, resources, gpus_offered, cpu_manager_kept, memory_manager_kept,
    pods}; null from resources on without a kubelet. now_s: the node's clock, seconds since 1970."""
    folder = unread.attempt("kubernetes.kubelet", find_kubelet, root)
    found: dict[str, Any] = {
        "kubelet": None if folder is None else bool(folder),
        "gpu_operator": unread.attempt(
            "kubernetes.gpu_operator", has_any, root, GPU_OPERATOR_PATHS
        ),
        **dict.fromkeys(("resources", "gpus_offered", *STATES, "pods")),
    }
    if found["kubelet"] is None:
        for field in ("resources", "gpus_offered", *STATES, "pods"):
            unread.add("kubernetes." + field, *reason_of(unread, "kubernetes.kubelet"))
    if not folder:
        return found
    offered = unread.attempt("kubernetes.resources", read_offered_devices, root)
    if offered is None:
        unread.add("kubernetes.gpus_offered", *reason_of(unread, "kubernetes.resources"))
    found.update(offered or {})
    for field, name in STATES.items():
        found[field] = unread.attempt("kubernetes." + field, read_kept_policy, root, folder + name)
    clock_s = now_s if root.is_live or root.has_kernel_procfs() else None
    found["pods"] = unread.attempt("kubernetes.pods", read_pods, root, clock_s)
    return found


def reason_of(unread: Unread, field: str) -> tuple[str, str]:
    """(status, reason) that was noted for a field."""
    return next((row["status"], row["reason"]) for row in unread.rows if row["field"] == field)


def find_kubelet(root: Root) -> str:
    """The folder of the node's kubelet, "" without a kubelet. Raises OSError if that could not be
    determined."""
    found = first_there(root, KUBELETS)
    return KUBELETS[found] if found else ""


def has_any(root: Root, paths: tuple[str, ...]) -> bool:
    """True when one of the paths exists. Raises OSError if that could not be determined."""
    return first_there(root, paths) is not None


def read_offered_devices(root: Root) -> dict[str, Any]:
    """As parse_device_checkpoint; nothing is offered where the kubelet made its folder for plugins
    and never wrote the file. Raises OSError and ValueError."""
    try:
        return parse_device_checkpoint(root.text(CHECKPOINT))
    except FileNotFoundError:
        root.stat(DEVICE_PLUGINS)  # without this folder no kubelet of this node ever took plugins
        return {"resources": [], "gpus_offered": []}


def read_kept_policy(root: Root, path: str) -> str:
    """The policy of a state file, "" where there is no such file: the kubelet then starts with any
    policy. Raises OSError and ValueError."""
    try:
        return parse_state_policy(root.text(path, STATE_BYTES))
    except FileNotFoundError:
        return ""


def read_pods(root: Root, now_s: float | None) -> list[dict[str, Any]]:
    """[{namespace, name, container, restarts, previous_ended_s}] of pods that GPUs and their
    network need, one row for each container. previous_ended_s: seconds since the container before
    the present one wrote its last line; null without one, or without now_s. Raises OSError."""
    rows: list[dict[str, Any]] = []
    for folder in root.names(LOGS):
        pod = parse_pod_folder(folder)
        if pod is None or not any(word in pod[1] for word in POD_WORDS) or len(rows) >= MOST_PODS:
            continue
        for container, row in read_containers(root, LOGS + "/" + folder, now_s):
            rows.append({"namespace": pod[0], "name": pod[1], "container": container, **row})
    return rows[:MOST_PODS]


def read_containers(
    root: Root, folder: str, now_s: float | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, {restarts, previous_ended_s}) of each container of a pod that has a log. Raises
    OSError, but not for a pod that is removed meanwhile."""
    try:
        for container in root.names(folder)[:MOST_CONTAINERS]:
            row = read_container(root, folder + "/" + container, now_s)
            if row is not None:
                yield clean(container, 256), row
    except (FileNotFoundError, NotADirectoryError):
        return


def read_container(root: Root, folder: str, now_s: float | None) -> dict[str, Any] | None:
    """{restarts, previous_ended_s} of one container's logs, None without any. Raises OSError."""
    numbers = [
        number for number in map(parse_container_log, root.names(folder)) if number is not None
    ]
    if not numbers:
        return None
    restarts, ended_s = max(numbers), None
    if now_s is not None and restarts - 1 in numbers:
        ended_s = round(max(0.0, now_s - root.stat(f"{folder}/{restarts - 1}.log").st_mtime), 1)
    return {"restarts": restarts, "previous_ended_s": ended_s}
