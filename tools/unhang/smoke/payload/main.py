"""The command line."""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from typing import Any

from .agent import run_agent
from .events import shorten_lines
from .leftovers import clear_leftovers
from .nvml import read_nvml
from .own_file import OWN_FOLDER
from .rank import rank_place, run_rank
from .run import Failed
from .survey import survey


def main(argv: list[str]) -> int:
    """0 all well, 1 something failed, 2 wrong use, 3 stalled."""
    parser = argparse.ArgumentParser(
        description="The smoke test's payload; `unhang smoke` starts it."
    )
    parser.add_argument(
        "what", nargs="?", choices=("rank", "node", "survey", "nvml"), default="rank"
    )
    parser.add_argument("--plan", help="the plan as JSON, or @FILE")
    parser.add_argument("--events", type=int, default=1, help="descriptor for events")
    parser.add_argument("--folder", help="where status boards lie")
    parser.add_argument(
        "--short-lines",
        action="store_true",
        help="write events in numbered pieces of less than a kilobyte",
    )
    parser.add_argument("--output", help="write events to this file instead")
    parser.add_argument(
        "--remove-self",
        action="store_true",
        help="remove the folder that this file lies in, at the end",
    )
    given = parser.parse_args(argv)
    finish = (
        shorten_lines(os.environ.get("SLURMD_NODENAME", "node"))
        if given.short_lines
        else lambda: None
    )
    try:
        return do(given)
    finally:
        finish()


def do(given: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    if given.what in ("survey", "node"):
        clear_leftovers(time.time())
    if given.what == "survey":
        sys.stdout.write(json.dumps(survey()) + "\n")
        if given.remove_self and OWN_FOLDER:
            shutil.rmtree(OWN_FOLDER, ignore_errors=True)
        return 0
    if given.what == "nvml":
        sys.stdout.write(json.dumps(read_nvml()) + "\n")
        return 0
    plan = read_plan(given.plan or os.environ.get("UNHANG_SMOKE_PLAN") or "{}")
    if given.output:
        os.dup2(os.open(given.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    return run_agent(plan) if given.what == "node" else run_one_rank(given, plan)


def run_one_rank(given: argparse.Namespace, plan: dict[str, Any]) -> int:
    """Runs this process as one rank, with its rank number from the launcher's environment; returns
    the exit code."""
    try:
        place = rank_place(os.environ)
    except Failed as problem:
        sys.stderr.write("unhang_smoke: %s\n" % problem)
        return 2
    plan.setdefault("master_address", os.environ.get("MASTER_ADDR", "127.0.0.1"))
    # torchrun has its own store at MASTER_PORT: the smoke test's store uses the next port.
    plan.setdefault(
        "master_port",
        int(os.environ.get("MASTER_PORT", "29511"))
        + (1 if "TORCHELASTIC_RUN_ID" in os.environ else 0),
    )
    plan.setdefault("world_size", place[1])
    if given.folder:
        return run_rank(plan, place, given.events, given.folder)
    folder = tempfile.mkdtemp(prefix="unhang-smoke-")
    try:
        return run_rank(plan, place, given.events, folder)
    finally:
        # no agent knows of this folder, and its content was reported
        shutil.rmtree(folder, ignore_errors=True)


def read_plan(text: str) -> dict[str, Any]:
    """The plan: from the argument, from the file that it names, or, under Slurm, this node's part
    of all nodes' plans (=, then base64 of packed JSON)."""
    if text.startswith("="):
        return dict(
            json.loads(zlib.decompress(base64.b64decode(text[1:])))[os.environ["SLURMD_NODENAME"]]
        )
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as source:
            text = source.read()
    return dict(json.loads(text))


def run_and_exit() -> None:
    """The whole program."""
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: at its end the interpreter would wait for a process group that is broken.
    os._exit(code)
