"""Checks the services of a compose file: their GPUs and shared memory. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.containers import check_gpus, processes_in, words_of
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, nodes_of, number_of, read_yaml

COMPOSE = "https://docs.docker.com/compose/how-tos/gpu-support/"
SHM = "https://docs.docker.com/reference/compose-file/services/#shm_size"
_COMPOSE = re.compile(r"^services:\s*$", re.MULTILINE)
_DEVICE_IDS = re.compile(
    r"device_ids:\s{1,8}\[\s{0,8}(?P<list>[\"']\d{1,3}(?:,\s?\d{1,3}){1,15}[\"'])\s{0,8}\]"
)
_MOUNTED = re.compile(r"\B/dev/shm\b")
_OTHER_MEMORY = {"ipc", "extends", "<<"}  # the last two bring fields from elsewhere
_SIZE = re.compile(r"(?P<number>\d{1,15})(?P<unit>[bkmg]?)b?", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DEFAULT_BYTES = 64 << 20  # of /dev/shm in a container


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
    line, number = _gpus(fields)
    if not line:
        return
    yield from check_gpus(fields, number, line)
    if (
        max(number, processes_in(words_of(fields))) > 1
        and not fields.keys() & _OTHER_MEMORY
        and not _MOUNTED.search(own)
        and _has_default_memory(fields.get("shm_size"))
    ):
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


def _has_default_memory(size: yaml.Node | None) -> bool:
    """Whether a service's shared memory is not more than the default; a size that is not in the
    text counts as more."""
    if size is None:
        return True
    found = _SIZE.fullmatch(size.value.strip()) if isinstance(size, yaml.ScalarNode) else None
    return found is not None and (
        int(found["number"]) * _BYTES[found["unit"].lower()] <= DEFAULT_BYTES
    )


def _gpus(fields: dict[str, yaml.Node]) -> tuple[int, int]:
    """(line, number) of the GPUs that a service asks for: line 0 for none, number 0 for all of a
    machine."""
    asked = fields.get("gpus") or fields.get("runtime")
    if isinstance(asked, yaml.ScalarNode) and asked.value in ("all", "nvidia"):
        return asked.start_mark.line + 1, 0
    devices = [
        fields_of(one)
        for node in nodes_of(list(fields.values()))
        for one in children_of(fields_of(node).get("devices"))
    ] + [fields_of(one) for one in children_of(fields.get("gpus"))]
    for device in devices:
        number = device.get("count") or device.get("device_ids")
        of_gpus = any(one.value == "gpu" for one in children_of(device.get("capabilities")))
        if number is not None and (of_gpus or "gpus" in fields):
            return number.start_mark.line + 1, number_of(number) or len(children_of(number))
    return 0, 0
