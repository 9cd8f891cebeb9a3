"""The ways to the nodes of a running job: a step beside the job's own under Slurm, as its owner and
without root."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unhang.core.errors import UserError
from unhang.core.line_pieces import PIECE, joined_by_key
from unhang.core.project import find_project
from unhang.core.secrets_in_text import without_secrets
from unhang.jobs.inspect.bundle import checked, unanswered

MOST_MASKED_BYTES = 65536
JOB = r"[0-9]{1,10}(?:_[0-9]{1,8}|\+[0-9]{1,4})?"
SQUEUE_FIELDS = "JobID:|,JobArrayID:|,State:|,exit_code:|,NumNodes:|"
SQUEUE_ROW = re.compile(rf"([0-9]+)\|({JOB})\|([A-Z_]+)\|([0-9]{{1,10}})\|([0-9]{{1,9}})\|(.*)")
LOOK_S = 60.0  # srun's own start, and a look
NODE = "asked_as"  # in a document: the node that it is of
# as LOADER begins a line
NAMED = re.compile(rb'\{"asked_as": ?"([A-Za-z0-9_][A-Za-z0-9_.-]{0,254})"')
TASK = re.compile(rb" *(\d{1,6}): ?")  # before each line of `srun --label`
# Takes the program from standard input, runs it, and prints its one line in short pieces, because
# srun mixes long lines of its tasks.
LOADER = (
    "import json,os,subprocess,sys,tempfile\n"
    "d=tempfile.mkdtemp(prefix='unhang-inspect-');p=os.path.join(d,'look.pyz')\n"
    "open(p,'wb').write(sys.stdin.buffer.read())\n"
    "out=subprocess.run([sys.executable,'-I',p]+sys.argv[1:],stdout=subprocess.PIPE,stdin=subprocess.DEVNULL).stdout.strip()\n"
    "os.remove(p);os.rmdir(d)\n"
    "n=os.environ.get('SLURMD_NODENAME','?')\n"
    "out=out.replace(b'{',('{\"asked_as\":'+json.dumps(n)+',').encode(),1)\n"
    "s=[out[i:i+900] for i in range(0,len(out),900)]\n"
    "for i,x in enumerate(s):sys.stdout.buffer.write(('~%s %d/%d '%(n,i+1,len(s))).encode()+x+b'\\n')\n"  # noqa: E501
)


def slurm_documents(job: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The evidence of all nodes of a job; of a node whose answer is none, or that gave none, one
    that says why. arguments: of the program. Raises UserError."""
    count = nodes_of(job)
    done = run_of_slurm(
        [*step_of(job, count), "python3", "-I", "-c", LOADER, "--slurm-job", job, *arguments],
        program_bytes(),
    )
    lines = list(lines_of_tasks(done.stdout.split(b"\n")))
    why = end_of(done.stderr, 300) or "srun printed nothing"
    if not lines:
        raise UserError(f"--slurm-job {job}: srun brought no answer: {why}")
    silent = sorted({*range(count)} - {int(task) for task, _ in lines})
    return [
        *named_by_task((task, _document(task, line)) for task, line in lines),
        *(unanswered(f"task{task}", why) for task in silent),
    ]


def _document(task: bytes, line: bytes) -> dict[str, Any]:
    """What a task answered, as its own evidence: one node's answer costs no other's."""
    named = NAMED.match(line)
    host = (named[1] if named else b"task" + task).decode()
    try:
        return checked(line, host)
    except UserError as problem:
        return unanswered(host, problem)


