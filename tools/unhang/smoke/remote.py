"""Nodes over ssh, without an inventory. Host keys are checked: an unknown one is refused, which is
not fabric's default."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko

from unhang.smoke.bootstrap import carried, node_arguments, shell_line
from unhang.smoke.local import OnEvent, last_of, lines_of, report_new, survey_in
from unhang.smoke.node_plans import NodePlan
from unhang.smoke.streams import MOST_LINE_BYTES, Event, Stream, read_stream

# never in a container: it reads the node's own addresses, routes and GPUs
SURVEY_PROGRAM = ("python3",)
CONNECT_S = 15
SURVEY_S = 30
ENDING_S = 30.0
KILLED = -1
NOTICE_S = 2.0  # seconds in which a node should notice another node's failure by itself
TROUBLE = ("stall", "exit", "node_failed")
# milliseconds without an answer to keep-alives after which the connection counts as lost
DEAD_AFTER_MS = 15_000
KEEPALIVE_S = 5


@dataclass(frozen=True)
class Access:
    """How nodes are reached. program: what runs the ranks' agent there, such as a container's argv;
    the survey is the node's own. payload: its content."""

    payload: bytes
    program: tuple[str, ...] = ("python3",)
    user: str | None = None
    ssh_config: str | None = None


class Unreachable(Exception):
    """The node cannot be reached; the text gives the reason in one line."""


def connect(host: str, access: Access) -> fabric.Connection:
    """An open connection. Raises Unreachable."""
    overrides: dict[str, Any] = {"load_ssh_configs": access.ssh_config is None}
    config = fabric.Config(overrides=overrides, runtime_ssh_path=access.ssh_config)
    connection = fabric.Connection(host, user=access.user, config=config, connect_timeout=CONNECT_S)
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        for path in _known_hosts(connection):
            if Path(path).is_file():
                connection.client.load_host_keys(path)
        connection.open()
    except Exception as problem:
        # paramiko and fabric raise a dozen kinds here, the config parser its own: each is one
        # reason why this node cannot be asked.
        with contextlib.suppress(Exception):
            connection.close()
        raise Unreachable(_reason(host, problem)) from None
    transport = connection.transport
    transport.set_keepalive(KEEPALIVE_S)
    with contextlib.suppress(OSError, AttributeError):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
    return connection


def _known_hosts(connection: fabric.Connection) -> list[str]:
    named = str(
        connection.ssh_config.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    ).split()
    return [
        "/etc/ssh/ssh_known_hosts",
        *(os.path.expanduser(path) for path in named),  # noqa: PTH111
    ]


def _reason(host: str, problem: Exception) -> str:
    text = " ".join(str(problem).split())[:300]
    if isinstance(problem, paramiko.BadHostKeyException):
        return "its host key is not the one that known_hosts has: find out why before you connect"
    if "not found in known_hosts" in text:
        return f"its host key is not in known_hosts: ssh {host} by hand first, and compare the key"
    if isinstance(problem, paramiko.AuthenticationException):
        return f"ssh refused to let us in: {text}"
    if isinstance(problem, socket.gaierror):
        return f"its name does not resolve: {problem.strerror}"
    return f"cannot be reached by ssh: {text or type(problem).__name__}"


def survey_all(hosts: Sequence[str], access: Access) -> dict[str, dict[str, Any] | str]:
    """The payload's survey of each host at the same time, or why there is none."""
    with ThreadPoolExecutor(max_workers=min(64, len(hosts))) as workers:
        return dict(zip(hosts, workers.map(lambda host: _survey(host, access), hosts), strict=True))


def _survey(host: str, access: Access) -> dict[str, Any] | str:
    try:
        connection = connect(host, access)
    except Unreachable as problem:
        return str(problem)
    with connection:
        output, errors, code = _exchange(
            connection,
            shell_line(carried(SURVEY_PROGRAM, access.payload, "survey", "--remove-self")),
            SURVEY_S,
            None,
        )
    if found := survey_in(output):
        return found
    return f"{SURVEY_PROGRAM[0]} did not run there (code {code}){last_of(lines_of(errors))}"


