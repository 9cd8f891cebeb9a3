"""The build phase: a real extension by the real compiler, one that never ends, one that fails, and
no compiler."""

from __future__ import annotations

import os
import socket

import pytest
from smoke_runs import PATIENT, environment, smoke

from unhang.core.verdict.smoke_result import document_of
from unhang.smoke.local import free_port, run_local
from unhang.smoke.node_plans import Member, NodePlan, Request, plan_group
from unhang.smoke.payload_zip import payload_bytes
from unhang.smoke.result import judge

FOR_EVER = f"sleep 9{os.getpid():07d}"  # differs from every other process's command
# a compiler that prints its version, and then does not compile
KNOWN = 'case "$*" in *version*) exec /usr/bin/c++ "$@";; esac\n'


def built(tmp_path, script, **plan):
    """The result of two ranks that build with this compiler (a shell script)."""
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    request = Request(
        backend="gloo",
        phases=("build",),
        step_timeout_s=60,
        environment={"CXX": str(compiler), "OMP_NUM_THREADS": "1"},
    )
    [node] = plan_group(request, [Member(socket.gethostname(), 2, "lo")], "127.0.0.1", free_port())
    planned = NodePlan(node.host, node.ranks, {**node.document, **plan})
    return document_of(judge([run_local(planned, payload_bytes(), environment=environment())]))


def commands():
    """Command lines of all processes."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as source:
                found.append(source.read().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


def test_a_cpp_extension_is_really_built_and_timed():
    done = smoke("--nproc", 2, *PATIENT, "--phases", "build")
    assert done.code == 0, done.stdout
    assert done.phase("build")["ranks"] == {"ok": [0], "skip": [1]}
    [row] = done.result["builds"]
    assert row["seconds"] > 0
    assert set(row["tools"]) == {"ninja", "c++"}


def test_a_compiler_that_never_ends_is_named_and_ended(tmp_path):
    result = built(tmp_path, f"exec {FOR_EVER}", build_timeout_s=8)
    [suspect] = result["suspects"]
    assert (result["verdict"], suspect["rank"], suspect["phase"]) == ("fail", 0, "build")
    assert f"was not built within 8 s; still at work: {FOR_EVER}" in suspect["why"]
    assert not [argv for argv in commands() if FOR_EVER in argv]


def test_what_a_compiler_leaves_behind_is_named_and_ended_too(tmp_path):
    result = built(
        tmp_path,
        f"{FOR_EVER} &\n{KNOWN}echo 'source.cpp:1: fatal error: no' >&2\nexit 1",
        build_timeout_s=8,
    )
    [suspect] = result["suspects"]
    assert suspect["phase"] == "build"
    assert FOR_EVER in suspect["why"]
    assert not [argv for argv in commands() if FOR_EVER in argv]


def test_a_compiler_that_fails_is_reported_with_its_own_words(tmp_path):
    result = built(
        tmp_path,
        f"{KNOWN}echo 'source.cpp:1:10: fatal error: Python.h: No such file or directory'"
        " >&2\nexit 1",
    )
    [suspect] = result["suspects"]
    assert suspect["phase"] == "build"
    assert "Python.h: No such file or directory" in suspect["why"]


@pytest.mark.parametrize("form", ["json", "table"])
def test_without_a_compiler_nothing_is_built_and_it_says_what_is_missing(tmp_path, form):
    done = smoke(
        "--nproc",
        2,
        *PATIENT,
        "--phases",
        "build",
        "--env",
        f"PATH={tmp_path}",
        form=form,
    )
    assert done.code == 0
    if form == "json":
        assert done.phase("build")["status"] == "skip"
    else:
        assert "build           skip" in done.stdout
