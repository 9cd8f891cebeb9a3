"""The command that continues a rollout, with the options that decide how it reaches and drains the
nodes."""

from __future__ import annotations

import shlex
from pathlib import Path

from unhang.act.rollout.soak import DEFAULT as DEFAULT_SOAK
from unhang.audit.commands.filters import Filters
from unhang.core.project import program_as_typed
from unhang.core.run.run_folder import as_typed

MAX_FAILED = "0"


class RemediateOptions(Filters, frozen=True):
    """plan: a plan, or a run's folder or id; role: whose repairs are planned, after an audit;
    ansible: arguments for ansible-playbook."""

    plan: str
    role: list[str]
    apply: bool
    status: bool
    end: bool
    undo: bool
    through: bool
    new: bool
    inventory: list[str] | None
    drain: str | None
    soak: str
    max_failed: str
    no_smoke: bool
    take_over: bool
    ansible: list[str]
    verbose: bool
    quiet: bool
    format: str


def typed_again(folder: Path, options: RemediateOptions, *more: str) -> str:
    """`unhang remediate RUN` for this plan's folder with the given options, followed by `more`.
    Omitted: filters, because the plan is already made; --take-over, which names one dead
    controller; options for the display."""
    words = (
        ["remediate", "--undo", as_typed(folder.parent)]
        if options.undo
        else ["remediate", as_typed(folder)]
    )
    words += [word for inventory in options.inventory or () for word in ("-i", inventory)]
    words += ["--drain", options.drain] if options.drain is not None else []
    words += ["--soak", options.soak] if options.soak != DEFAULT_SOAK else []
    words += ["--max-failed", options.max_failed] if options.max_failed != MAX_FAILED else []
    words += ["--through"] * options.through + ["--no-smoke"] * options.no_smoke
    words += [f"--ansible={one}" for one in options.ansible]
    return f"{program_as_typed()} {shlex.join([*words, *more])}"
