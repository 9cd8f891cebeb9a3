"""The command of a job of ranks on this machine."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

JOB = Path(__file__).resolve().parent.parent / "bench" / "inspect_job.py"


def torchrun(scene: str, world: int = 2, nodes: int = 1) -> list[str]:
    """Of inspect_job.py with gloo, to which something happens after a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = [f"--nproc-per-node={world}", f"--nnodes={nodes}", "--node-rank=0"]
    meets = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    launcher = [sys.executable, "-m", "torch.distributed.run", *sizes, *meets]
    return [*launcher, str(JOB), scene, "1", "gloo"]


def settings(folder: Path, **more: str) -> dict[str, str]:
    """The environment of that job, whose files are in this folder."""
    return {**os.environ, "INSPECT_JOB_FOLDER": str(folder), "OMP_NUM_THREADS": "1", **more}
