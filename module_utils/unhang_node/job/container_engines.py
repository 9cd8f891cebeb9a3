"""Asks the container engines of this node which process is a container's first one. All that are
installed are asked at once, each with a deadline."""

from __future__ import annotations

import os
import re
import threading

from ..base.parse.values import parse_json
from ..base.process import run_process
from ..base.section import Absent, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any

    from ..base.context import Context

ID = re.compile(r"[0-9a-f]{12,64}\Z")
ENGINE_S = 6.0
LIMIT_BYTES = 4 << 20
ANOTHER_WAY = "an ID of at least 12 digits (ps --no-trunc) or pid:[NUMBER] of lsns needs no engine"


def pid_of_engines(ctx: Context, name: str, running: Container[int]) -> int:
    """The first process of the container of this name. running: processes of this node. Raises
    Absent with what each engine said."""
    answers: dict[str, int | str | None] = {}

    def ask(engine: str) -> None:
        try:
            answers[engine] = ENGINES[engine](name)
        except (OSError, ValueError) as problem:
            answers[engine] = one_line(Absent(str(problem)))

    ctx.mark(f"ask {', '.join(ENGINES)} for the container {name}", 2 * ENGINE_S + 1)
    threads = [threading.Thread(target=ask, args=(engine,), daemon=True) for engine in ENGINES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * ENGINE_S)
    found = {
        engine: pid for engine, pid in answers.items() if isinstance(pid, int) and pid in running
    }
    if len(set(found.values())) > 1:
        raise Absent(
            f"several containers are called {name}:"
            f" {', '.join(f'of {engine}, process {pid}' for engine, pid in found.items())}; give"
            " an ID"
        )
    if found:
        return next(iter(found.values()))
    raise Absent(f"container {name} does not run on this node: {_answered(answers)}; {ANOTHER_WAY}")


def _answered(answers: dict[str, int | str | None]) -> str:
    said = []
    for engine in ENGINES:
        answer = answers.get(engine, f"no answer within {2 * ENGINE_S:g} s")
        if isinstance(answer, int):
            answer = (
                f"its process is {answer}, which is none of this node"
                if answer
                else "it is known and does not run"
            )
        said += [f"{engine}: {answer[-200:]}"] if answer is not None else []
    missing = [engine for engine in ENGINES if answers.get(engine, "") is None]
    return "; ".join([*said, *([f"not installed: {', '.join(missing)}"] if missing else [])])


def _output_of(*argv: str) -> str | None:
    """What an engine printed, None if it is not installed. Raises ValueError with its own words."""
    done = run_process(argv, ENGINE_S, variables=_variables(), limit_bytes=LIMIT_BYTES)
    if done.is_missing:
        return None
    if done.timed_out:
        raise ValueError(f"no answer within {ENGINE_S:g} s")
    if done.code or done.is_cut:
        raise ValueError(done.last_words or f"ended with {done.code}")
    return done.stdout.strip()


def _variables() -> dict[str, str]:
    """Where a user's own engine has its containers. Root's engine is not led elsewhere by an
    environment that a user may have written."""
    if os.geteuid() == 0:
        return {}
    kept = {
        name: os.environ[name]
        for name in ("HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST")
        if os.environ.get(name)
    }
    # its processes are another machine's
    if not kept.get("DOCKER_HOST", "unix:").startswith("unix:"):
        del kept["DOCKER_HOST"]
    return kept


def parse_pid(text: str | None) -> int | None:
    """A process id as engines print it, 0 for a container that does not run; None for None. Raises
    ValueError."""
    if text is None or re.fullmatch(r"\d{1,9}", text):
        return None if text is None else int(text)
    raise ValueError(f"{text[:80]!r} is not a process id")


def _docker(name: str) -> int | None:
    return parse_pid(
        _output_of("docker", "inspect", "--type", "container", "--format", "{{.State.Pid}}", name)
    )


def _podman(name: str) -> int | None:
    return parse_pid(
        _output_of("podman", "inspect", "--type", "container", "--format", "{{.State.Pid}}", name)
    )


def _nerdctl(name: str) -> int | None:
    return parse_pid(
        _output_of(
            "nerdctl", "inspect", "--mode", "dockercompat", "--format", "{{.State.Pid}}", name
        )
    )


def _crictl(name: str) -> int | None:
    """A container's name in Kubernetes is that of its pod's specification, so that several may have
    it."""
    known = (
        name
        if ID.match(name)
        else _output_of(
            "crictl",
            "ps",
            "--state",
            "running",
            "--quiet",
            "--no-trunc",
            "--name",
            f"^{re.escape(name)}$",
        )
    )
    if known is None:
        return None
    ids = known.split()
    if len(ids) != 1:
        raise ValueError(
            f"{len(ids)} containers of that name run: {', '.join(one[:12] for one in ids[:8])};"
            " give an ID"
            if ids
            else "none of that name runs"
        )
    return parse_pid(
        _output_of(
            "crictl", "inspect", "--output", "go-template", "--template", "{{.info.pid}}", ids[0]
        )
    )


def _apptainer(name: str) -> int | None:
    return pid_of_instance(_output_of("apptainer", "instance", "list", "--json"), name)


def _enroot(name: str) -> int | None:
    return pid_of_enroot(_output_of("enroot", "list", "--fancy"), name)


def pid_of_instance(text: str | None, name: str) -> int | None:
    """The process of an instance in `apptainer instance list --json`: {"instances": [{"instance",
    "pid", …}]}; None for None. Raises ValueError."""
    if text is None:
        return None
    found: Any = parse_json(text)
    rows = found.get("instances") if isinstance(found, dict) else None
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("instance") == name:
            return parse_pid(str(row.get("pid")))
    raise ValueError("no instance of that name runs")


def pid_of_enroot(text: str | None, name: str) -> int | None:
    """The first process of a container in `enroot list --fancy`: a table that begins with NAME and
    PID; None for None. Raises ValueError."""
    if text is None:
        return None
    for words in (line.split() for line in text.splitlines()[1:]):
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return parse_pid(words[1])
    raise ValueError("none of that name runs")


ENGINES: dict[str, Callable[[str], int | None]] = {
    "docker": _docker,
    "podman": _podman,
    "nerdctl": _nerdctl,
    "crictl": _crictl,
    "apptainer": _apptainer,
    "enroot": _enroot,
}
