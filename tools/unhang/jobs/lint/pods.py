"""Checks pods and containers of training jobs: shared memory, the right to lock memory for RDMA,
variables and ranks of nodes. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import yaml

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.launches import TORCHRUN
from unhang.jobs.lint.pod_launches import pods_at
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, nodes_of, read_yaml

SOURCE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
ENV = "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#environment-variables"
OPERATOR = "https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/"
INDEXED = "https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode"
C10D = "--rdzv-backend=c10d with one --rdzv-endpoint instead of --node_rank"
_BY_OPERATOR = ("leave it out: the operator sets RANK and MASTER_ADDR in each pod", OPERATOR)
_BY_INDEX = (
    f"completionMode: Indexed and the pod's own $JOB_COMPLETION_INDEX as --node_rank, or {C10D}",
    INDEXED,
)
_OWN_RANK = {
    "PyTorchJob": _BY_OPERATOR,
    "TrainJob": _BY_OPERATOR,
    "Job": _BY_INDEX,
    "JobSet": _BY_INDEX,
    "LeaderWorkerSet": (
        f"the pod's own $LWS_WORKER_INDEX as --node_rank, or {C10D}",
        "https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/",
    ),
    "StatefulSet": (
        (
            "the number at the end of the pod's own name, ${HOSTNAME##*-}, as --node_rank, or"
            f" {C10D}"
        ),
        "https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#ordinal-index",
    ),
}  # kind of a document -> how each of its pods gets a rank of its own, source
_NO_OWN_RANK = (f"another --node_rank for each pod, or {C10D}", TORCHRUN)
_KIND = re.compile(
    r"^(?:\{\s{0,8}|\s{1,4}(?=\"))?[\"']?kind[\"']?:\s{1,8}[\"']?(?P<kind>\w{1,40})", re.MULTILINE
)
_VOLCANO = re.compile(r"\bbatch\.volcano\.sh/")  # its Job is not that of Kubernetes
_ROLE = re.compile(
    r"^\s{1,40}(?:-"
    r" )?[\"']?(?:Master|Worker|Launcher|Chief|PS|leaderTemplate|workerTemplate|headGroupSpec|workerGroupSpecs)[\"']?:",  # noqa: E501
    re.MULTILINE,
)
_ALIAS = re.compile(r"(?:<<:|:|-)\s{1,8}\*[A-Za-z]")
_NODE_RANK = re.compile(
    r"--(?:node[_-]rank|machine[_-]rank)(?:=|\s{1,8}|[\"'],\s{0,40}[\"']|[\"']\s{1,60}-\s{1,8}[\"']|\s{1,60}-\s{1,8}[\"']?)(?P<rank>\d{1,4})\b"
)
_REPLICAS = re.compile(
    r"^\s{0,40}(?:replicas|completions|parallelism|size):\s{1,8}(\d{1,5})\b", re.MULTILINE
)
_DOCUMENT_END = re.compile(r"^---\s*$", re.MULTILINE)
# the place of a key: on a line of its own, or in {...}
_ITEM = r"^(?:\s{2,80}|[^#\n]{1,300}[{,]\s{0,8})"
_GPU = re.compile(
    _ITEM + r"(?P<found>[\"']?nvidia\.com/gpu[\"']?:\s{1,20}[\"']?(?P<count>\d{1,4})[\"']?)",
    re.MULTILINE,
)
# not vpc.amazonaws.com/efa: Amazon's EKS nodes start containers with unlimited locked memory
_RDMA = re.compile(
    r"^\s{2,80}path:\s{1,8}[\"']?/dev/infiniband|"
    + _ITEM
    + r"[\"']?(?:rdma/|nvidia\.com/(?:hostdev|sriov|rdma))[\w./-]{0,60}[\"']?:\s{1,20}[\"']?[1-9]",
    re.MULTILINE,
)
# KubeRay mounts memory at /dev/shm itself
_OF_RAY = re.compile(r"^\s{0,8}[\"']?apiVersion[\"']?:\s{1,8}[\"']?ray\.io/", re.MULTILINE)
_SHM = re.compile(r"mountPath:\s{1,8}[\"']?/dev/shm\b|hostIPC:\s{1,8}true\b")
_LOCK = re.compile(r"\bIPC_LOCK\b|privileged:\s{1,8}true\b")
_LIBRARY_PATH = re.compile(
    r"LD_(?:LIBRARY_PATH|PRELOAD)\S{0,4}[=:\s].{0,300}?(?P<path>/\S{0,160}?\bnccl\b[^:\s\"']{0,80}|\S{0,160}libnccl\.so[\w.]{0,20})"
)


def check_pods(text: str, kind: str) -> Iterator[Finding]:
    """The findings of a file's pods, each at the line that requests GPUs."""
    if kind != "kubernetes":
        return
    for document in read_yaml(text).documents:
        yield from _values_that_are_no_text(document)
    start = 0
    for part in _DOCUMENT_END.split(text):
        line = text.count("\n", 0, text.find(part, start)) if part else 0
        start = text.find(part, start) + len(part)
        templates = _templates(part)
        for begin, end in templates:
            yield from _pod(
                part[begin:end],
                line + part.count("\n", 0, begin),
                has_memory=_OF_RAY.search(part) is not None,
            )
        yield from _same_node_rank(text, start - len(part), part, templates)


