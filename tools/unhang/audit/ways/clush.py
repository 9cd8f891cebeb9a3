"""Reads nodes by ssh, many at a time, with ClusterShell: its tasks start, watch and end the ssh
processes; each answer is checked and written as it comes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self
from ClusterShell.Worker.Exec import ExecClient, ExecWorker

from unhang.audit.ways.opening import InventoryHost
from unhang.audit.ways.places import Places
from unhang.audit.ways.run_deadline import straggler
from unhang.audit.ways.ssh_reach import SshReach, reach_of
from unhang.audit.ways.starter import BEGUN_LINE, KEPT, SENT, WANTED, WANTED_LINE, start_command
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS, NodeAnswer, read_facts
from unhang.core.ansible.old_python import without_answer
from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import node_document, write_node

FANOUT = 64
LONGEST_ERROR = 64 * 1024
NOT_CONNECTED = 255  # ssh's own exit code


@dataclass(frozen=True)
class Asked:
    """given: options of the command line that decide how nodes are reached; fanout: nodes at a
    time."""

    hosts: Sequence[InventoryHost]
    given: Mapping[str, str]
    fanout: int
    deadline_s: float


def read_by_ssh(run: Path, asked: Asked, collector: bytes) -> list[str]:
    """Writes a record of each host, and returns those that the run's deadline cut. Raises
    UserError, OSError."""
    reaches = {host.name: reach_of(host, asked.given) for host in asked.hosts}
    return _read(_Reading(run, asked.hosts, reaches, collector), asked)


def _read(reading: _Reading, asked: Asked) -> list[str]:
    """By ClusterShell's task."""
    task, deadline_s = task_self(), asked.deadline_s
    reading.places = Places(task, asked.fanout)
    task.timer(deadline_s, _Deadline(task, reading), autoclose=True)
    for timeout_s in sorted({one.timeout_s for one in reading.reaches.values()}):
        task.schedule(
            reading.asking(
                [key for key, one in reading.reaches.items() if one.timeout_s == timeout_s],
                KEPT,
                timeout_s,
            )
        )
    try:
        task.run()
    except KeyboardInterrupt:
        reading.is_over = True
        task.abort()
        raise
    return reading.cut(deadline_s) if reading.is_over else []


class _Deadline(EventHandler):
    """Ends all ssh processes at the run's deadline."""

    def __init__(self, task: Any, reading: _Reading) -> None:
        self.task, self.reading = task, reading

    def ev_timer(self, timer: Any) -> None:
        """The deadline."""
        self.reading.is_over = True
        self.task.abort()


