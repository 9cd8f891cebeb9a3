"""The command that continues a rollout, with the options that decide how it reaches and drains the
nodes."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from unhang.act.rollout.soak import DEFAULT as DEFAULT_SOAK
from unhang.core.ansible.playbook_command import as_typed
from unhang.core.project import program_as_typed

_VALUES = ("drain", "soak", "max_failed")
_FLAGS = ("through", "no_smoke")
_DEFAULTS = {"max_failed": "0", "soak": DEFAULT_SOAK}


def typed_again(folder: Path, arguments: argparse.Namespace, *more: str) -> str:
    """`unhang remediate RUN` for this plan's folder with the given options, followed by `more`.
    Omitted: filters, because the plan is already made; --take-over, which names one dead
    controller; options for the display."""
    words = (
        ["remediate", "--undo", as_typed(folder.parent)]
        if arguments.undo
        else ["remediate", as_typed(folder)]
    )
    words += [word for inventory in arguments.inventory or () for word in ("-i", inventory)]
    for name in _VALUES:
        value = getattr(arguments, name)
        words += (
            [f"--{name.replace('_', '-')}", str(value)]
            if value is not None and value != _DEFAULTS.get(name)
            else []
        )
    words += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(arguments, name)]
    words += [f"--ansible={one}" for one in arguments.ansible]
    return f"{program_as_typed()} {shlex.join([*words, *more])}"