def run_group(
    plans: Sequence[NodePlan], access: Access, on_event: OnEvent | None = None
) -> list[Stream]:
    """Runs one group, all nodes at the same time. When a node's connection ends, its ranks end
    too."""
    trouble = threading.Event()
    with ThreadPoolExecutor(max_workers=len(plans)) as workers:
        return list(workers.map(lambda plan: _run_node(plan, access, on_event, trouble), plans))


def _run_node(
    plan: NodePlan, access: Access, on_event: OnEvent | None, trouble: threading.Event
) -> Stream:
    def note(event: Event) -> None:
        if event["e"] in TROUBLE:
            trouble.set()
        if on_event:
            on_event(event)

    try:
        connection = connect(plan.host, access)
    except Unreachable as problem:
        trouble.set()
        return Stream(plan.host, plan.ranks, (), str(problem))
    line = shell_line(carried(access.program, access.payload, *node_arguments(plan)))
    with contextlib.closing(connection):
        output, errors, code = _exchange(connection, line, plan.limit_s + ENDING_S, note, trouble)
    how = "was ended by a signal" if code == KILLED else f"ended with code {code}"
    ended = f"the agent {how}{last_of(lines_of(errors))}"
    why = "the connection was lost" if code is None else ended
    stream = read_stream(plan.host, plan.ranks, output.split(b"\n"), why)
    if stream.problem:
        trouble.set()
    return stream


def _exchange(
    connection: fabric.Connection,
    line: str,
    limit_s: float,
    on_event: OnEvent | None,
    trouble: threading.Event | None = None,
) -> tuple[bytes, bytes, int | None]:
    """(output, errors, exit code) of a command whose standard input stays open until it ends or the
    limit is reached.

    The exit code is KILLED for a command that a signal ended, None when the connection broke.
    trouble: when another node sets it, this one is asked for its evidence.
    """
    output, errors = bytearray(), bytearray()
    reported, until = 0, time.monotonic() + limit_s
    ask_at: float | None = None
    try:
        channel = connection.transport.open_session(timeout=CONNECT_S)
        channel.exec_command(line)
        while time.monotonic() < until:
            idle = not _received(channel, output, errors)
            reported = report_new(output, reported, on_event)
            if (
                channel.exit_status_ready()
                and not channel.recv_ready()
                and not channel.recv_stderr_ready()
            ):
                code = channel.recv_exit_status()
                return (
                    bytes(output),
                    bytes(errors),
                    code if code >= 0 else KILLED if _answers(connection) else None,
                )
            if not connection.transport.is_active():
                break
            if trouble is not None and trouble.is_set():
                ask_at = _ask_for_evidence(channel, ask_at)
            if idle:
                channel.status_event.wait(0.05)
    except (OSError, EOFError, paramiko.SSHException):
        pass  # the received part is kept; the caller sees that the end was not reported
    return bytes(output), bytes(errors), None


def _ask_for_evidence(channel: paramiko.Channel, ask_at: float | None) -> float:
    """Asks once, NOTICE_S after the first call. Returns the time to ask: infinity after it was
    done."""
    now = time.monotonic()
    if ask_at is None:
        return now + NOTICE_S
    if now <= ask_at:
        return ask_at
    channel.sendall(b"evidence\n")
    return math.inf


def _received(channel: paramiko.Channel, output: bytearray, errors: bytearray) -> bool:
    """Appends what has come meanwhile; False when nothing has."""
    before = len(output) + len(errors)
    while channel.recv_ready():
        output += channel.recv(MOST_LINE_BYTES)
    while channel.recv_stderr_ready():
        errors += channel.recv_stderr(65536)
    return len(output) + len(errors) > before


def _answers(connection: fabric.Connection) -> bool:
    """Whether the connection still carries anything: paramiko gives no exit code both for a signal
    and for a connection that is gone."""
    try:
        connection.transport.open_session(timeout=CONNECT_S).close()
        return True
    except (OSError, EOFError, paramiko.SSHException):
        return False
