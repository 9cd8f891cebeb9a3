"""The options --webhook and --hook, which receive what is new: findings, or a hang. Each has a
deadline; a failure prints one line and changes nothing else."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from unhang import __version__
from unhang.core.commands.common_options import add_repeatable
from unhang.core.commands.options import Options
from unhang.core.commands.webhook_forms import body_for
from unhang.core.errors import UserError
from unhang.core.secrets_in_text import without_secrets
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.text import visible

WEBHOOK_S = 15.0
HOOK_S = 60.0
MOST_ADDRESS_BYTES = 16 * 1024
MOST_TAIL = 2000  # bytes of a hook's output that are kept


def add_hooks(parser: argparse.ArgumentParser) -> None:
    shown = parser.add_argument_group(
        "notifications of new and resolved findings at or above --fail-on"
    )
    add_repeatable(
        shown,
        "--webhook",
        "URL",
        "POST them as JSON to this URL, to Slack and Teams as a message; @FILE reads the URL,"
        " which is a secret, from a file",
    )
    add_repeatable(
        shown,
        "--hook",
        "COMMAND",
        "run this program with them as JSON on standard input (no shell)",
    )


class Hooks(Options, frozen=True):
    """Whom to notify: addresses and commands, as they were typed."""

    webhook: list[str]
    hook: list[str]


def check_hooks(hooks: Hooks) -> None:
    """Checks the hooks before a node is read. Raises UserError."""
    for one in hooks.webhook:
        _address(one)
    for program in (_argv(one)[0] for one in hooks.hook):
        if shutil.which(program) is None:
            raise UserError(
                f"--hook: {visible(program, 200)} is not a program that can be started; it would be"
                " missed when there is news"
            )


def send(
    message: Mapping[str, Any],
    hooks: Hooks,
    called: Callable[[Sequence[str], Mapping[str, Any]], str | None],
) -> list[str]:
    """Sends it to each webhook and hook; one line for each that failed. called: call_in_a_session,
    or call_and_end_all where this process has no other children."""
    failed = [
        f"webhook of {visible(urlsplit(_address(one)).hostname, 200)}: {why}"
        for one in hooks.webhook
        if (why := post(_address(one), message))
    ]
    return failed + [
        f"hook {visible(_argv(one)[0], 200)}: {why}"
        for one in hooks.hook
        if (why := called(_argv(one), message))
    ]


def post(address: str, news: Mapping[str, Any], limit_s: float = WEBHOOK_S) -> str | None:
    """POSTs the message; returns why it failed, without the address, or None."""
    answers: list[str | None] = []
    sender = threading.Thread(
        target=lambda: answers.append(_posted(address, news, limit_s)), daemon=True
    )
    sender.start()
    # the socket's own deadline restarts with each byte, so that a slow server could block for ever
    sender.join(limit_s)
    return answers[0] if answers else _late(limit_s)


def _late(limit_s: float) -> str:
    return f"no answer came within {limit_s:g} s"


def _posted(address: str, news: Mapping[str, Any], limit_s: float) -> str | None:
    headers = {"Content-Type": "application/json", "User-Agent": f"unhang/{__version__}"}
    request = urllib.request.Request(address, body_for(address, news), headers)  # noqa: S310 -- http or https alone, checked
    try:
        with _opener().open(request, timeout=limit_s) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as problem:
        return f"it answered {problem.code}, not 2xx"
    except (OSError, http.client.HTTPException) as problem:  # the reason may contain the address
        reason = getattr(problem, "reason", problem)
        if isinstance(reason, TimeoutError):
            return _late(limit_s)
        return (
            "no answer came:"
            f" {visible(getattr(reason, 'strerror', None) or type(reason).__name__, 200)}"
        )
    return None


def _opener() -> urllib.request.OpenerDirector:
    """Sends to the address that the operator named alone: without a handler of redirects none is
    followed, and no other scheme than http and https is known, whatever a proxy of the environment
    says."""
    opener = urllib.request.OpenerDirector()
    kinds = (
        "ProxyHandler",
        "HTTPHandler",
        "HTTPSHandler",
        "HTTPDefaultErrorHandler",
        "HTTPErrorProcessor",
        "UnknownHandler",
    )
    for kind in kinds:
        opener.add_handler(getattr(urllib.request, kind)())
    return opener


def call_in_a_session(
    argv: Sequence[str],
    news: Mapping[str, Any],
    limit_s: float = HOOK_S,
    added: Mapping[str, str] | None = None,
) -> str | None:
    """Runs the program with the message on its standard input; returns why it failed, or None. When
    it ends or its time is over, its session ends too; what it started in another one goes on.
    added: variables of its environment."""
    try:
        running = subprocess.Popen(
            argv,
            env={**os.environ, **(added or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as problem:
        return f"the program could not be started: {problem.strerror}"
    tail = bytearray()
    reader = threading.Thread(target=_keep_tail, args=(running.stdout, tail), daemon=True)
    writer = threading.Thread(
        target=_give, args=(running.stdin, json.dumps(news).encode()), daemon=True
    )
    for thread in (reader, writer):
        thread.start()
    try:
        code = running.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"it did not end within {limit_s:.0f} s; it was killed"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    reader.join(1)  # longer only if a process of another session holds the pipe
    if code == 0:
        return None
    last = (bytes(tail).decode("utf-8", "replace").strip().splitlines() or ["nothing printed"])[-1]
    return f"it ended with exit code {code}, not 0: {visible(without_secrets(last), 300)}"


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    while part := os.read(pipe.fileno(), 4096):
        tail += part
        del tail[:-MOST_TAIL]


def _give(pipe: IO[bytes], body: bytes) -> None:
    with contextlib.suppress(OSError), pipe:  # the program need not read its input
        pipe.write(body)


def _address(given: str) -> str:
    """The URL, or the first line of @FILE. Raises UserError, whose text never contains the
    address."""
    text = given
    if given.startswith("@"):
        try:
            text = (
                read_bounded(Path(given[1:]).expanduser(), MOST_ADDRESS_BYTES)
                .decode("utf-8")
                .splitlines()
                or [""]
            )[0].strip()
        except NotStrict as problem:
            raise UserError(
                f"--webhook: {given[1:]} is not a file with an address in its first line: {problem}"
            ) from None
        except (OSError, ValueError) as problem:
            raise UserError(
                f"--webhook: {given} is not a file with an address in its first line:"
                f" {getattr(problem, 'strerror', 'no text')}"
            ) from None
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or any(letter <= " " for letter in text)
    ):
        raise UserError(
            "--webhook takes an address that begins with https:// (or @FILE with one), not"
            " something else"
        )
    return text


def _argv(given: str) -> list[str]:
    """The program and its arguments. Raises UserError."""
    try:
        argv = shlex.split(given)
    except ValueError:
        argv = []
    if not argv:
        raise UserError(
            "--hook takes a program with its arguments, such as '/usr/local/bin/page-somebody"
            " --team gpu'"
        )
    return argv
