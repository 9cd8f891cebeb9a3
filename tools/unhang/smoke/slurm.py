"""Nodes through Slurm: one srun for the surveys, one for each group. srun ends its tasks when it
ends; the agents also have deadlines of their own."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unhang.core.line_pieces import PIECE, joined
from unhang.smoke.bootstrap import carried
from unhang.smoke.local import OnEvent, last_of, lines_of, listen
from unhang.smoke.node_plans import NodePlan
from unhang.smoke.streams import Event, Stream, parse_event, read_stream

SURVEY_S = 120.0  # an allocation may have to wait its turn


@dataclass(frozen=True)
class Cluster:
    """arguments: for srun, such as --partition and --gres; program: what runs the ranks' agent on a
    node; payload: its content.

    container: srun's options for the container of the ranks; the survey is the node's own.
    """

    payload: bytes
    program: tuple[str, ...] = ("python3",)
    arguments: tuple[str, ...] = ()
    container: tuple[str, ...] = ()


def survey_words(hosts: Sequence[str], cluster: Cluster) -> list[str]:
    """argv of the survey on each of these nodes."""
    return srun_argv(
        hosts,
        replace(cluster, program=("python3",), container=()),
        "survey",
        "--remove-self",
        "--short-lines",
    )


def srun_argv(hosts: Sequence[str], cluster: Cluster, *arguments: str) -> list[str]:
    """argv of one task on each of these nodes."""
    count = str(len(hosts))
    argv = [
        "srun",
        "--quiet",
        f"--nodelist={','.join(hosts)}",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=0",
    ]
    # The caller's folder may not exist on the nodes, and anybody may have put something in /tmp.
    return [
        *argv,
        "--chdir=/",
        *cluster.arguments,
        *cluster.container,
        *carried(cluster.program, cluster.payload, *arguments),
    ]


def survey_all(hosts: Sequence[str], cluster: Cluster) -> dict[str, Mapping[str, Any] | str]:
    """The payload's survey of each node, or why there is none."""
    output, errors, _ = _srun(survey_words(hosts, cluster), SURVEY_S, None)
    events = [
        event
        for line in joined(output.split(b"\n"))
        if (event := parse_event(line)) and event["e"] == "survey"
    ]
    answers: dict[str, Mapping[str, Any]] = {
        str(event.get("slurm_node")): event for event in events
    }
    reason = f"srun brought no answer from it{_last(errors)}"
    return {host: answers.get(host, reason) for host in hosts}


def run_group(
    plans: Sequence[NodePlan], cluster: Cluster, on_event: OnEvent | None = None
) -> list[Stream]:
    """Runs one group under one srun."""
    whole = {plan.host: {**plan.document, "remove_self": True} for plan in plans}
    packed = "=" + base64.b64encode(zlib.compress(json.dumps(whole).encode(), 9)).decode("ascii")
    limit_s = max(plan.limit_s for plan in plans) + SURVEY_S
    argv = srun_argv(
        [plan.host for plan in plans], cluster, "node", "--short-lines", "--plan", packed
    )
    output, errors, code = _srun(argv, limit_s, on_event)
    lines: dict[str, list[bytes]] = {plan.host: [] for plan in plans}
    for line in joined(output.split(b"\n")):
        event = parse_event(line)
        if event and event.get("host") in lines:
            lines[str(event["host"])].append(line)
    reason = f"srun ended with code {code}{_last(errors)}"
    return [read_stream(plan.host, plan.ranks, lines[plan.host], reason) for plan in plans]


def _srun(
    argv: Sequence[str], limit_s: float, on_event: OnEvent | None
) -> tuple[bytes, bytes, int | None]:
    try:
        return listen(argv, limit_s, on_event, short_event, subprocess.DEVNULL)
    except OSError as problem:
        return b"", f"srun: {problem.strerror}".encode(), None


def short_event(line: bytes) -> Event | None:
    """A complete event: enough to show the progress."""
    found = PIECE.match(line)
    return parse_event(line[found.end() :]) if found and found[2] == found[3] == b"1" else None


def _last(errors: bytes) -> str:
    """The task's own last words where there are any, else srun's."""
    lines = lines_of(errors)
    theirs = [line for line in lines if not line.startswith(("srun: ", "slurmstepd: "))]
    return last_of(theirs or lines)
