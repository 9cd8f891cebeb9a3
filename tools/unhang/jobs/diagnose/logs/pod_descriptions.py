"""The pod and the container whose state a line of `kubectl describe pod` reports: their names stand
above it, at smaller indentation. Lines in, names out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

LINES_ABOVE = 400  # of a pod with many containers, each with its environment and mounts
_STATE = re.compile(rb"\s+Reason:\s+OOMKilled\s*$")
_HEADING = re.compile(rb"\s*(?:Init |Ephemeral )?Containers:\s*$")
_CONTAINER = re.compile(rb"\s+([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?):\s*$")
_FIELD = re.compile(rb"\s*(Name|Namespace):\s+([a-z0-9][a-z0-9.-]{0,252})\s*$")
_COMMAND = re.compile(
    rb"\bkubectl\b.{0,300}?\bdescribe (?:pods?|po)[ /]([a-z0-9][a-z0-9.-]{0,252})\b"
)
_NAMESPACE = re.compile(rb"(?:-n |-n=|--namespace[= ])([a-z0-9][a-z0-9-]{0,62})\b")


def killed_container(line_at: Callable[[int], bytes], index: int) -> dict[str, str]:
    """{pod, container} of a line that reports an OOM kill; the pod as NAMESPACE/NAME where the
    namespace is known, {} for another line. line_at: a line by its index, with its indentation."""
    if not _STATE.match(line_at(index)):
        return {}
    found: dict[str, str] = {}
    above = list(_ancestors(line_at, index))
    for child, parent in itertools.pairwise(above):
        container = _CONTAINER.match(line_at(child))
        if container and _HEADING.match(line_at(parent)):
            return {**_pod_above(line_at, parent), "container": container[1].decode()}
    if above and (command := _COMMAND.search(line_at(above[-1]))):
        found["pod"] = _with_namespace(command[1], _NAMESPACE.search(line_at(above[-1])))
    return found


def _ancestors(line_at: Callable[[int], bytes], index: int) -> Iterator[int]:
    """The nearest line above with less indentation, the nearest one above that with still less, and
    so on; lines without text are none."""
    indent = _indent(line_at(index))
    for at in _upwards(index):
        line = line_at(at)
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            yield at
        if indent == 0:
            return


def _pod_above(line_at: Callable[[int], bytes], heading: int) -> dict[str, str]:
    """{pod} by the fields Name and Namespace with the heading's indentation; {} where the
    description begins below them."""
    named: dict[bytes, re.Match[bytes]] = {}
    for at in _upwards(heading):
        field = _FIELD.match(line_at(at))
        if field and _indent(line_at(at)) == _indent(line_at(heading)):
            named.setdefault(field[1], field)
        if b"Name" in named:
            namespace = named.get(b"Namespace")
            return {"pod": _with_namespace(named[b"Name"][2], namespace, 2)}
    return {}


def _with_namespace(pod: bytes, namespace: re.Match[bytes] | None, group: int = 1) -> str:
    return f"{namespace[group].decode()}/{pod.decode()}" if namespace else pod.decode()


def _upwards(index: int) -> range:
    return range(index - 1, max(-1, index - 1 - LINES_ABOVE), -1)


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip())
