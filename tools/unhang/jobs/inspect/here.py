"""A look at this machine: the program that other nodes run, in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import unhang_node
from unhang.core.errors import UserError
from unhang.jobs.inspect.ways import end_of

MODULES = str(Path(unhang_node.__path__[0]).parent)
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from unhang_node.job.{} import main;"
    " sys.exit(main({}))"
)


def node_program(module: str, takes: str = "") -> list[str]:
    """The words that start main() of a module of unhang_node.job. takes: its parameter."""
    return [sys.executable, "-P", "-c", START.format(module, takes), MODULES]


class LookHere:
    """One look after another; end() ends the one under way."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None

    def evidence(self, arguments: Sequence[str], limit_s: float | None = None) -> dict[str, Any]:
        """What the program prints for these arguments. Raises UserError."""
        self.child = subprocess.Popen(
            [*node_program("command", "sys.argv[1:]"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            printed, problem = self.child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise UserError(f"it did not end within {limit_s:g} s") from None
        finally:
            self.end()
        if self.child.returncode:
            why = end_of(problem, 300).removeprefix("unhang-inspect: ")
            raise UserError(why or f"it ended with {self.child.returncode}")
        return dict(json.loads(printed))

    def end(self) -> None:
        """SIGINT, because a look ends the children that read its sources, each in a session of its
        own; SIGKILL if that takes longer than a busy machine needs."""
        if self.child and self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(10)  # three times what a look gives its own children (GRACE_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
