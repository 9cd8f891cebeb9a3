"""Decides from the API's answers about a Kubernetes node and its pods whether it may be drained or
released. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang_node.change.drain.reasons import ANY_RUN, DrainAnswer, is_ours, reason_for, run_of

ANNOTATION = "unhang-drain"
FINISHED = ("Succeeded", "Failed")
MIRROR = "kubernetes.io/config.mirror"
# Controllers that restart evicted pods on other nodes; the work of any other pod would be lost.
MOVABLE = ("ReplicaSet", "StatefulSet", "ReplicationController")
GPU_RESOURCES = ("nvidia.com/", "amd.com/gpu", "gpu.intel.com/")
# Label of the upgrade controllers of NVIDIA's GPU and network operators, and the states in which
# they do nothing on the node.
UPGRADE_STATES = ("nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state")
NO_UPGRADE = ("", "upgrade-done", "upgrade-required", "upgrade-failed")


@dataclass(frozen=True)
class Step:
    """answer: state of the node; act: whether to change something; patch: the change; refused,
    note: "" for none."""

    answer: DrainAnswer
    act: bool
    patch: dict[str, Any]
    refused: str
    note: str


def plan_drain(
    node: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    run: str,
    why: str,
    takes_over: str = "",
    boot_id: str = "",
) -> Step:
    """Whether to cordon. boot_id: of the machine to drain, "" if it was not read. Raises ValueError
    for a document that is no node, for the node of another machine, and for one on which an
    operator exchanges a driver."""
    answer, reason = drain_answer(node, pods, run), reason_for(run, why)
    cordoned, marked = _is_cordoned(node), _mark(node)
    known = _part(node, "status", "nodeInfo").get("bootID")
    if (
        not is_ours(marked, (run, takes_over))
        and boot_id
        and isinstance(known, str)
        and known
        and known != boot_id
    ):
        raise ValueError(
            f"{_name(node)} is the machine of boot {known}, not of {boot_id}: drain_node names"
            " another machine, or its kubelet is away"
        )
    if (upgrade := _upgrade(node)) and not is_ours(marked, (run, takes_over)):
        raise ValueError(
            f"a driver upgrade is under way on {_name(node)} ({upgrade}): an operator cordons,"
            " empties and uncordons the node for it"
        )
    if cordoned and not is_ours(marked, (run, takes_over)):
        note = (
            f"{_name(node)} was cordoned by {_who(marked)}: it is left so, and stays so afterwards"
        )
        return Step(answer, False, {}, "", note)
    act = not (cordoned and marked == reason)
    note = f"{_name(node)} is to be cordoned as {reason!r}" if act else ""
    return Step(answer, act, _patch(node, reason, True) if act else {}, "", note)


def plan_release(
    node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], run: str, takes_over: str = ""
) -> Step:
    """Whether to uncordon: only a node that this run cordoned, and only when it is ready. Raises
    ValueError for a document that is no node."""
    answer, marked = drain_answer(node, pods, run), _mark(node)
    if not is_ours(marked, (run, "" if takes_over == ANY_RUN else takes_over)):
        note = (
            f"{_name(node)} was cordoned by {_who(marked)}: it is left so" if answer.drained else ""
        )
        return Step(answer, False, {}, "", note)
    refused = (
        ""
        if _is_ready(node)
        else (f"{_name(node)} is not Ready: look at its kubelet; it stays cordoned until then")
    )
    if upgrade := _upgrade(node):
        refused = (
            f"a driver upgrade is under way on {_name(node)} ({upgrade}): the operator ends jobs"
            " for it; it stays cordoned until then"
        )
    return Step(
        answer,
        True,
        _patch(node, None, None),
        refused,
        f"{_name(node)} is to be uncordoned",
    )


def drain_answer(
    node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], run: str
) -> DrainAnswer:
    """The drain state of the node. Jobs are pods whose work would be lost; the annotation shows who
    drained it."""
    cordoned, marked = _is_cordoned(node), _mark(node)
    jobs = [_job(pod) for pod in pods if is_job(pod)]
    by = "unhang" if cordoned and run_of(marked) else ""
    return DrainAnswer(
        cordoned,
        by,
        (marked or "cordoned") if cordoned else "",
        jobs,
        cordoned and is_ours(marked, (run,)),
    )


def list_states(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{in_service: [name], out: {name: who took it out of service and why}}. Raises ValueError for
    a document that is no node."""
    out = {
        _name(node): _who(_mark(node)) + " cordoned it" if _is_cordoned(node) else "it is not Ready"
        for node in nodes
        if not _takes_pods(node)
    }
    return {
        "in_service": sorted(name for node in nodes if (name := _name(node)) not in out),
        "out": out,
    }


