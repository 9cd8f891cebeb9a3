"""Files in which the kubelet keeps its state, and names of its log folders, to values. Values in,
values out.

Source: kubernetes/pkg/kubelet/cm/devicemanager/checkpoint, pkg/kubelet/cm/*/state and
pkg/kubelet/kuberuntime/helpers.go.
"""

from __future__ import annotations

import re

from ...base.parse.values import clean, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT = 128
MOST_RESOURCES = 64
MOST_GPUS = 64
GPU_ID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}$")
CONTAINER_LOG = re.compile(r"(\d{1,6})\.log$", re.ASCII)  # rotated files have a date behind it
SHARE = "::"  # the device plugin adds ::0, ::1 … to a device that several pods share


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("this is not a JSON object")
    return values


def parse_device_checkpoint(text: str) -> dict[str, Any]:
    """{resources: [{name, devices}], gpus_offered: [UUID]} of the kubelet's device checkpoint: the
    devices that plugins report as healthy, each counted once however many pods may share it. Raises
    ValueError."""
    values = parse_object(text)
    # before Kubernetes 1.10 without the frame of Data and Checksum
    kept = values.get("Data", values)
    registered = kept.get("RegisteredDevices") if isinstance(kept, dict) else None
    if not isinstance(registered, dict):
        raise ValueError("no JSON object RegisteredDevices")
    devices = {name: devices_of(ids) for name, ids in registered.items()}
    gpus = sorted({device for ids in devices.values() for device in ids if GPU_ID.match(device)})
    return {
        "resources": [
            {"name": clean(name, TEXT), "devices": len(devices[name])} for name in sorted(devices)
        ][:MOST_RESOURCES],
        "gpus_offered": gpus[:MOST_GPUS],
    }


def devices_of(ids: Any) -> set[str]:
    """Ids of devices without their shares. Raises ValueError if `ids` is no list of texts."""
    if ids is None:
        return set()
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ValueError("the devices of a resource are not a list of texts")
    return {one.partition(SHARE)[0] for one in ids}


def parse_state_policy(text: str) -> str:
    """The policy with which the kubelet wrote cpu_manager_state or memory_manager_state. Raises
    ValueError."""
    policy = parse_object(text).get("policyName")
    if not isinstance(policy, str):
        raise ValueError("policyName is not a text")
    return clean(policy, TEXT)


def parse_pod_folder(name: str) -> tuple[str, str] | None:
    """(namespace, pod) of a folder of /var/log/pods, NAMESPACE_POD_UID; None for any other name."""
    pieces = name.split("_")
    return (
        (clean(pieces[0], 256), clean(pieces[1], 256)) if len(pieces) == 3 and all(pieces) else None
    )


def parse_container_log(name: str) -> int | None:
    """How often a container had been restarted when it wrote this log, N of N.log; None for any
    other name."""
    match = CONTAINER_LOG.match(name)
    return int(match.group(1)) if match else None
