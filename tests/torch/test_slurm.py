"""`unhang smoke --launcher slurm` with a stand-in for srun that starts one task per node here: the
options that it gets and the results that it returns."""

from __future__ import annotations

import json
import sys

import pytest
from smoke_runs import PATIENT, SMALL, smoke

# One task for each node of the list, with the node's name, and output line by line, as srun does.
SRUN = """#!{python}
import json, os, subprocess, sys, threading
words = sys.argv[1:]
hosts = next(word for word in words if word.startswith("--nodelist=")).split("=", 1)[1].split(",")
with open({log!r}, "a") as log:
    log.write(json.dumps([word for word in words if word.startswith("--")]) + "\\n")
program = words[words.index("python3"):]
tasks = [subprocess.Popen([{python!r}, *program[1:]], env=dict(os.environ, SLURMD_NODENAME=host), stdout=subprocess.PIPE) for host in hosts if host != "down01"]
lock = threading.Lock()
def relay(task):
    for line in task.stdout:
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
threads = [threading.Thread(target=relay, args=(task,)) for task in tasks]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(max(task.wait() for task in tasks) if tasks else 1)
"""


@pytest.fixture
def slurm(tmp_path):
    """(run, log): run(*arguments) is a finished command; log: the options that srun was given."""
    log = tmp_path / "srun.log"
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(python=sys.executable, log=str(log)))
    srun.chmod(0o755)

    def run(*arguments):
        path = f"{tmp_path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        options = (
            "--launcher",
            "slurm",
            "--nproc",
            "1",
            "--python",
            sys.executable,
            "--phases",
            "all_reduce",
            "--no-experiments",
            "--no-isolate",
        )
        return smoke(*options, *SMALL, *PATIENT, *arguments, local=False, PATH=path)

    return run, lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_one_srun_surveys_and_one_runs_the_group(slurm):
    run, given = slurm
    done = run("--hosts", "here01", "--srun=--partition=gpu", "--srun=--gres=gpu:8")
    assert (done.code, done.result["launcher"], done.result["world_size"]) == (0, "slurm", 1), (
        done.stdout
    )
    assert len(given()) == 2
    for argv in given():
        assert {
            "--nodelist=here01",
            "--nodes=1",
            "--ntasks-per-node=1",
            "--partition=gpu",
            "--gres=gpu:8",
        } <= set(argv)


def test_a_node_that_srun_cannot_start_is_named_and_the_other_passes(slurm):
    run, _ = slurm
    done = run("--hosts", "here01,down01")
    assert done.code == 1
    assert [(row["host"], row["phase"]) for row in done.suspects] == [("down01", "launch")]
    assert "srun brought no answer" in done.suspects[0]["why"]
    assert {row["status"] for row in done.result["phases"]} == {"ok"}


def test_without_srun_the_command_says_so():
    done = smoke("--launcher", "slurm", "--hosts", "n1", local=False, PATH="/nowhere")
    assert done.code == 2
    assert "srun" in done.stderr
