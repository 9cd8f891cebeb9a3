"""The answers to host programs (prolog, health check): a verdict in, exit code and output out. Only
a fail drains a node; a check that could not be made drains it only where the site asked for a
proof. Output that cannot be written changes no answer.

The quick check on the node (unhang-quick.pyz) contains this module, so it is written for Python 3.8
and the standard library.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import NamedTuple, TextIO

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
PROGRAMS = ("slurm-prolog", "slurm-healthcheck", "systemd", "cloud-init", "kubernetes")
# characters that node-problem-detector keeps of a custom plugin's output, its max_output_length
LONGEST_MESSAGE = 80
LONGEST_REASON = 200
COMMAND_DEADLINE_S = 20
NOT_MADE = 2  # the code of a check that could not be made, in every form in which it is told apart


class HostAnswer(NamedTuple):
    """code: the exit code; line: for standard output, "" for none; command: a program to run, None
    for none."""

    code: int
    line: str
    command: list[str] | None


def answer_for(
    program: str, verdict: str, reason: str, node: str, require_proof: bool = False
) -> HostAnswer:
    """program: of PROGRAMS; verdict: pass, fail or unknown; reason: one line; node: its name in
    Slurm; require_proof: whether unknown keeps jobs off the node.

    slurm-prolog: non-zero drains the node and requeues the job. slurm-healthcheck: its exit code is
    not looked at, so it calls scontrol itself. systemd, cloud-init: non-zero is a unit or a boot
    stage that failed. kubernetes: 0 is OK, 1 sets the condition, 2 is unknown and changes nothing.
    """
    reason = " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())
    code = {PASS: 0, FAIL: 1}.get(verdict, NOT_MADE)
    if program == "kubernetes":
        return HostAnswer(code, _printed(reason)[:LONGEST_MESSAGE], None)
    code = code if code != NOT_MADE or require_proof else 0
    if program == "slurm-healthcheck":
        drain = [
            "scontrol",
            "update",
            "NodeName=" + node,
            "State=DRAIN",
            "Reason=unhang: " + reason[:LONGEST_REASON],
        ]
        return HostAnswer(0, reason, drain if code else None)
    return HostAnswer(code, reason, None)


def give(answer: HostAnswer) -> int:
    """Prints the answer, runs its commands, and returns the exit code. An unreachable slurmctld
    takes no node out of service."""
    if answer.line:
        write_line(sys.stdout, answer.line)
    if answer.command:
        try:
            done = subprocess.run(
                answer.command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_DEADLINE_S,
                check=False,
            )
            if done.returncode:
                write_line(
                    sys.stderr, "unhang: scontrol: {}".format(" ".join(done.stderr.split())[:300])
                )
        except (OSError, subprocess.SubprocessError) as problem:
            write_line(sys.stderr, f"unhang: could not run scontrol: {problem}")
    return answer.code


def write_line(stream: TextIO | None, line: str) -> None:
    """Writes a line where that is possible: a full disk or a closed pipe is no fault of the
    node."""
    if stream is None:
        return
    try:
        stream.write(_printed(line) + "\n")
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            # or the end of the interpreter would try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _printed(text: str) -> str:
    """As any terminal can show it: longer than the text where that is not ASCII."""
    return text.encode("ascii", "backslashreplace").decode("ascii")