class _Reading:
    """The hosts under the names that ClusterShell has for them here: no name of an inventory is
    read as a set of nodes.

    is_over: what comes now is half an answer, of a process that was ended.
    """

    places: Places

    def __init__(
        self,
        run: Path,
        hosts: Sequence[InventoryHost],
        reaches: Mapping[str, SshReach],
        collector: bytes,
    ) -> None:
        self.recorded, self.asked, self.is_over = set[str](), set[str](), False
        self.run, self.collector, self.digest = (
            run,
            collector,
            hashlib.sha256(collector).hexdigest(),
        )
        self.hosts = {f"n{number}": host for number, host in enumerate(hosts)}
        self.reaches: dict[str, SshReach] = {
            key: reaches[host.name] for key, host in self.hosts.items()
        }

    def asking(self, keys: Sequence[str], how: str, timeout_s: int) -> _SshWorker:
        """ClusterShell's worker for these hosts. how: KEPT, or SENT with the collector on standard
        input."""
        worker = _SshWorker(self, keys, how, timeout_s)
        if how == SENT:
            worker.write(self.collector)
        worker.set_write_eof()
        return worker

    def argv(self, key: str, how: str) -> list[str]:
        """ssh with the command that starts the collector, which is about to run."""
        self.asked.add(key)
        self.places.asked(key)
        reach = self.reaches[key]
        return [
            *reach.argv,
            start_command(reach.interpreter, reach.become, self.digest, how, reach.options),
        ]

    def ended(self, worker: _SshWorker, key: str, code: int) -> None:
        """Writes the answer, or asks again with the collector."""
        if self.is_over:
            return
        self.places.spoke(key)
        out, errors = (
            bytes(worker.heard.pop((key, name), b"")).decode("utf-8", "replace")
            for name in ("stdout", "stderr")
        )
        if code == WANTED and WANTED_LINE in out and worker.how == KEPT:
            worker.task.schedule(self.asking([key], SENT, self.reaches[key].timeout_s))
            return
        self.record(key, _answer(out, errors, code, self.reaches[key].interpreter))

    def record(self, key: str, answer: NodeAnswer) -> None:
        """The host's file."""
        host = self.hosts[key]
        meant = host.meant
        self.places.spoke(key)
        self.recorded.add(key)
        try:
            write_node(
                self.run,
                node_document(
                    host.name,
                    meant.groups,
                    meant.policy,
                    answer.status,
                    answer.message,
                    answer.facts,
                ),
                answer.raw,
            )
        except OSError as problem:  # the run has a record of each host in the end, and other answers may still fit  # noqa: E501
            sys.stderr.write(
                f"unhang: the answer of {clean(host.name, 80)} could not be written:"
                f" {clean(problem.strerror)}\n"
            )

    def cut(self, deadline_s: float) -> list[str]:
        """Records those that have none when the run's deadline has passed."""
        keys = [key for key in self.hosts if key not in self.recorded]
        for key in keys:
            self.record(key, straggler(deadline_s, key in self.asked))
        return [self.hosts[key].name for key in keys]


def _answer(out: str, errors: str, code: int, interpreter: str) -> NodeAnswer:
    """What ssh's end means, in the words of the other ways."""
    if code == NOT_CONNECTED and not out.strip():
        return NodeAnswer(
            "unreachable", message=clean(f"Failed to connect to the host via ssh: {errors}")
        )
    out = out.replace(f"{BEGUN_LINE}\n", "", 1)
    begin = 0 if out.startswith("{") else out.rfind("\n{") + 1
    if code == 0 or (begin or out.startswith("{")):
        return read_facts(out[begin:].strip(), out)
    return without_answer(out, errors, interpreter, f"exit code {code}")


class _SshClient(ExecClient):
    """One ssh process. Its output is kept up to a limit and not split into lines."""

    def _build_cmd(self) -> tuple[list[str], None]:
        return self.worker.reading.argv(self.key, self.worker.how), None

    def _handle_read(self, sname: str) -> None:
        self.worker.take(self, sname, self._read(sname))

    def _flush_read(self, sname: str) -> None:
        """Nothing is held back."""


class _SshWorker(ExecWorker):
    """heard: {(host, stream): bytes so far}."""

    SHELL_CLASS = _SshClient

    def __init__(self, reading: _Reading, keys: Sequence[str], how: str, timeout_s: int) -> None:
        self.reading, self.how, self.timeout_s = reading, how, timeout_s
        self.heard: dict[tuple[str, str], bytearray] = {}
        super().__init__(",".join(keys), None, timeout=timeout_s, command="ssh", stderr=True)

    def take(self, client: Any, stream: str, data: bytes) -> None:
        """Keeps what a node sends; one that does not end is cut."""
        if stream == "stdout":
            self.reading.places.spoke(client.key)
        held = self.heard.setdefault((client.key, stream), bytearray())
        if stream == "stderr":
            held += data[: LONGEST_ERROR - len(held)]
            return
        held += data
        if len(held) > ANSWER_LIMIT_CHARS:
            self.heard.pop((client.key, stream))
            self.reading.record(client.key, read_facts(None, " " * (ANSWER_LIMIT_CHARS + 1)))
            client.abort()

    def _on_node_close(self, node: str, rc: int) -> None:
        super()._on_node_close(node, rc)
        self.reading.ended(self, str(node), rc)

    def _on_node_timeout(self, node: str) -> None:
        super()._on_node_timeout(node)
        self.reading.record(
            str(node), NodeAnswer("timeout", message=f"no answer within {self.timeout_s} s")
        )
