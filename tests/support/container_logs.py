"""A container's log as containerd writes it and as `kubectl logs` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# containerd's max_container_log_line_size, 16 * 1024:
# https://github.com/containerd/containerd/blob/main/docs/cri/config.md
LONGEST_RECORD = 16 << 10
TIME = "2026-11-27T10:00:00.000000000Z"


def written(output: str) -> str:
    """The log file of what a container printed: records `TIME stdout P TEXT` for the pieces of a
    line and `TIME stdout F TEXT` for its last one, as the CRI has it
    (https://github.com/containerd/containerd/blob/main/internal/cri/io/logger.go)."""
    return "".join(
        f"{TIME} stdout {tag} {piece}\n"
        for line in output.splitlines()
        for tag, piece in _records(line)
    )


def _records(line: str) -> Iterator[tuple[str, str]]:
    places = range(0, max(len(line), 1), LONGEST_RECORD)
    for place in places:
        piece = line[place : place + LONGEST_RECORD]
        yield ("P" if place + LONGEST_RECORD < len(line) else "F"), piece


def printed(log: str, tail: int) -> str:
    """What the kubelet sends of it: --tail counts lines of the file, which are records; a piece gets
    no line break (https://github.com/kubernetes/cri-client/blob/master/pkg/logs/logs.go)."""
    records = log.splitlines()
    records = records if tail < 0 else records[len(records) - min(tail, len(records)) :]
    return "".join(
        text + ("\n" if tag == "F" else "")
        for _, _, tag, text in (record.split(" ", 3) for record in records)
    )


def with_prefix(logs: Iterable[tuple[str, str]]) -> str:
    """kubectl logs -l … --prefix of pods (name, output): the mark of its pod before each line."""
    return "".join(
        f"[pod/{pod}/collector] {line}\n" for pod, output in logs for line in output.splitlines()
    )
