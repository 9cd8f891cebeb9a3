"""`unhang diagnose` as a program that reads from a pipe or its standard input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SHM = (
    "pod:4:5 [1] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 33030532"
    " bytes, error: No space left on device (28)"
)


def test_pipe_and_standard_input_are_read(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "unhang", "diagnose", "--format", "json", "-"], input=SHM,
        capture_output=True, text=True, timeout=200,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1 and '"cause": "shm_too_small"' in done.stdout
    assert Path(tmp_path).is_dir()
