"""Eight nodes of a real Slurm on this machine, each with its own slurmd, and `unhang audit --via
slurm` over them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import audits
import slurm_here

NAMES = tuple(f"gpu{number:03d}" for number in range(1, 9))
NOBODY = 65534
NODE = "NodeHostname={host} NodeAddr=10.213.7.1"
CONFIGURATION = slurm_here.CONFIGURATION.partition("NodeName=")[0].replace(
    "TopologyPlugin=topology/tree\n", ""
) + (
    "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n"
    f"NodeName=gpu[001-008] {NODE} Port=[7001-7008] CPUs=2 Gres=gpu:h200:2 State=UNKNOWN\n"
    "PartitionName=all Nodes=ALL Default=YES State=UP\n"
    "PartitionName=few Nodes=gpu[001-002] State=UP\n"
    "PartitionName=closed Nodes=ALL AllocNodes=gpu001 State=UP\n"
)


@dataclasses.dataclass
class EightNodes:
    """slurm: of slurm_here; work: a folder of the test."""

    slurm: slurm_here.SlurmHere
    work: object

    def audit(self, *arguments, environment=None):
        """A finished audit; its folder is that of the newest run, which need not be its own if it
        failed."""
        return self._audit(self.work / "runs", arguments, environment or {})

    def audit_as_nobody(self, *arguments):
        """The same by a user who is not root, in a folder of his own: pytest's folders are for root
        alone."""
        for folder in (self.slurm.folder.parent, self.slurm.folder, self.slurm.folder / "munge"):
            folder.chmod(0o711)
        self._let_others_reach(audits.PROJECT, Path(sys.base_prefix))
        with tempfile.TemporaryDirectory(prefix="unhang-nobody-") as home:
            os.chown(home, NOBODY, NOBODY)
            before = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
            done = self._audit(Path(home, "runs"), arguments, {"HOME": home}, *before, work=home)
            kept = Path(tempfile.mkdtemp(dir=self.work)) / "run"
            if done.folder.is_dir():
                shutil.copytree(done.folder, kept)
            return dataclasses.replace(done, folder=kept)

    def _let_others_reach(self, *folders):
        """Among the nodes, whose mounts are their own: a folder above these that only its owner may
        enter gives way to an empty one with these in it."""
        closed = {
            folder: next(
                (above for above in reversed(folder.parents) if not above.stat().st_mode & 0o001),
                None,
            )
            for folder in folders
        }
        asides = {
            folder: self.slurm.folder / f"aside-{number}"
            for number, (folder, above) in enumerate(closed.items())
            if above
        }
        if any(aside.exists() for aside in asides.values()):
            return  # by an earlier test
        steps = [("mount", "--bind", folder, aside) for folder, aside in asides.items()]
        steps += [
            ("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", above)
            for above in {closed[folder] for folder in asides}
        ]
        steps += [
            step
            for folder, aside in asides.items()
            for step in (("mkdir", "-p", folder), ("mount", "--bind", aside, folder))
        ]
        for aside in asides.values():
            aside.mkdir()
        for step in steps:
            self.slurm.bed.run([str(word) for word in step], check=True)

    def _audit(self, runs, arguments, environment, *before, work=None):
        argv = [
            *before,
            str(audits.PROGRAMS / "unhang"),
            "audit",
            "--via",
            "slurm",
            "--out",
            str(runs),
            *arguments,
        ]
        variables = {**self.slurm.environment, **environment}
        captured = {
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "text": True,
            "errors": "replace",
            "timeout": audits.DEADLINE_S,
        }
        done = subprocess.run(
            self.slurm.bed.inside(argv, str(work or self.work)),
            env=variables,
            check=False,
            **captured,
        )
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        return audits.Audit(done.returncode, done.stdout, done.stderr, (runs / "latest").resolve())

    def statuses(self, done):
        """{host: status} of a run."""
        rows = [json.loads(path.read_text()) for path in (done.folder / "nodes").glob("*.json")]
        return {row["host"]: row["status"] for row in rows}

    def text_of(self, name):
        """A node's file in the run that is under way; "" for none."""
        with contextlib.suppress(FileNotFoundError, StopIteration):
            return next((self.work / "runs").glob(f"*/nodes/{name}.json")).read_text()
        return ""

    def python(self, **cases):
        """An interpreter that behaves on some nodes as shell text says, and is python3 on the
        others. Options of an audit that uses it."""
        path = self.work / "python"
        rows = "".join(f"{name}) {text} ;;\n" for name, text in cases.items())
        path.write_text(
            f'#!/bin/sh\ncase $SLURMD_NODENAME in\n{rows}esac\nexec {sys.executable} "$@"\n'
        )
        path.chmod(0o755)
        return ["-e", f"ansible_python_interpreter={path}"]

    def idle(self):
        """Waits until no job is left and every node is idle."""
        audits.wait_until(lambda: self.slurm.run("squeue", "--noheader") == "", "no job is left")
        # "idle*" is a node that Slurm has not heard of since it was resumed.
        audits.wait_until(
            lambda: (
                self.slurm.run("sinfo", "--noheader", "--partition=all", "--format=%D %T")
                == "8 idle"
            ),
            "every node is idle and answers",
        )

    def program(self, name, text):
        """The path of a program in Python."""
        path = self.work / name
        path.write_text(f"#!{sys.executable}\n{text}\n")
        path.chmod(0o755)
        return path

    def job(self, count, *options):
        """The number of a job that holds this many nodes whole, without a program."""
        argv = [
            "salloc",
            "--no-shell",
            f"--nodes={count}",
            "--ntasks-per-node=1",
            *(options or ("--exclusive",)),
        ]
        argv += [] if any(one.startswith("--ntasks=") for one in options) else [f"--ntasks={count}"]
        done = self.slurm.bed.run([*argv, "--job-name=unhang-audit"], env=self.slurm.environment)
        assert done.returncode == 0, done.stderr
        return done.stderr.split("Granted job allocation ")[1].split()[0]

    @contextlib.contextmanager
    def stopped(self, name):
        """A node whose slurmd does nothing meanwhile."""
        pid = (self.slurm.folder / f"slurmd-{name}.pid").read_text().strip()
        self.slurm.run("kill", "-STOP", pid)
        try:
            yield
        finally:
            self.slurm.run("kill", "-CONT", pid)
