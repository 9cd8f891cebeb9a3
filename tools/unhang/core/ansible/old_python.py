"""Recognises nodes whose Python is too old for the controller's ansible-core, and prints the
command that reads them without it."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.core.ansible.answer import NodeAnswer
from unhang.core.ansible.printable_text import clean
from unhang.core.project import checkout_of

OLDEST_FOR_STARTER = (3, 0)  # from there on the collector itself says what it needs
FLAGS = ("hash_libraries",)
TRUE = ("true", "yes", "on", "1", "y", "t")
VERSION_LINE = re.compile(r"^unhang-python ([0-9]+)\.([0-9]+)$", re.MULTILINE)
NOT_FOUND = re.compile(r"(?:No such file or directory|not found)")
ASK_VERSION = 'import sys; print("unhang-python %d.%d" % sys.version_info[:2])'

# The collector arrives packed on standard input, lies in a file without a name for as long as it
# runs, and is gone afterwards, also when it is killed.
RUN_COLLECTOR = """
import os, subprocess, sys, tempfile, zlib
with tempfile.TemporaryFile() as own:
    own.write(zlib.decompress(sys.stdin.buffer.read()))
    own.flush()
    path = "/proc/%d/fd/%d" % (os.getpid(), own.fileno())
    argv = [sys.executable, "-I", "-S", path] + sys.argv[1:]
    sys.exit(subprocess.call(argv, stdin=subprocess.DEVNULL))
"""


def ask_version(interpreter: str) -> str:
    """The command line that prints the interpreter's version, from Python 2 on."""
    return f"{shlex.quote(interpreter)} -c {shlex.quote(ASK_VERSION)}"


def parse_version(stdout: str) -> tuple[int, int] | None:
    """(major, minor) out of what ask_version's command printed, or None."""
    found = VERSION_LINE.search(stdout.replace("\r", ""))
    return (int(found[1]), int(found[2])) if found else None


def is_missing(stdout: str, stderr: str, interpreter: str) -> bool:
    """True if the shell reported that there is no such interpreter."""
    return any(
        interpreter in line and NOT_FOUND.search(line)
        for line in (stdout + "\n" + stderr).splitlines()
    )


def without_answer(stdout: str, stderr: str, interpreter: str, otherwise: str) -> NodeAnswer:
    """Of a collector that printed no document. otherwise: why, if standard error says nothing."""
    if is_missing(stdout, stderr, interpreter):
        why = (
            f"the node has no Python at {interpreter}; install python3 or set"
            " ansible_python_interpreter"
        )
    else:
        last = [line for line in stderr.splitlines() if line.strip()][-1:] or [otherwise]
        why = f"the collector ended without an answer: {last[0]}"
    return NodeAnswer("failed", message=clean(why))


def run_collector(interpreter: str, options: Mapping[str, Any]) -> str:
    """The command line that runs the collector that it gets on standard input, packed by zlib, and
    prints its document. options: as the module takes them."""
    argv = [interpreter, "-I", "-S", "-c", RUN_COLLECTOR, *collector_arguments(options)]
    return " ".join(shlex.quote(word) for word in argv)


def collector_arguments(options: Mapping[str, Any]) -> list[str]:
    """The module's options as the collector's: a flag for what is true, one argument for each
    element of a list."""
    arguments: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name in FLAGS:
            arguments += [flag] if str(value).lower() in TRUE else []
        elif value is not None:
            arguments += [
                f"{flag}={element}"
                for element in (value if isinstance(value, list | tuple) else [value])
            ]
    return arguments


def read_collector(project: Path) -> bytes:
    """The one-file collector: that in dist/, built again if its sources are newer, or a temporary
    one if the checkout cannot be written to.

    Raises OSError when it cannot be built.
    """
    built = project / "dist" / "unhang-collect.pyz"
    if _is_current(built, project / "module_utils"):
        return built.read_bytes()
    if checkout_of(project) is None or not os.access(project, os.W_OK):
        with tempfile.TemporaryDirectory(prefix="unhang-collector-") as folder:
            return _build(project, Path(folder) / built.name)
    cache = project / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / "collector.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one play ask at the same time
        return (
            built.read_bytes()
            if _is_current(built, project / "module_utils")
            else _build(project, built)
        )


def _build(project: Path, target: Path) -> bytes:
    command = [sys.executable, str(project / "tools" / "collector" / "build.py"), str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode or not target.exists():
        raise OSError(f"could not build {target}: {done.stderr.strip()[-300:]}")
    return target.read_bytes()


def _is_current(built: Path, sources: Path) -> bool:
    if not built.exists():
        return False
    age = built.stat().st_mtime
    return all(source.stat().st_mtime <= age for source in sources.rglob("*.py"))
