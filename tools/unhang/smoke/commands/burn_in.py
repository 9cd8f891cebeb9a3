"""`unhang smoke --local --burn-in TIME`: keeps the GPUs of this machine at full load and checks every result."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from unhang.core import project
from unhang.core.errors import UserError
from unhang.core.verdict.streams import Event
from unhang.smoke.burn_in.folder import next_burn_in_step
from unhang.smoke.burn_in.local import burn_in_path, parse_burn_drill, parse_duration, run_burn_in
from unhang.smoke.burn_in.verdict import judge_burn_in
from unhang.smoke.commands.smoke_output import deliver, exit_code
from unhang.smoke.expectations import read_expectations


def burn_in(arguments: argparse.Namespace, way: list[str]) -> int:
    """The exit code of `unhang smoke`. way: the options that choose where to run. Raises UserError."""
    if way == ["--hosts"] or arguments.as_hosts is not None:
        raise UserError(f"--burn-in: expected --local alone beside it, found {' and '.join(['--as-hosts'] if arguments.as_hosts else way)}")
    return write_next_burn_in_step(arguments) if way == ["--step-in"] else burn_in_here(arguments)


def burn_in_here(arguments: argparse.Namespace) -> int:
    """0 pass, 1 fail, 2 not proved. arguments: of `unhang smoke`."""
    plan = plan_of(arguments)
    rates = read_expectations().counter_rates
    events = run_burn_in(plan, burn_in_path(project.find_project()), show_progress)
    document = judge_burn_in(events, os.uname().nodename, rates, plan)
    deliver(document, arguments)
    return exit_code(document)


def write_next_burn_in_step(arguments: argparse.Namespace) -> int:
    """The next step of a burn-in in the folder --step-in, as JSON on standard output."""
    print(json.dumps(next_burn_in_step(Path(arguments.step_in), plan_of(arguments), read_expectations().counter_rates)))
    return 0


def plan_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The plan of the payload. Raises UserError."""
    if len(arguments.drill) > 1:
        raise UserError(f"--drill: expected one with --burn-in, found {len(arguments.drill)}")
    if arguments.container_image:
        raise UserError("--container-image: expected none with --burn-in, which runs under --python")
    if arguments.nproc is not None and arguments.nproc < 1:
        raise UserError(f"--nproc: expected a number above 0, found {arguments.nproc}")
    return {
        "device": "cpu" if arguments.backend == "gloo" else "cuda", "duration_s": parse_duration(arguments.burn_in, "--burn-in"), "nproc": arguments.nproc,
        "python": arguments.python, "drill": parse_burn_drill(arguments.drill[0]) if arguments.drill else None,
    }  # fmt: skip


def show_progress(_: str, event: Event) -> None:
    """Prints one event of interest to a person on standard error."""
    if event["e"] == "progress":
        line = f"unhang: burn-in, {event['seconds']} s: {event['ready']} of {event['workers']} GPUs at work, {event['results']} results, {event['wrong']} wrong"
        print(line, file=sys.stderr, flush=True)
    elif event["e"] == "wrong":
        print(f"unhang: burn-in: GPU {event['gpu']}: wrong result in {event['what']}", file=sys.stderr, flush=True)
