"""One srun over many nodes: what each of its tasks prints, under the number that srun itself puts
before each line, and how the task ended."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unhang.audit.ways.slurm_task import END
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.child_processes import die_with_parent, end_process

LABELLED = re.compile(rb" *(\d{1,7}): (.*)", re.DOTALL)
TASKS = re.compile(r"\btasks? ([\d,-]{1,4000}): (.*)")
KEPT_BYTES = 64 * 1024  # of what is no answer
LONGEST_LINE = 8 * 1024
CHUNK = 1 << 16
LOOK_S = 0.5


@dataclass
class TaskOutput:
    """What one node's task sent. pieces: of its answer; noise: other lines; is_cut: it sent more
    than an answer may have; ended: (code, characters) that it reported at its end; timed_out: the
    deadline passed first; srun: srun's own words about it; started: whether it ran at all, as far
    as srun says; aborted: srun ended it because it could not start another."""

    pieces: list[str] = field(default_factory=list)
    noise: str = ""
    errors: str = ""
    size: int = 0
    is_cut: bool = False
    ended: tuple[int, int] | None = None
    timed_out: bool = False
    srun: str = ""
    started: bool = True
    aborted: bool = False


@dataclass(frozen=True)
class Step:
    """job: whose allocation it uses; hosts: one task each, in this order; words: what each runs;
    variables: of srun's environment; stdin: for all tasks."""

    job: str
    hosts: Sequence[str]
    words: Sequence[str]
    variables: Mapping[str, str]
    stdin: bytes
    deadline_s: float


def srun_words(step: Step) -> list[str]:
    """argv. Tasks go to nodes in the order of SLURM_HOSTFILE, so the number before a line says
    which node sent it, and no node can say another."""
    count = str(len(step.hosts))
    argv = [
        "srun",
        f"--jobid={step.job}",
        "--overlap",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--distribution=arbitrary",
    ]
    return [
        *argv,
        "--label",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",
        "--mpi=none",
        "--propagate=NONE",
        "--input=all",
        "--chdir=/",
        *step.words,
    ]


def run_step(step: Step) -> Generator[tuple[str, TaskOutput]]:
    """Each node with what it sent, as soon as its task has ended. If the caller stops, srun is
    ended. Raises OSError where there is no srun."""
    with (
        tempfile.TemporaryDirectory(prefix="unhang-srun-") as folder,
        tempfile.TemporaryFile() as stdin,
    ):
        listing = Path(folder) / "hosts"
        listing.write_text("".join(f"{host}\n" for host in step.hosts))
        stdin.write(step.stdin)
        stdin.seek(0)
        srun = subprocess.Popen(
            srun_words(step), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
            env={**step.variables, "SLURM_HOSTFILE": str(listing)},
            preexec_fn=die_with_parent,  # noqa: PLW1509 -- one call of prctl, nothing that takes a lock
        )  # fmt: skip
        with srun:
            try:
                yield from _Listening(step, srun).ends()
            finally:
                if srun.poll() is None:
                    srun.terminate()
                # srun does not end while it waits to write
                for stream in (srun.stdout, srun.stderr):
                    if stream:
                        stream.close()
                end_process(srun)


class _Listening:
    """open: numbers of tasks that have not ended; said: srun's own lines."""

    def __init__(self, step: Step, srun: subprocess.Popen[bytes]) -> None:
        self.step, self.srun = step, srun
        self.tasks = [TaskOutput() for _ in step.hosts]
        self.open = set(range(len(step.hosts)))
        self.held = {"out": b"", "err": b""}
        self.said: list[str] = []

    def ends(self) -> Iterator[tuple[str, TaskOutput]]:
        """Tasks as they end, then those that srun or the deadline ended."""
        until = time.monotonic() + self.step.deadline_s
        with selectors.DefaultSelector() as selector:
            for name, stream in (("out", self.srun.stdout), ("err", self.srun.stderr)):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, name)
            while self.open and selector.get_map() and time.monotonic() < until:
                for key, _ in selector.select(LOOK_S):
                    data = os.read(key.fd, CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    for number in self._take(key.data, data):
                        yield self.step.hosts[number], self.tasks[number]
            timed_out = bool(selector.get_map())
        if self.open and not timed_out:
            end_process(self.srun)
        for number in sorted(self.open):
            yield self.step.hosts[number], self._unended(number, timed_out)

    def _take(self, name: str, data: bytes) -> Iterator[int]:
        """The numbers of the tasks that end in this piece of srun's output."""
        *lines, rest = (self.held[name] + data).split(b"\n")
        self.held[name] = rest[:LONGEST_LINE]
        for line in lines if data else [rest]:
            found = LABELLED.fullmatch(line)
            number = int(found[1]) if found else -1
            if found and number in self.open:
                task = self.tasks[number]
                self._add(task, name, found[2].rstrip(b"\r").decode("utf-8", "replace"))
                if task.is_cut or task.ended:
                    self.open.discard(number)
                    yield number
            elif not found and name == "err" and len(self.said) < KEPT_BYTES // 64:
                self.said += (
                    [text] if (text := line.decode("utf-8", "replace").strip()[:1000]) else []
                )

    def _add(self, task: TaskOutput, name: str, line: str) -> None:
        task.size += len(line) + 1
        task.is_cut = task.size > ANSWER_LIMIT_CHARS
        if name == "err":
            task.errors += f"{line}\n" if len(task.errors) < KEPT_BYTES else ""
        elif not line.startswith("~"):
            task.noise += f"{line}\n" if len(task.noise) < KEPT_BYTES else ""
        elif end := END.fullmatch(line[1:]):
            task.ended = (int(end[1]), int(end[2]))
        else:
            task.pieces.append(line[1:])

    def _unended(self, number: int, timed_out: bool) -> TaskOutput:
        task, host = self.tasks[number], self.step.hosts[number]
        ran = [
            found[2]
            for line in self.said
            for found in TASKS.finditer(line)
            if number in _numbers(found[1])
        ]
        named = [
            line
            for line in self.said
            if re.search(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", line)
        ]
        last = self.said[-1:] or [
            f"srun ended with code {self.srun.returncode} and printed nothing"
        ]
        task.srun = (ran or named or last)[-1].removeprefix("srun: ").removeprefix("error: ")
        task.timed_out = timed_out and not ran
        task.started = bool(ran or task.size)
        task.aborted = bool(ran) and any("launch failed" in line.lower() for line in self.said)
        return task


def _numbers(text: str) -> set[int]:
    """The numbers in 0-2,7, as srun writes tasks."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found |= set(range(int(first), min(int(last or first), int(first) + 1_000_000) + 1))
    return found
