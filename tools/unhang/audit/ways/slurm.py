"""Reads nodes by srun, many at once: Slurm's own tree starts the collector in a job that is there
or in one of our own; each answer is checked as it comes."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from unhang.audit.ways.arrivals import Arrived, write_arrivals
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.opening import InventoryHost
from unhang.audit.ways.run_deadline import straggler
from unhang.audit.ways.slurm_nodes import (
    all_nodes,
    allocated,
    broadcast,
    job_nodes,
    partitions_of,
    slurm_variables,
    why_not_idle,
)
from unhang.audit.ways.slurm_step import Step, TaskOutput, run_step
from unhang.audit.ways.slurm_task import STDIN, WANTED, task_words, unpack_answer
from unhang.audit.ways.ssh_reach import SshReach, reach_of
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS, NodeAnswer, read_facts
from unhang.core.ansible.old_python import collector_arguments, is_missing
from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import node_document
from unhang.core.errors import UserError
from unhang.core.strict_json import NotStrict

START_S = 30  # for srun to start its tasks
FOLDER = "/tmp"  # noqa: S108 -- on the nodes; the name in it cannot be foreseen, sbcast replaces no file, and the content is compared before it is used


@dataclass
class SlurmReading:
    """refused: {host: why Slurm did not read it}, for another way; jobs: {number: hosts that were
    asked in it}; denied: sections with values that need root; arrived: what write_arrivals said.
    """

    refused: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, list[str]] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    arrived: Arrived = field(default_factory=Arrived)


def read_by_slurm(
    run: Path, hosts: Sequence[InventoryHost], given: Mapping[str, str], collector: bytes,
    deadline_s: float, job: str = "",
    partitions: Sequence[str] = (),
) -> SlurmReading:  # fmt: skip
    """Writes a record of each host that srun could start on. given: options of the command line,
    for become; deadline_s: of the whole reading; job: whose nodes to use, else idle ones, of these
    partitions where some are named. Raises UserError, OSError."""
    reading = _Reading(hosts, given, collector, deadline_s)
    arrivals = reading.in_job(job) if job else reading.in_partitions(partitions)
    meant = {host.name: host.meant for host in hosts}
    with closing(arrivals):
        reading.result.arrived = write_arrivals(run, meant, (("", arrival) for arrival in arrivals))
    return reading.result


class _Reading:
    def __init__(
        self,
        hosts: Sequence[InventoryHost],
        given: Mapping[str, str],
        collector: bytes,
        deadline_s: float,
    ) -> None:
        self.deadline_s, self.until = deadline_s, time.monotonic() + deadline_s
        self.reaches: dict[str, SshReach] = {host.name: reach_of(host, given) for host in hosts}
        self.collector, self.digest = collector, hashlib.sha256(collector).hexdigest()
        self.result = SlurmReading()

    def in_job(self, job: str) -> Generator[Arrival]:
        """Answers of the hosts that are nodes of this job."""
        names, partly = job_nodes(job)
        there = set(names)
        whole = [name for name in self.reaches if name in there and name not in partly]
        self.result.refused |= {
            name: partly.get(name, f"no node of job {job}")
            for name in self.reaches
            if name not in whole
        }
        yield from self._asked(job, whole, len(names))

    def in_partitions(self, partitions: Sequence[str]) -> Generator[Arrival]:
        """Answers of the hosts that are idle, one allocation after the other: the partition that
        has most of them first."""
        known = {node.name: node for node in all_nodes()}
        for name in self.reaches:
            self.result.refused[name] = (
                why_not_idle(known[name]) if name in known else "no node of Slurm"
            )
        left = {
            name: partitions_of(known[name]) for name, why in self.result.refused.items() if not why
        }
        tried: set[str] = set()
        while left and time.monotonic() < self.until:
            counts = Counter(
                one
                for row in left.values()
                for one in row
                if one not in tried and (not partitions or one in partitions)
            )
            if not counts:
                break
            partition = counts.most_common(1)[0][0]
            tried.add(partition)
            members = [name for name, row in left.items() if partition in row]
            is_granted = yield from self._in_partition(partition, members)
            left = {
                name: row for name, row in left.items() if not is_granted or name not in members
            }
        self.result.refused |= {
            name: (
                self.result.refused[name]
                or "in no partition that was asked for, or past the deadline"
            )
            for name in left
        }

    def _in_partition(
        self, partition: str, members: Sequence[str]
    ) -> Generator[Arrival, None, bool]:
        """Answers of nodes that are idle, in a job of our own, and whether Slurm gave one; if not,
        they stay refused."""
        minutes = 2 + 2 * (max(self.reaches[name].timeout_s for name in members) + START_S) // 60
        try:
            with allocated(members, partition, minutes) as job:
                for name in members:
                    del self.result.refused[name]
                yield from self._asked(job, members, len(members))
        except UserError as problem:
            self.result.refused |= dict.fromkeys(members, str(problem))
            return False
        return True

    def _asked(self, job: str, names: Sequence[str], nodes: int) -> Generator[Arrival]:
        """nodes: of the job. Hosts that are read alike are asked by one srun."""
        self.result.jobs[job] = list(names)
        alike: dict[tuple[object, ...], list[str]] = {}
        for name in names:
            reach = self.reaches[name]
            alike.setdefault(
                (
                    reach.become,
                    reach.interpreter,
                    tuple(collector_arguments(reach.options)),
                    reach.timeout_s,
                ),
                [],
            ).append(name)
        place = STDIN
        if len(names) == nodes:  # else the file would stay on nodes that are not asked
            place = f"{FOLDER}/unhang-collect-{secrets.token_hex(16)}.pyz"
            with tempfile.NamedTemporaryFile(prefix="unhang-sbcast-") as source:
                source.write(self.collector)
                source.flush()
                broadcast(job, source.name, place)
        for members in alike.values():
            wanted: list[str] = []
            yield from self._step(job, members, place, wanted)
            # sbcast's file is missing there, or srun ended their tasks because it could not start
            # another
            if wanted:
                yield from self._step(job, wanted, STDIN, None)

    def _step(
        self, job: str, names: Sequence[str], place: str, wanted: list[str] | None
    ) -> Generator[Arrival]:
        """wanted: takes the hosts that are to be asked again, with the collector on standard input;
        None where no host is."""
        reach = self.reaches[names[0]]
        words = task_words(
            reach.interpreter, reach.become, self.digest, place, collector_arguments(reach.options)
        )
        limit_s = min(reach.timeout_s + START_S, self.until - time.monotonic())
        step = Step(
            job, names, words, slurm_variables(), self.collector if place == STDIN else b"", limit_s
        )
        with closing(run_step(step)) as ends:
            for name, output in ends:
                if wanted is not None and (
                    output.aborted or (output.ended and output.ended[0] == WANTED)
                ):
                    wanted.append(name)
                elif not output.started and not output.timed_out:
                    self.result.refused[name] = clean(
                        f"srun could not start there: {output.srun}", 300
                    )
                    self.result.jobs[job].remove(name)
                elif output.timed_out and time.monotonic() > self.until and not output.pieces:
                    yield self._arrival(name, straggler(self.deadline_s, True))
                else:
                    yield self._arrival(name, _answer(output, reach.interpreter, reach.timeout_s))

    def _arrival(self, name: str, answer: NodeAnswer) -> Arrival:
        place = f"srun's answer of {name}"
        if answer.status == "invalid":
            return Arrival(place, name, fault=answer.message or "", raw=answer.raw or "")
        sections = answer.facts["sections"] if answer.facts else {}
        self.result.denied |= {
            clean(part, 40) for part, section in sections.items() if _is_denied(section["probe"])
        }
        return Arrival(
            place, name, node_document(name, [], {}, answer.status, answer.message, answer.facts)
        )


def _is_denied(probe: Mapping[str, object]) -> bool:
    rows = probe.get("unread")
    return probe["status"] == "denied" or any(
        isinstance(row, dict) and row.get("status") == "denied"
        for row in (rows if isinstance(rows, list) else [])
    )


def _answer(output: TaskOutput, interpreter: str, timeout_s: int) -> NodeAnswer:
    """What the end of a task means, in the words of the other ways."""
    if output.is_cut:
        return read_facts(None, " " * (ANSWER_LIMIT_CHARS + 1))
    last = [line for line in f"{output.noise}\n{output.errors}".splitlines() if line.strip()][-1:]
    if output.ended is None:
        if output.pieces:
            half = (
                f"expected a whole answer, found {sum(map(len, output.pieces))} characters of one:"
                f" {output.srun}"
            )
            return NodeAnswer("invalid", message=clean(half), raw="".join(output.pieces))
        if output.timed_out:
            return NodeAnswer("timeout", message=f"no answer within {timeout_s} s")
        if is_missing(output.noise, output.errors, interpreter):
            return NodeAnswer(
                "failed",
                message=(
                    f"expected Python at {interpreter}, found none on the node; install python3 or"
                    " set ansible_python_interpreter"
                ),
            )
        return NodeAnswer(
            "failed",
            message=clean(
                f"the collector ended without an answer: {last[0] if last else output.srun}"
            ),
        )
    code, expected_chars = output.ended
    try:
        text = unpack_answer(output.pieces, expected_chars)
    except NotStrict as problem:
        return NodeAnswer("invalid", message=clean(problem), raw="".join(output.pieces))
    if text.strip() or code == 0:
        return read_facts(text.strip(), text)
    return NodeAnswer(
        "failed",
        message=clean(
            f"the collector ended without an answer: {last[0] if last else f'exit code {code}'}"
        ),
    )
