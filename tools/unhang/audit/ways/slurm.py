"""Reads nodes by one srun, which starts the collector on all of them: the number that srun puts
before each line says which node sent it, and each answer is checked as it ends."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import tempfile
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from unhang.audit.ways.arrivals import Arrived, write_arrivals
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.opening import InventoryHost
from unhang.audit.ways.run_deadline import straggler
from unhang.audit.ways.slurm_nodes import GRANT_S, slurm_variables, srun_options
from unhang.audit.ways.ssh_reach import reach_of
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS, NodeAnswer, read_facts
from unhang.core.ansible.old_python import run_collector, without_answer
from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import node_document
from unhang.core.child_processes import die_with_parent, end_process
from unhang.core.nodeset import expand_limit

START_S = 30  # for srun to start its tasks
END_S = 5  # for srun to end after its last task
CHUNK = 1 << 16
# A dead node must not end the step: --no-kill for one that fails meanwhile, --kill-on-bad-exit=0
# and --wait=0 for a task that fails or ends before others.
SRUN = [
    *("srun", "--label", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--input=all"),
    *("--ntasks-per-node=1", "--distribution=arbitrary", "--mpi=none", "--propagate=NONE"),
    "--chdir=/",
]
# slurmstepd cuts a line of more than 1,024 bytes, and srun labels each part of it.
LABELLED = re.compile(rb" *(\d{1,7}): (.*)", re.DOTALL)
END = re.compile(rb"~ (\d{1,3})")
NOT_STARTED = re.compile(r" failed on node (\S+): (.*)")
ENDED = re.compile(r"(\S+): tasks? [\d,-]+: (.*)")


@dataclass
class _Task:
    """parts: of lines that the node sent; code: the collector's, None before its end."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    code: int | None = None

    @property
    def is_cut(self) -> bool:
        """It sent more than an answer may have."""
        return self.size > ANSWER_LIMIT_CHARS

    def take(self, part: bytes) -> None:
        """A part of a line, or the mark of the end."""
        self.size += len(part) + 1
        if end := END.fullmatch(part):
            self.code = int(end[1])
        elif not self.is_cut:
            self.parts.append(part)


@dataclass(frozen=True)
class _Asked:
    """What one srun does. command: for each node's shell; options: of srun."""

    command: str
    interpreter: str
    timeout_s: int
    options: tuple[str, ...]


def read_by_srun(
    run: Path, hosts: Sequence[InventoryHost], given: Mapping[str, str], collector: bytes,
    deadline_s: float, job: str, partitions: Sequence[str],
) -> tuple[Arrived, dict[str, str]]:  # fmt: skip
    """Writes a record of each host, and returns what write_arrivals says and {host: why Slurm did
    not read it}. given: options of the command line, for become; job: whose nodes to use, else idle
    ones, of these partitions if some are named. Raises UserError, OSError."""
    options, refused = srun_options([host.name for host in hosts], job, partitions)
    reading = _Reading(collector, deadline_s, time.monotonic() + deadline_s, refused)
    alike: dict[_Asked, list[str]] = {}
    for host in hosts:
        reach = reach_of(host, given)
        command = f"{shlex.join(reach.become)} {run_collector(reach.interpreter, reach.options)}"
        if host.name in options:
            key = _Asked(command, reach.interpreter, reach.timeout_s, options[host.name])
            alike.setdefault(key, []).append(host.name)
    with closing(reading.arrivals(alike)) as arrivals:
        meant = {host.name: host.meant for host in hosts}
        arrived = write_arrivals(run, meant, (("", arrival) for arrival in arrivals))
    return arrived, refused


