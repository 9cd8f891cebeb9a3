"""Which files are of a job, such as scripts, launch commands, images, pods and configurations, and
no logs. Most logs come alone, so the rest of lint is imported only for a file that may be one of a
job."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from unhang.jobs.job_files import DEEPSPEED

HEAD = 8192
_SCRIPTS = re.compile(
    r"\.(?:py|sbatch|slurm|sh|bash|job|dockerfile|service)$|^(?:docker|container)file|nccl\.conf$"
)
_PACKED = re.compile(r"\.(?:gz|bz2|xz)$")
_OUTPUTS = re.compile(r"\.(?:log|out|err|txt)$")
_CONFIGURED = re.compile(
    r"^(?:apiVersion|kind|services|compute_environment|distributed_type|num_processes|num_machines|fsdp_config|deepspeed_config|fsdp|ddp_timeout):",
    re.MULTILINE,
)
_DEEPSPEED = re.compile(
    r'"(?:zero_optimization|train_micro_batch_size_per_gpu|gradient_accumulation_steps)"\s{0,4}:'
)
_COMMAND = re.compile(
    r"^(?:\$ )?(?:\w{1,60}=\S{0,200} ){0,20}(?:srun|torchrun|mpirun|deepspeed|accelerate"
    r" launch|python3? -m torch\.distributed)\b"
)


def job_kind(path: Path | None) -> str | None:
    """The kind of a job's file, by its name and its first lines; None for a log, and for a file
    that cannot be read."""
    if path is None or _PACKED.search(path.name.lower()):
        return None
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        size = path.stat().st_size
        with path.open("rb") as source:
            head = source.read(HEAD)
    except OSError:
        return None  # the reader of logs reports why it cannot be read
    kind = (
        None
        if b"\0" in head
        else _kind_by_text(path, head.decode("utf-8", "replace").removeprefix("\ufeff"))
    )
    if kind is None:
        return None
    from unhang.jobs.lint.linting import LARGEST

    return kind if size <= LARGEST else None


def _kind_by_text(path: Path, head: str) -> str | None:
    name, suffix = path.name.lower(), path.suffix.lower()
    if _SCRIPTS.search(name):
        return _kind_for_lint(str(path), head)
    if suffix in (".yaml", ".yml"):
        return "kubernetes" if _CONFIGURED.search(head) else None
    if suffix == ".json":
        return DEEPSPEED if _DEEPSPEED.search(head) else None
    if head.startswith("#!") and not _OUTPUTS.search(name):
        return _kind_for_lint(name, head)
    if len(head) == HEAD or not _COMMAND.match(head):
        return None
    from unhang.jobs.lint.shell import read_shell

    return "shell" if len(read_shell(head.removeprefix("$ "), {}).commands) == 1 else None


def _kind_for_lint(name: str, head: str) -> str:
    from unhang.jobs.lint.settings import kind_of

    return kind_of(name, head)
