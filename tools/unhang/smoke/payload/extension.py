"""Phase build: builds a tiny extension, as training jobs build fused kernels at their start."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from .processes import die_with_parent, end_session, session_commands
from .run import Failed, Run, arrive, await_all, meet

# Uses torch's own builder, as for fused kernels: ninja, the compiler that it chooses, its lock
# file, a library that is loaded at the end. Every extension needs Python.h; torch's own headers
# take half a minute to compile and would prove nothing more.
BUILD_SOURCE = (
    '#include <Python.h>\nextern "C" int answer() { return PY_MAJOR_VERSION == 3 ? 42 : 0; }\n'
)
BUILD_PROGRAM = """
import ctypes, sys, sysconfig, time
from torch.utils import cpp_extension
folder, source = sys.argv[1:]
print("begun", flush=True)
began = time.time()
library = cpp_extension.load(
    "unhang_answer", [source], build_directory=folder, is_python_module=False, with_cuda=False,
    extra_include_paths=[sysconfig.get_paths()["include"]],
)
built = time.time() - began
found = getattr(ctypes.CDLL(folder + "/unhang_answer.so"), "answer")()
assert found == 42, "the extension answers %d" % found
print("built in %.1f" % built)
"""
BUILD_S = 60.0
IMPORT_S = 60.0  # for the import of torch, before the build begins
TOOLS = ("ninja", "c++")


def phase_build(run: Run) -> dict[str, Any] | None:
    """Builds a C++ extension without GPU in a new cache; measures how long it takes and whether it
    ends."""
    if run.local_rank != 0:
        meet(run, "build")
        return {"skip": "built by the first rank of each node"}
    try:
        found = build_one(run)
    finally:
        arrive(run, "build")
    await_all(run, "build")
    if "missing" in found:
        missing = ", ".join(found["missing"])
        return {"skip": "not installed: %s; extensions cannot be built on this node" % missing}
    return found


def build_one(run: Run) -> dict[str, Any]:
    """{seconds, compile_s, tools}, or {missing: programs}. Raises Failed when the build does not
    end in time, or fails."""
    path = build_path(os.environ)
    missing = [
        name
        for name in TOOLS
        if not shutil.which(name, path=path) and not (name == "c++" and os.environ.get("CXX"))
    ]
    if missing:
        return {"missing": missing}
    folder = tempfile.mkdtemp(prefix="unhang-build-")
    limit_s = run.plan.get("build_timeout_s") or BUILD_S
    run.step("build a C++ extension", limit_s + IMPORT_S + 10)
    latest = min(run.phase_until - 5, time.monotonic() + limit_s + IMPORT_S)
    try:
        began = time.monotonic()
        output = run_bounded(
            build_argv(folder),
            limit_s,
            latest,
            dict(os.environ, PATH=path, TORCH_EXTENSIONS_DIR=folder, MAX_JOBS="2"),
        )
        return {
            "seconds": round(time.monotonic() - began, 1),
            "compile_s": float(output.split("built in")[-1].split()[0]),
            "tools": tool_versions(path),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_path(environment: Mapping[str, str]) -> str:
    """PATH with the folder of the user's Python, which often contains ninja."""
    return os.pathsep.join([os.path.dirname(sys.executable), environment.get("PATH") or os.defpath])


def build_argv(folder: str) -> list[str]:
    """argv of the builder; writes the builder and the source."""
    name, program = os.path.join(folder, "source.cpp"), os.path.join(folder, "build.py")
    for path, text in ((name, BUILD_SOURCE), (program, BUILD_PROGRAM)):
        with open(path, "w", encoding="ascii") as target:
            target.write(text)
    return [sys.executable, program, folder, name]


def run_bounded(
    argv: list[str], limit_s: float, latest: float, environment: Mapping[str, str]
) -> str:
    """The builder's result. It and its children are killed limit_s after the build began, and at
    `latest` (CLOCK_MONOTONIC). Raises Failed."""
    # not a pipe: a process that a compiler left running would keep it open
    with tempfile.TemporaryFile() as output:
        builder = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            until, begun = latest, False
            while builder.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
                if not begun and b"begun" in os.pread(output.fileno(), 65536, 0):
                    until, begun = min(latest, time.monotonic() + limit_s), True
            if builder.poll() is None:
                working = session_commands(builder.pid)
                text = "the extension was not built within %.0f s; still at work: %s"
                raise Failed(
                    text % (limit_s, working[-1] if working else "nobody"), working=working[:8]
                )
        finally:
            end_session(builder.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(5)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if builder.returncode:
        raise Failed("the extension cannot be built: %s" % build_error(text))
    return text


def build_error(text: str) -> str:
    """The line with the error: the compiler's own, not the end of Python's traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if "error:" in line or "No such file" in line or "not found" in line
    ]
    return (telling or lines or ["nothing output"])[0 if telling else -1][:300]


def tool_versions(path: str) -> dict[str, str]:
    """The first line with content of each compiler's --version."""
    found = {}
    for name in TOOLS:
        program = (os.environ.get("CXX") or name) if name == "c++" else name
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5,
                env=dict(os.environ, PATH=path),
                preexec_fn=die_with_parent, check=False,
            )  # fmt: skip
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            found[name] = (lines[0] if lines else "")[:120]
    return found
