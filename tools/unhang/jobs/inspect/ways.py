"""The ways to the nodes of a running job: a step beside the job's own under Slurm, as its owner and without root."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unhang.base import project
from unhang.base.errors import UserError
from unhang.jobs.inspect.bundle import checked
from unhang.prove.smoke.slurm import joined

PROGRAM = "unhang-inspect.pyz"
LOOK_S = 60.0  # srun's own start, and a look
# Takes the program from standard input, runs it, and prints its one line in short pieces, because srun mixes long lines of its tasks.
LOADER = (
    "import sys;sys.path[:]=[p for p in sys.path if p]\n"
    "import json,os,subprocess,tempfile\n"
    "d=tempfile.mkdtemp(prefix='unhang-inspect-');p=os.path.join(d,'look.pyz')\n"
    "open(p,'wb').write(sys.stdin.buffer.read())\n"
    "out=subprocess.run([sys.executable,p]+sys.argv[1:],stdout=subprocess.PIPE,stdin=subprocess.DEVNULL).stdout.strip()\n"
    "os.remove(p);os.rmdir(d)\n"
    "n=os.environ.get('SLURMD_NODENAME','?')\n"
    "out=out.replace(b'{',('{\"asked_as\":'+json.dumps(n)+',').encode(),1)\n"
    "s=[out[i:i+900] for i in range(0,len(out),900)]\n"
    "for i,x in enumerate(s):sys.stdout.buffer.write(('~%s %d/%d '%(n,i+1,len(s))).encode()+x+b'\\n')\n"
)


def slurm_documents(job: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The evidence of all nodes of a job. arguments: of the program. Raises UserError."""
    if not re.fullmatch(r"\d{1,10}(?:_\d{1,8}|\+\d{1,4})?", job):
        raise UserError(f"--slurm-job: expected the number of a job, found {job!r}")
    program = program_bytes()
    count = _nodes_of(job)
    argv = ["srun", f"--jobid={job}", "--overlap", "--quiet", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--gres=none", "--chdir=/tmp"]
    done = _run([*argv, "python3", "-c", LOADER, "--slurm-job", job, *arguments], program)
    lines = [line for line in joined(done.stdout.split(b"\n")) if line.startswith(b"{")]
    if not lines:
        raise UserError(f"--slurm-job {job}: srun brought no answer: {done.stderr.decode('utf-8', 'replace').strip()[-300:] or 'it printed nothing'}")
    return [checked(line, f"a node of job {job}") for line in lines]


def program_bytes() -> bytes:
    """The one file for nodes. Raises UserError where it was not built."""
    path = Path(project.find_project() or ".") / "dist" / PROGRAM
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"expected {path}, found none; make collector builds it") from None


def _nodes_of(job: str) -> int:
    done = _run(["squeue", "-h", "-j", job, "-t", "RUNNING", "-o", "%D"], b"")
    words = done.stdout.split()
    if done.returncode or not words or not words[0].isdigit():
        raise UserError(f"--slurm-job {job}: expected a job that runs, found {done.stderr.decode('utf-8', 'replace').strip()[-200:] or 'none'}")
    return int(words[0])


def _run(argv: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=LOOK_S)
    except FileNotFoundError:
        raise UserError(f"expected {argv[0]} on PATH, found none; run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{argv[0]} did not end within {LOOK_S:g} s") from None


def arguments_of(options: dict[str, Any]) -> list[str]:
    """A look's options as the program's arguments."""
    words = [word for name in options["without"] for word in ("--without", name)]
    for name in ("gap_s", "py_spy", "kernel_log"):
        if options[name] is not None:
            words += [f"--{name.removesuffix('_s').replace('_', '-')}", str(options[name])]
    return words