def lines_of_tasks(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(task, complete line) of the pieces that `srun --label` brings. They are joined by srun's
    number, so that no node adds to the line of another."""
    return joined_by_key(piece for line in lines if (piece := _keyed_by_task(line)))


def _keyed_by_task(line: bytes) -> bytes:
    label = TASK.match(line)
    piece = label and PIECE.match(line, label.end())
    return (
        b"~%s %s/%s %s" % (label[1], piece[2], piece[3], line[piece.end() :])
        if label and piece
        else b""
    )


def named_by_task(documents: Iterable[tuple[bytes, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The documents, each task under the name that it gave first; a name that another task has
    already is followed by the task's number."""
    names: dict[bytes, str] = {}
    for task, document in documents:
        if task not in names:
            said = str(document.get(NODE) or "?")
            names[task] = f"{said}/task{task.decode()}" if said in names.values() else said
        yield {**document, NODE: names[task]}


def step_of(job: str, count: int) -> list[str]:
    """srun for one task on each of the job's nodes, beside its own steps."""
    return [
        "srun",
        f"--jobid={job}",
        "--overlap",
        "--quiet",
        "--label",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--gres=none",
        "--chdir=/tmp",
    ]


def program_bytes() -> bytes:
    """The one file for nodes, built anew: an installed wheel holds its builder."""
    with tempfile.TemporaryDirectory(prefix="unhang-inspect-") as folder:
        target = Path(folder, "look.pyz")
        command = [Path(sys.executable), find_project() / "tools/collector/job.py", target]
        subprocess.run(command, capture_output=True, check=True)
        return target.read_bytes()


def nodes_of(job: str) -> int:
    """The number of nodes of a job that runs. Raises UserError."""
    found = read_slurm_job(job)
    if found.state != "RUNNING":
        raise UserError(f"--slurm-job {job}: the job is {found.state}, not running")
    return found.nodes


class SlurmJob(NamedTuple):
    """name: what Slurm's commands call it: of an array the last task has the array's own number, by
    which they mean all of it. exit_status: as of wait(2). comment: the user's own text, as it is;
    "" where it was not asked for."""

    number: str
    name: str
    state: str
    exit_status: int
    nodes: int
    comment: str


def read_slurm_job(job: str, with_comment: bool = False) -> SlurmJob:
    """A job that Slurm still knows, by squeue's fields: no user writes into one but the comment,
    which is the last. With lines of its own it makes the answer ambiguous, which is refused as any
    other form is. Raises UserError."""
    if not re.fullmatch(JOB, job):
        raise UserError(f"--slurm-job takes the number of a job, not {job!r}")
    form = f"--Format={SQUEUE_FIELDS}{',Comment:' * with_comment}"
    done = run_of_slurm(["squeue", "-h", "-j", job, "-t", "all", form])
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    rows = [row for row in map(SQUEUE_ROW.fullmatch, lines) if row and job in row.group(1, 2)]
    if done.returncode or len(rows) != 1:
        found = end_of(done.stderr, 200).rpartition("\n")[2] or f"{len(rows)} lines about it"
        raise UserError(f"squeue -j {job} does not name one job that Slurm knows: {found}")
    number, name, state, status, nodes, comment = rows[0].groups()
    return SlurmJob(number, name, state, int(status), int(nodes), comment)


def run_of_slurm(argv: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command of Slurm that ended. Raises UserError."""
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=LOOK_S)
    except FileNotFoundError:
        raise UserError(
            f"{argv[0]} is not on PATH; run this on a login node of the cluster"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{argv[0]} did not end within {LOOK_S:g} s") from None


def end_of(printed: bytes, most: int) -> str:
    """The last characters of what a command of Slurm printed: srun repeats arguments and variables
    of the site, which may be secrets."""
    return without_secrets(printed[-MOST_MASKED_BYTES:].decode("utf-8", "replace")).strip()[-most:]


def arguments_of(options: Mapping[str, Any]) -> list[str]:
    """A look's options as the program's arguments, but those that say which job."""
    words = [word for name in options.get("without", ()) for word in ("--without", name)]
    words += ["--slow"] * bool(options.get("slow"))
    for name in ("container", "gap_s", "py_spy", "kernel_log"):
        if options.get(name) is not None:
            words.append(f"--{name.removesuffix('_s').replace('_', '-')}={options[name]}")
    return words