@dataclass
class _Reading:
    collector: bytes
    deadline_s: float
    until: float
    refused: dict[str, str]

    def arrivals(self, alike: Mapping[_Asked, Sequence[str]]) -> Generator[Arrival]:
        """Hosts that are read alike are asked by one srun."""
        for asked, names in alike.items():
            for name, answer in self._answers(asked, names):
                place = f"srun's answer of {name}"
                if answer.status == "invalid":
                    yield Arrival(place, name, fault=answer.message or "", raw=answer.raw or "")
                else:
                    known = (answer.status, answer.message, answer.facts)
                    yield Arrival(place, name, node_document(name, [], {}, *known))
        for name, why in self.refused.items():
            message = f"not read: {why}"
            yield Arrival("", name, node_document(name, [], {}, "unreachable", message, None))

    def _answers(
        self, asked: _Asked, names: Sequence[str], is_first: bool = True
    ) -> Generator[tuple[str, NodeAnswer]]:
        """Each answer as its task ends, then what became of the other nodes."""
        if time.monotonic() >= self.until:
            yield from ((name, straggler(self.deadline_s, False)) for name in names)
            return
        left, said = dict(enumerate(_Task() for _ in names)), list[str]()
        limit = min(self.until, time.monotonic() + GRANT_S + START_S + asked.timeout_s)
        held = b""
        with tempfile.TemporaryDirectory(prefix="unhang-srun-") as folder:
            srun = self._start(asked, names, Path(folder))
            assert srun.stdout is not None
            try:
                while left and (wait_s := limit - time.monotonic()) > 0:
                    if not select.select([srun.stdout], [], [], wait_s)[0]:
                        break
                    if not (data := os.read(srun.stdout.fileno(), CHUNK)):
                        break
                    *lines, held = (held + data).split(b"\n")
                    for line in lines:
                        found = LABELLED.fullmatch(line)
                        task = left.get(int(found[1])) if found else None
                        if found and task:
                            limit = min(limit, time.monotonic() + START_S + asked.timeout_s)
                            task.take(found[2])
                            if task.is_cut or task.code is not None:
                                del left[int(found[1])]
                                yield names[int(found[1])], _answer(task, asked, "")
                        elif not found and line.strip():
                            said.append(line.decode("utf-8", "replace").strip())
                timed_out = bool(left) and time.monotonic() >= limit
            finally:
                _stop(srun, not left)
        yield from self._rest(asked, {names[n]: left[n] for n in left}, said, timed_out, is_first)

    def _rest(
        self, asked: _Asked, left: Mapping[str, _Task], said: Sequence[str], timed_out: bool,
        is_first: bool,
    ) -> Generator[tuple[str, NodeAnswer]]:  # fmt: skip
        """Nodes without the mark of an end. If srun cannot start one task it ends the others, which
        are asked once more. said: srun's own words."""
        dead = {found[1]: found[2] for line in said if (found := NOT_STARTED.search(line))}
        ended = {
            name: found[2]
            for line in said
            if (found := ENDED.search(line))
            for name in expand_limit(found[1])
        }
        words = [line.removeprefix("srun: ").removeprefix("error: ") for line in said[-2:]]
        last = "; ".join(words) or "it printed nothing"
        again = []
        for name, task in left.items():
            if dead and is_first and name not in dead:
                again.append(name)
            elif name in dead or not (timed_out or task.parts or name in ended):
                why = f"srun could not start there: {dead.get(name, last)}"
                self.refused[name] = clean(why, 300)
            elif timed_out and time.monotonic() >= self.until:
                yield name, straggler(self.deadline_s, True)
            else:
                why = f"no answer within {asked.timeout_s} s" if timed_out else ""
                yield name, _answer(task, asked, ended.get(name, last), why)
        if again:
            yield from self._answers(asked, again, is_first=False)

    def _start(self, asked: _Asked, names: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
        """srun, with the collector on the standard input of every task. Tasks go to nodes in the
        order of SLURM_HOSTFILE, so no node can send a line in another's name."""
        (folder / "hosts").write_text("".join(f"{name}\n" for name in names))
        (folder / "collector").write_bytes(zlib.compress(self.collector))
        count, minutes = len(names), 2 + 2 * (asked.timeout_s + START_S) // 60
        argv = [*SRUN, f"--nodes={count}", f"--ntasks={count}", f"--time={minutes}"]
        # no mark of a collector that was killed, as those are of a step that srun ends
        end = "code=$?; [ $code -gt 127 ] || printf '\\n~ %d\\n' $code"
        command = f"{{ {asked.command}; }} 2>&1; {end}"
        with (folder / "collector").open("rb") as stdin:
            return subprocess.Popen(
                [*argv, *asked.options, "/bin/sh", "-c", command],
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**slurm_variables(), "SLURM_HOSTFILE": str(folder / "hosts")},
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- one call of prctl, nothing that takes a lock
            )  # fmt: skip


def _stop(srun: subprocess.Popen[bytes], is_done: bool) -> None:
    with suppress(subprocess.TimeoutExpired):
        srun.wait(END_S if is_done else 0)
    if srun.stdout:
        srun.stdout.close()  # srun does not end while it waits to write
    end_process(srun)


def _answer(task: _Task, asked: _Asked, otherwise: str, timeout: str = "") -> NodeAnswer:
    """What a task sent, in the words of the other ways. otherwise: why it ended, if it did not say
    so itself; timeout: that it did not end."""
    if task.is_cut:
        return read_facts(None, " " * (ANSWER_LIMIT_CHARS + 1))
    begin = next((at for at, part in enumerate(task.parts) if part.startswith(b"{")), None)
    if begin is not None:
        text = b"".join(task.parts[begin:]).decode("utf-8", "replace")
        return read_facts(text, text)
    if timeout:
        return NodeAnswer("timeout", message=timeout)
    noise = b"\n".join(task.parts).decode("utf-8", "replace")
    return without_answer("", noise, asked.interpreter, otherwise or f"exit code {task.code}")
