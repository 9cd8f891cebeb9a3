"""Runs `unhang smoke` with real torch and gloo in processes of its own, and loads the payload as a
module for its pure functions."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
import zipfile
from dataclasses import dataclass
from pathlib import Path

from unhang.core.smoke_result import document_of
from unhang.smoke import payload_zip
from unhang.smoke.expectations import read_expectations
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
OWNER = f"UNHANG_TESTS_OF={os.getpid()}"
# Small messages and long limits for steps: these tests share the machine with others.
SMALL = ("--max-size", "64K", "--sizes", "16K")
PATIENT = ("--step-timeout", "60")
# Rank 1 of two never enters the all_reduce.
HANG = (
    "--nproc",
    2,
    *SMALL,
    "--step-timeout",
    8,
    "--phases",
    "all_reduce",
    "--drill",
    "1:absent:all_reduce",
    "--no-experiments",
)


def written_payload():
    """The payload as a file for tests that start it themselves."""
    path = PROJECT / ".cache" / payload_zip.NAME
    content = payload_zip.payload_bytes()
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(path)
    return path


PAYLOAD = written_payload()


@dataclass(frozen=True)
class Smoke:
    """One finished command. result: the JSON document, None when there is none."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self):
        return json.loads(self.stdout)

    @property
    def suspects(self):
        return self.result["suspects"]

    def phase(self, name):
        return next(row for row in self.result["phases"] if row["name"] == name)


def command(*arguments, local=True):
    """argv of the command as a user types it."""
    return [
        sys.executable,
        "-P",
        "-m",
        "unhang",
        "smoke",
        *(["--local"] if local else []),
        *map(str, arguments),
    ]


def environment(**more):
    """The environment without the caller's settings of NCCL, gloo or torchrun."""
    theirs = ("NCCL_", "TORCH_", "GLOO_", "RANK", "WORLD_", "LOCAL_", "MASTER_", "SLURM_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    name, _, value = OWNER.partition("=")
    return {
        **mine,
        name: value,
        "PYTHONPATH": f"{PROJECT / 'tools'}:{PROJECT / 'module_utils'}",
        **more,
    }


def smoke(*arguments, form="json", local=True, **more):
    """A finished `unhang smoke --local`."""
    return _finished(
        command("--backend", "gloo", "--format", form, *arguments, local=local), environment(**more)
    )


def typed(argv):
    """A finished command of a page (documented_command.as_typed)."""
    return _finished([sys.executable, "-P", "-m", *argv], environment())


def _finished(argv, variables):
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=variables,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    sys.stdout.write(done.stderr[-3000:])
    return Smoke(done.returncode, done.stdout, done.stderr)


def load_payload():
    """Everything that the zip file's modules define; they import torch only when they run as a
    rank."""
    if str(PAYLOAD) not in sys.path:
        sys.path.append(str(PAYLOAD))
    names = [name for name in zipfile.ZipFile(PAYLOAD).namelist() if "__" not in name]
    modules = [
        importlib.import_module(name.removesuffix(".py").replace("/", ".")) for name in names
    ]
    return types.SimpleNamespace(
        **{name: value for module in modules for name, value in vars(module).items()}
    )


def payload_processes():
    """{pid: command line} of running agents and ranks that a smoke test of this process began,
    without zombies: another worker's tests may run at the same time."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                argv = (folder / "cmdline").read_bytes()
                ours = OWNER.encode() in (folder / "environ").read_bytes().split(b"\0")
                state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if payload_zip.NAME.encode() in argv and ours and state != "Z":
                found[int(folder.name)] = argv.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def stalled(evidence, stack=""):
    """The verdict on a rank that waits, with this evidence of its node beside."""
    stand = {
        "phase": "all_reduce",
        "step": "x",
        "seq": 3,
        "done": 2,
        "state": "S",
        "reason": "deadline",
        "waited_s": 10,
        "stack": stack,
    }
    events = (
        {"e": "phase_begin", "rank": 0, "phase": "all_reduce"},
        {"e": "stall", "rank": 0, **stand},
        {"e": "evidence", **evidence},
        {"e": "node_end"},
    )
    return document_of(judge([Stream("gpu001", (0,), events)], read_expectations()))
