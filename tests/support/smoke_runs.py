"""Runs `unhang smoke` with real torch and gloo in processes of its own, and loads the payload as a module for its pure functions."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAYLOAD = PROJECT / "roles" / "smoke_test" / "files" / "unhang_smoke.py"
DEADLINE_S = 240
# Small messages and long limits for steps: these tests share the machine with others.
SMALL = ("--max-size", "64K", "--sizes", "16K")
PATIENT = ("--step-timeout", "60")


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
    return [sys.executable, "-P", "-m", "unhang", "smoke", *(["--local"] if local else []), *map(str, arguments)]


def environment(**more):
    """The environment without the caller's settings of NCCL, gloo or torchrun."""
    theirs = ("NCCL_", "TORCH_", "GLOO_", "RANK", "WORLD_", "LOCAL_", "MASTER_", "SLURM_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return {**mine, "PYTHONPATH": f"{PROJECT / 'tools'}:{PROJECT / 'module_utils'}", **more}


def smoke(*arguments, form="json", local=True, **more):
    """A finished `unhang smoke --local`."""
    return _finished(command("--backend", "gloo", "--format", form, *arguments, local=local), environment(**more))


def typed(argv):
    """A finished command of a page (documented_command.as_typed)."""
    return _finished([sys.executable, "-P", "-m", *argv], environment())


def _finished(argv, variables):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=variables, stdin=subprocess.DEVNULL, check=False)
    sys.stdout.write(done.stderr[-3000:])
    return Smoke(done.returncode, done.stdout, done.stderr)


def load_payload():
    """The payload as a module; it imports torch only when it runs as a rank."""
    spec = importlib.util.spec_from_file_location("unhang_smoke", PAYLOAD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def payload_processes():
    """{pid: command line} of running agents and ranks, without zombies."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                argv = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if b"unhang_smoke.py" in argv and state != "Z":
                found[int(folder.name)] = argv.replace(b"\0", b" ").decode("utf-8", "replace")
    return found
