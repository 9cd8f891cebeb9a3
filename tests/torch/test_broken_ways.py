"""The library with which the GPU bench breaks transports of NCCL breaks only those: descriptors
between processes, and NCCL's files in /dev/shm."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from smoke_runs import PROJECT

SOURCE = PROJECT / "tests" / "bench" / "broken_ways.c"
PROGRAM = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def made(template):
    text = ctypes.create_string_buffer(template)
    descriptor = libc.mkstemp(text)
    if descriptor < 0:
        return "no: " + os.strerror(ctypes.get_errno())
    os.close(descriptor)
    os.unlink(text.value)
    return "made"
here, there = socket.socketpair()
try:
    socket.send_fds(here, [b"x"], [0])
    passed = "passed"
except OSError as problem:
    passed = "no: " + problem.strerror
here.sendmsg([b"plain"])
print(passed, "|", made(b"/dev/shm/nccl-XXXXXX"), "|", made(b"/dev/shm/other-XXXXXX"))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library, compiled."""
    target = tmp_path_factory.mktemp("broken-ways") / "broken_ways.so"
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            str(target),
            str(SOURCE),
            "-ldl",
        ],
        check=True,
    )
    return target


@pytest.mark.parametrize(
    "way, answer",
    [
        ("", "passed | made | made"),
        ("p2p", "no: Operation not permitted | made | made"),
        ("shm", "passed | no: No space left on device | made"),
    ],
)
def test_only_the_way_that_was_named_is_broken(library, way, answer):
    variables = {**os.environ, "LD_PRELOAD": str(library), "UNHANG_BREAK": way}
    output = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == answer