def jobs_by_node(pods: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """{node: its jobs, as drain_answer has them} of pods that a scheduler has given a node."""
    found: dict[str, list[dict[str, str]]] = {}
    for pod in pods:
        if (name := _part(pod, "spec").get("nodeName")) and is_job(pod):
            found.setdefault(str(name), []).append(_job(pod))
    return found


def _takes_pods(node: Mapping[str, Any]) -> bool:
    return _is_ready(node) and not _is_cordoned(node)


def is_job(pod: Mapping[str, Any]) -> bool:
    """True for a pod that is not finished and either uses GPUs or would not be restarted on another
    node."""
    if (
        _part(pod, "status").get("phase") in FINISHED
        or MIRROR in _part(pod, "metadata", "annotations")
        or "DaemonSet" in _owners(pod)
    ):
        return False
    return uses_gpus(pod) or not any(kind in MOVABLE for kind in _owners(pod))


def uses_gpus(pod: Mapping[str, Any]) -> bool:
    """True if a container of the pod requests a GPU, or the pod claims devices."""
    spec = _part(pod, "spec")
    containers = [
        row
        for key in ("containers", "initContainers")
        for row in spec.get(key) or []
        if isinstance(row, Mapping)
    ]
    names = [
        name
        for row in containers
        for key in ("limits", "requests")
        for name in _part(row, "resources", key)
    ]
    return any(str(name).startswith(GPU_RESOURCES) for name in names) or bool(
        spec.get("resourceClaims")
    )


def _upgrade(node: Mapping[str, Any]) -> str:
    """Label and state of an upgrade of a driver that an operator has begun on the node; "" for
    none."""
    states = {
        label: str(_part(node, "metadata", "labels").get(label) or "") for label in UPGRADE_STATES
    }
    return next(
        (f"{label} {state[:60]}" for label, state in states.items() if state not in NO_UPGRADE), ""
    )


def _patch(node: Mapping[str, Any], reason: str | None, cordoned: bool | None) -> dict[str, Any]:
    """Annotation and cordon as one change, which the API refuses if the node has changed since it
    was read."""
    given = _part(node, "metadata")
    metadata = {
        "name": given["name"],
        "resourceVersion": given["resourceVersion"],
        "annotations": {ANNOTATION: reason},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"unschedulable": cordoned},
    }


def _name(node: Mapping[str, Any]) -> str:
    name = _part(node, "metadata").get("name")
    if not isinstance(name, str) or not isinstance(
        _part(node, "metadata").get("resourceVersion"), str
    ):
        raise ValueError("the API gave a node without a name or a resourceVersion")
    return name


def _part(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A mapping within a document; an empty one where there is none."""
    for key in keys:
        inner = value.get(key)
        value = inner if isinstance(inner, Mapping) else {}
    return value


def _mark(node: Mapping[str, Any]) -> str:
    mark = _part(node, "metadata", "annotations").get(ANNOTATION)
    return mark if isinstance(mark, str) else ""


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    _name(node)
    return _part(node, "spec").get("unschedulable") is True


def _is_ready(node: Mapping[str, Any]) -> bool:
    rows = _part(node, "status").get("conditions") or []
    return any(
        isinstance(row, Mapping) and row.get("type") == "Ready" and row.get("status") == "True"
        for row in rows
    )


def _owners(pod: Mapping[str, Any]) -> list[str]:
    rows = _part(pod, "metadata").get("ownerReferences") or []
    return [str(row.get("kind")) for row in rows if isinstance(row, Mapping)]


def _who(marked: str) -> str:
    run = run_of(marked)
    return f"unhang's run {run} ({marked})" if run else "somebody else"


def _job(pod: Mapping[str, Any]) -> dict[str, str]:
    given = _part(pod, "metadata")
    return {
        "id": f"{given.get('namespace', '')}/{given.get('name', '')}",
        "user": ",".join(_owners(pod)) or "nobody",
        "state": str(_part(pod, "status").get("phase", "Unknown")),
        "ends": "",
    }
