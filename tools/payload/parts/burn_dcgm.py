"""NVIDIA's own diagnosis, `dcgmi diag -j`, before the load begins. Its output is sent unchanged; the controller parses it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

DCGM_LONG_S = 600.0  # a burn-in of ten minutes or more runs level 2, which takes about two minutes; a shorter one level 1, which takes seconds
DCGM_LIMIT_S = {1: 90.0, 2: 300.0}
DCGM_POLITE_S, DCGM_CHECK_S = 3.0, 0.05  # on SIGTERM dcgmi stops the diagnosis in its host engine; on SIGKILL it does not
MOST_ANSWER_BYTES = 96 * 1024  # the line with the answer must be shorter than the longest that the controller reads


def dcgm_level(duration_s: float) -> int:
    """The level of diagnosis that fits a burn-in of this duration. https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"""
    return 2 if duration_s >= DCGM_LONG_S else 1


def run_dcgm(level: int, limit_s: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
    """{level, code, seconds, answer: its JSON or a text}, None without dcgmi. code: None where unhang had to end it, because of its deadline or a stop."""
    program = shutil.which("dcgmi")
    if program is None:
        return None
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            asked = subprocess.Popen(
                [program, "diag", "-r", str(level), "-j"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as problem:
            return {"level": level, "code": None, "seconds": 0.0, "answer": "%s: %s" % (program, problem.strerror)}
        code = await_dcgm(asked, began + limit_s, stopped)
        output.seek(0)
        text = output.read(16 * MOST_ANSWER_BYTES).decode("utf-8", "replace")
    return {"level": level, "code": code, "seconds": round(time.monotonic() - began, 1), "answer": answered(text)}


def await_dcgm(asked: subprocess.Popen[bytes], until: float, stopped: Callable[[], bool]) -> int | None:
    """Its exit code, or None where unhang had to end it: SIGTERM first, then SIGKILL."""
    while asked.poll() is None and time.monotonic() < until and not stopped():
        time.sleep(DCGM_CHECK_S)
    if asked.poll() is not None:
        return asked.returncode
    asked.terminate()
    try:
        asked.wait(DCGM_POLITE_S)
    except subprocess.TimeoutExpired:
        os.killpg(asked.pid, signal.SIGKILL)
        asked.wait(DCGM_POLITE_S)
    return None


def answered(text: str) -> Any:
    """The JSON in a text; the end of the text where it holds no JSON or too much."""
    start = text.find("{")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text[start:]) if start >= 0 else None
        if found is not None and len(json.dumps(found)) <= MOST_ANSWER_BYTES:
            return found
    return text.strip()[-2000:]
