"""The answers to host programs (prolog, health check): a verdict in, exit code and output out. Only a fail drains a node; unknown and "not checked" never do.
The quick check on the node (unhang-quick.pyz) contains this module, so it is written for Python 3.8 and the standard library.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
PROGRAMS = ("slurm-prolog", "slurm-healthcheck", "systemd", "cloud-init", "kubernetes")
LONGEST_MESSAGE = 80  # characters that node-problem-detector keeps of a custom plugin's output, its max_output_length
LONGEST_REASON = 200
COMMAND_DEADLINE_S = 20


class HostAnswer(NamedTuple):
    """code: the exit code; line: for standard output, "" for none; command: a program to run, None for none."""

    code: int
    line: str
    command: list[str] | None


def answer_for(program: str, verdict: str, reason: str, node: str) -> HostAnswer:
    """program: of PROGRAMS; verdict: pass, fail or unknown; reason: one line; node: its name in Slurm.

    slurm-prolog: non-zero drains the node and requeues the job. slurm-healthcheck: its exit code is not looked at, so it calls scontrol itself.
    systemd, cloud-init: non-zero is a unit or a boot stage that failed. kubernetes: 0 is OK, 1 sets the condition, 2 is unknown and changes nothing.
    """
    reason = " ".join(reason.split())
    if program == "kubernetes":
        return HostAnswer({PASS: 0, FAIL: 1}.get(verdict, 2), reason[:LONGEST_MESSAGE], None)
    if program == "slurm-healthcheck":
        drain = ["scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=unhang: " + reason[:LONGEST_REASON]]
        return HostAnswer(0, reason, drain if verdict == FAIL else None)
    return HostAnswer(int(verdict == FAIL), reason, None)


def give(answer: HostAnswer) -> int:
    """Prints the answer, runs its commands, and returns the exit code. An unreachable slurmctld takes no node out of service."""
    if answer.line:
        sys.stdout.write(answer.line + "\n")
        sys.stdout.flush()
    if answer.command:
        try:
            done = subprocess.run(answer.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False)
            if done.returncode:
                sys.stderr.write("unhang: scontrol: {}\n".format(" ".join(done.stderr.split())[:300]))
        except (OSError, subprocess.SubprocessError) as problem:
            sys.stderr.write(f"unhang: could not run scontrol: {problem}\n")
    return answer.code
