"""Checks the launch commands of pods and compose services, and how many pods run one of them. Text
in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.containers import (
    WORDS,
    check_gpus,
    check_unlike_settings,
    gpus_of_pod,
    variables_of,
)
from unhang.jobs.lint.knowledge import load_knowledge
from unhang.jobs.lint.launch_addresses import is_loopback
from unhang.jobs.lint.launch_checks import check_commands
from unhang.jobs.lint.launches import TORCHRUN, Command, read_commands
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, nodes_of, number_of, read_yaml

MASTER = (
    "the name of the first pod, which a headless Service resolves, or the MASTER_ADDR that an"
    " operator sets"
)
_HOLDERS = ("containers", "services", "trainer")  # of a pod, of compose, of Kubeflow's TrainJob
_COUNTS = ("replicas", "completions", "parallelism", "numNodes")
# Kubeflow's operators set what torchrun reads
_MEETS = re.compile(r"\b(?:PyTorchJob|TrainJob|PET_\w+)\b")
# kinds of which one document has all pods of a job
_JOBS = ("PyTorchJob", "TrainJob", "LeaderWorkerSet", "Job", "JobSet", "StatefulSet")
# one pod may be one of several documents of a job, and several pods on one node each as many jobs
_PLAIN = ("Job", "JobSet", "StatefulSet")


def check_pod_launches(text: str) -> Iterator[Finding]:
    """The findings of each pod's commands; the services of a compose file are on one machine, as
    the containers of a pod are."""
    pods = [
        [command for one in holder for command in _commands(one)]
        for document in read_yaml(text).documents
        for holder in _holders(document)
    ]
    reached = any(
        address and not is_loopback(address)
        for pod in pods
        for one in pod
        for address in (one.values.get("master_addr"),)
    )
    for pod in pods:  # the first node may call itself localhost if the others call it by its name
        yield from check_commands(
            [one for one in pod if not (reached and one.values.get("node_rank") == "0")],
            MASTER,
            meets=_MEETS.search(text) is not None,
        )
    for document in read_yaml(text).documents if read_yaml(text).is_valid else ():
        yield from _numbers_of_nodes(text, document)
    for fields in map(fields_of, nodes_of(read_yaml(text).documents)):
        for container in map(fields_of, children_of(fields.get("containers"))):
            yield from check_gpus(container, *gpus_of_pod(container))
    yield from check_unlike_settings(read_yaml(text).documents, text, load_knowledge())


def _numbers_of_nodes(text: str, document: yaml.Node) -> Iterator[Finding]:
    """Launchers that wait for another number of nodes than the job has pods; none if a number of
    pods is not in the text."""
    kind = fields_of(document).get("kind")
    given = [
        one[name]
        for one in map(fields_of, nodes_of([document]))
        for name in (*_COUNTS, "size")
        if name in one
    ]
    if (
        not isinstance(kind, yaml.ScalarNode)
        or kind.value not in _JOBS
        or not all(map(number_of, given))
    ):
        return
    groups = [
        (
            pods_at(text, holder[0].start_mark.index),
            [one for container in holder for one in _commands(container)],
        )
        for holder in _holders(document)
        if holder
    ]
    whole = sum(pods for pods, _ in groups)
    launched = sum(
        pods for pods, commands in groups if any("nnodes" in one.values for one in commands)
    )
    for command in (one for _, commands in groups for one in commands):
        nodes = command.values.get("nnodes", "")
        if kind.value == "JobSet" and nodes in {one.value for one in given}:
            continue  # each of its jobs is one of its own
        if (
            nodes.isdecimal()
            and int(nodes) not in (whole, launched)
            and (kind.value not in _PLAIN or min(whole, int(nodes)) > 1)
        ):
            why = (
                f"the launcher is started in {counted(launched, 'pod')} of this job, and waits for"
                f" {counted(int(nodes), 'node')}"
            )
            yield command.finding(
                "nodes-differ", "warning", why, f"--nnodes={launched}, or as many pods", TORCHRUN
            )


def _holders(document: yaml.Node) -> Iterator[list[yaml.Node]]:
    """The containers of each pod."""
    for fields in map(fields_of, nodes_of([document])):
        for holder in (fields[name] for name in _HOLDERS if name in fields):
            yield [holder] if fields_of(holder).keys() & {*WORDS} else children_of(holder)


def _commands(container: yaml.Node) -> Iterator[Command]:
    """The commands of a container: each of a script, else all words as one."""
    fields = fields_of(container)
    parts = [
        part
        for name in WORDS
        if name in fields
        for part in children_of(fields[name]) or [fields[name]]
    ]
    words = [part for part in parts if isinstance(part, yaml.ScalarNode)]
    variables = variables_of(fields).items()
    given = {name: value for name, (value, _line) in variables if value is not None}
    for word in words:
        if "\n" in word.value.strip():
            first = word.start_mark.line + (word.style in ("|", ">"))
            yield from (
                Command(first + one.line, one.text, one.values)
                for one in read_commands(word.value.splitlines(), given)
            )
            return
    if words:
        at = next(
            (word for word in words if "torch" in word.value or "accelerate" in word.value),
            words[0],
        )
        yield from (
            Command(at.start_mark.line + 1, one.text, one.values)
            for one in read_commands([" ".join(word.value for word in words)], given)
        )


def pods_at(text: str, index: int) -> int:
    """The pods that run what stands at an index of the text, by the numbers above it; 1 if there
    are none."""
    node = next((one for one in read_yaml(text).documents if _holds(one, index)), None)
    pods = 1
    while node is not None:
        fields = fields_of(node)
        child = next((one for one in children_of(node) if _holds(one, index)), None)
        # beside it, replicas are groups: jobs of their own
        if "leaderWorkerTemplate" not in fields:
            pods *= max(1, *(number_of(fields.get(name)) for name in _COUNTS))
        if child is not None and child is fields.get("workerTemplate"):
            pods *= max(1, number_of(fields.get("size")) - ("leaderTemplate" in fields))
        node = child
    return pods


def _holds(node: yaml.Node, index: int) -> bool:
    return node.start_mark.index <= index < node.end_mark.index
