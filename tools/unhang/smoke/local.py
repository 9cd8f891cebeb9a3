"""Starts the payload's agent on this machine and reads its events. If this process ends, the agent
ends too, with its ranks."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.core.child_processes import ENDING_S, die_with_parent, end_process
from unhang.smoke.bootstrap import carried, node_arguments
from unhang.smoke.node_plans import NodePlan
from unhang.smoke.streams import (
    MOST_LINE_BYTES,
    Event,
    Stream,
    parse_event,
    parse_events,
    read_stream,
)

SURVEY_S = 60.0
OnEvent = Callable[[Event], None]


def free_port() -> int:
    """A free TCP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def survey_here(payload: bytes) -> dict[str, Any]:
    """The payload's survey of this machine; {} if it gives none."""
    argv = carried([sys.executable], payload, "survey", "--remove-self")
    try:
        asked = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SURVEY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return survey_in(asked.stdout) or {}


def run_local(
    plan: NodePlan,
    payload: bytes,
    program: Sequence[str] | None = None,
    on_event: OnEvent | None = None,
    environment: Mapping[str, str] | None = None,
) -> Stream:
    """Runs one node's part here, to its end or its deadline. program: a container's command that
    ends in an interpreter; None for this one."""
    argv = carried(program or [sys.executable], payload, *node_arguments(plan))
    try:
        output, errors, code = listen(argv, plan.limit_s, on_event, environment=environment)
    except OSError as problem:
        return Stream(plan.host, plan.ranks, (), f"could not start {argv[0]}: {problem.strerror}")
    why = f"the agent ended with code {code}{last_of(lines_of(errors))}"
    return read_stream(plan.host, plan.ranks, output.split(b"\n"), why)


def listen(
    argv: Sequence[str],
    limit_s: float,
    on_event: OnEvent | None,
    parse: Callable[[bytes], Event | None] = parse_event,
    stdin: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes, int]:
    """(output, errors, exit code) of a program that ends with this one. Complete events are
    reported on the way. Raises OSError."""
    with subprocess.Popen(
        argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 -- one call of prctl, nothing that takes a lock
    ) as agent:  # fmt: skip
        try:
            output, errors = _heard(agent, time.monotonic() + limit_s + ENDING_S, on_event, parse)
        finally:
            end_process(agent)
    return output, errors, agent.returncode


def _heard(
    agent: subprocess.Popen[bytes],
    deadline: float,
    on_event: OnEvent | None,
    parse: Callable[[bytes], Event | None],
) -> tuple[bytes, bytes]:
    """What it prints until it closes its output, or until the deadline."""
    assert agent.stdout is not None
    assert agent.stderr is not None
    received: dict[int, bytearray] = {
        agent.stdout.fileno(): bytearray(),
        agent.stderr.fileno(): bytearray(),
    }
    reported = 0
    with selectors.DefaultSelector() as selector:
        for descriptor in received:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(0.5):
                piece = os.read(key.fd, MOST_LINE_BYTES)
                received[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
            reported = report_new(received[agent.stdout.fileno()], reported, on_event, parse)
    return bytes(received[agent.stdout.fileno()]), bytes(received[agent.stderr.fileno()])


def report_new(
    output: bytearray,
    reported: int,
    on_event: OnEvent | None,
    parse: Callable[[bytes], Event | None] = parse_event,
) -> int:
    """Reports the complete events behind the first `reported` bytes; how many bytes that are
    now."""
    end = output.rfind(b"\n") + 1
    if on_event and end > reported:
        for line in bytes(output[reported:end]).splitlines():
            event = parse(line)
            if event:
                on_event(event)
    return max(reported, end)


def survey_in(output: bytes) -> dict[str, Any] | None:
    """The payload's survey among the lines of a node."""
    events = parse_events(output.split(b"\n"), ())
    return next((event for event in events if event["e"] == "survey"), None)


def lines_of(errors: bytes) -> list[str]:
    """What a program printed, without empty lines."""
    lines = map(str.strip, errors.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line]


def last_of(lines: Sequence[str]) -> str:
    """The end of a sentence: a program's last words, if it had any."""
    return f": {lines[-1][:300]}" if lines else ""
