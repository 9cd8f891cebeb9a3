"""Checks the services of a compose file: their GPUs and shared memory. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, nodes_of, number_of, read_yaml

COMPOSE = "https://docs.docker.com/compose/how-tos/gpu-support/"
SHM = "https://docs.docker.com/reference/compose-file/services/#shm_size"
_COMPOSE = re.compile(r"^services:\s*$", re.MULTILINE)
_DEVICE_IDS = re.compile(
    r"device_ids:\s{1,8}\[\s{0,8}(?P<list>[\"']\d{1,3}(?:,\s?\d{1,3}){1,15}[\"'])\s{0,8}\]"
)
_PROCESSES = re.compile(
    r"--(?:nproc[_-]per[_-]node|num_processes|tensor-parallel-size|tp)[=\s]{1,4}(?:[2-9]|\d{2,3})\b"
)
_MOUNTED = re.compile(r"\B/dev/shm\b")
_OTHER_MEMORY = {"shm_size", "ipc", "extends", "<<"}  # the last two bring fields from elsewhere


def check_compose(text: str, kind: str) -> Iterator[Finding]:
    """The findings of a compose file."""
    if kind != "kubernetes" or not _COMPOSE.search(text):
        return
    if ids := _DEVICE_IDS.search(text):
        why = "compose takes this for the name of one device, and finds none"
        instead = (
            "[" + ", ".join(f"'{one.strip()}'" for one in ids["list"].strip("\"'").split(",")) + "]"
        )
        yield Finding(
            text.count("\n", 0, ids.start()) + 1,
            "device-ids-in-one",
            "error",
            ids.group(),
            why,
            instead,
            COMPOSE,
        )
    for document in read_yaml(text).documents:
        for service in children_of(fields_of(document).get("services")):
            yield from _memory(service, text)


def _memory(service: yaml.Node, text: str) -> Iterator[Finding]:
    fields, own = fields_of(service), text[service.start_mark.index : service.end_mark.index]
    line = _line_of_gpus(fields, own)
    if line is not None and not fields.keys() & _OTHER_MEMORY and not _MOUNTED.search(own):
        why = (
            "the service has several GPUs but only the runtime's default /dev/shm of 64 MB, where"
            " NCCL and data loaders keep their segments"
        )
        yield Finding(
            line,
            "pod-shm",
            "warning",
            text.splitlines()[line - 1].strip(),
            why,
            "ipc: host, or shm_size: 16gb",
            SHM,
        )


def _line_of_gpus(fields: dict[str, yaml.Node], text: str) -> int | None:
    """Where a service asks for several GPUs; None for one, and for all of a machine if no launcher
    says how many."""
    devices = [
        fields_of(one)
        for node in nodes_of(list(fields.values()))
        for one in children_of(fields_of(node).get("devices"))
    ]
    for device in devices:
        number = device.get("count") or device.get("device_ids")
        if (
            not any(one.value == "gpu" for one in children_of(device.get("capabilities")))
            or number is None
        ):
            continue
        is_all = isinstance(number, yaml.ScalarNode) and number.value == "all"
        if (
            number_of(number) > 1
            or len(children_of(number)) > 1
            or (is_all and _PROCESSES.search(text))
        ):
            return number.start_mark.line + 1
    return None