def _values_that_are_no_text(document: yaml.Node) -> Iterator[Finding]:
    """Values of a container's variables that the API refuses."""
    for one in nodes_of([document]):
        for variable in map(fields_of, children_of(fields_of(one).get("env"))):
            value = variable.get("value")
            if (
                "name" in variable
                and isinstance(value, yaml.ScalarNode)
                and value.tag.rpartition(":")[2] in ("int", "float", "bool")
            ):
                why = (
                    "the API takes only text as the value of a variable, and refuses the whole"
                    " object"
                )
                yield Finding(
                    value.start_mark.line + 1,
                    "env-not-text",
                    "error",
                    f"value: {value.value}",
                    why,
                    f'value: "{value.value}"',
                    ENV,
                )


def _templates(part: str) -> list[tuple[int, int]]:
    """(begin, end) of each role's pods in a job of several roles; the whole document if it has one
    pod, or shares parts by anchors."""
    starts = [] if _ALIAS.search(part) else [found.start() for found in _ROLE.finditer(part)]
    return list(pairwise([*starts, len(part)])) if starts else [(0, len(part))]


def _same_node_rank(
    text: str, start: int, part: str, templates: list[tuple[int, int]]
) -> Iterator[Finding]:
    """Pods of a job that all take themselves for the same node. start: the place of the document
    `part` in the text."""
    fixed = [
        (begin + found.start(), found)
        for begin, end in templates
        for found in _NODE_RANK.finditer(part[begin:end])
    ]
    replicas = max((int(one[1]) for one in _REPLICAS.finditer(part)), default=1)
    ranks = [found["rank"] for _, found in fixed]
    # which number is that of which pods
    is_known = read_yaml(text).is_valid and not _ALIAS.search(part)
    for place, found in fixed:
        pods = pods_at(text, start + place) if is_known else replicas if len(ranks) == 1 else 1
        if ranks.count(found["rank"]) > 1 or pods > 1:
            why = (
                f"several pods of this job are started as node {found['rank']}, so they never meet"
            )
            line = text.count("\n", 0, start + place) + 1
            yield Finding(line, "same-node-rank", "error", found.group(), why, *_own_rank(part))


def _own_rank(part: str) -> tuple[str, str]:
    """(how each pod of a document gets a rank of its own, source)."""
    kind = _KIND.search(part)
    return (
        _NO_OWN_RANK
        if kind is None or _VOLCANO.search(part)
        else _OWN_RANK.get(kind["kind"], _NO_OWN_RANK)
    )


def _pod(part: str, before: int, *, has_memory: bool) -> Iterator[Finding]:
    gpus = _GPU.search(part)
    if gpus is None:
        return
    line = before + part.count("\n", 0, gpus.start("found")) + 1
    if int(gpus["count"]) > 1 and not has_memory and not _SHM.search(part):
        why = (
            "the pod has several GPUs but only the runtime's default /dev/shm of 64 MB, where NCCL"
            " and data loaders keep their segments"
        )
        yield Finding(
            line,
            "pod-shm",
            "warning",
            gpus["found"],
            why,
            "an emptyDir with medium: Memory, mounted at /dev/shm",
            SOURCE,
        )
    if _RDMA.search(part) and not _LOCK.search(part):
        why = "RDMA devices are requested, but the container may not lock memory for them"
        yield Finding(
            line,
            "pod-ipc-lock",
            "warning",
            gpus["found"],
            why,
            "securityContext: {capabilities: {add: [IPC_LOCK]}}",
            SOURCE,
        )


def check_library_path(text: str, benchmark: bool = False) -> Iterator[Finding]:
    """Findings about a loader path with another libnccl than the framework's. benchmark: the file
    runs no framework, so there are none."""
    if benchmark:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if (
            "LD_" in line
            and not line.lstrip().startswith("#")
            and (found := _LIBRARY_PATH.search(line[:4000]))
        ):
            why = (
                "the loader finds this libnccl before the framework's own, so one job may load two"
                " releases"
            )
            instead = (
                "remove NCCL from it, or install that release as the framework's own (pip install"
                " nvidia-nccl-cu12==VERSION)"
            )
            yield Finding(
                number,
                "foreign-libnccl",
                "warning",
                found["path"],
                why,
                instead,
                "https://github.com/vllm-project/vllm/issues/1726",
            )
