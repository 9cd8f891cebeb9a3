"""NVIDIA's own diagnosis, `dcgmi diag -j`, before the ranks take the GPUs. Its answer is sent
unchanged; the controller parses it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

# a burn-in of ten minutes or more runs level 2, which takes about two minutes; a shorter one level
# 1, which takes seconds
LONG_S = 600.0
LIMIT_S = {1: 90.0, 2: 300.0}
# the line with the answer must be shorter than the longest that the controller reads
MOST_BYTES = 96 * 1024


def run_dcgm(burn_in_s: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
    """{level, code, answer: its JSON or a text}, None without dcgmi. stopped: is called all the
    time, and may wait for a moment."""
    program, level = shutil.which("dcgmi"), 2 if burn_in_s >= LONG_S else 1
    if program is None:
        return None
    # `timeout` sends SIGTERM first, on which dcgmi stops the diagnosis in its host engine, and
    # lives on if this process is killed.
    argv = ["timeout", "-k", "3", str(LIMIT_S[level]), program, "diag", "-r", str(level), "-j"]
    with tempfile.TemporaryFile() as output:
        asked = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while asked.poll() is None:
            if stopped():
                asked.terminate()
                asked.wait()
        output.seek(0)
        text = output.read(16 * MOST_BYTES).decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text[text.index("{") :])
        if len(json.dumps(found)) <= MOST_BYTES:
            return {"level": level, "code": asked.returncode, "answer": found}
    return {"level": level, "code": asked.returncode, "answer": text.strip()[-2000:]}
