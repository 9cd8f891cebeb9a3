"""Converts what Ansible gives the action plugins of a rollout into the conductor's values."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import FILE, Plan, read_plan
from unhang.act.rollout.conductor import Conductor, Followed


def conductor_of(rollout: Mapping[str, Any]) -> Conductor:
    """rollout: as rollout_begin returned it. What was read of plan and journal in this process, or
    in the one that forked it, is not read again.

    Raises UserError, OSError.
    """
    folder, read = Path(str(rollout["folder"])), str(rollout.get("read") or "")
    return Conductor(
        folder,
        _followed(folder, identity_of(folder / FILE)),
        int(rollout["epoch"]),
        Path(read) if read else None,
        str(rollout.get("ending") or ""),
    )


def plan_of(path: Path) -> Plan:
    """plan.json, or that of a run folder; read and checked once for as long as it is the same file.
    Raises UserError."""
    file = (path / FILE if path.is_dir() else path).absolute()
    return _plan(file, identity_of(file))


def identity_of(file: Path) -> tuple[int, ...]:
    """Changes when somebody replaces or edits the file; () if there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# Ansible forks a worker for each task of each host: what its own process has read by then, each
# worker has too. A run of the playbook has one plan.
@functools.lru_cache(maxsize=1)
def _plan(file: Path, identity: tuple[int, ...]) -> Plan:
    return read_plan(file)


@functools.lru_cache(maxsize=1)
def _followed(folder: Path, identity: tuple[int, ...]) -> Followed:
    return Followed(folder, plan_of(folder))


def plain(value: Any) -> Any:
    """What went through Ansible's variables, without Ansible's own types of text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bool) or value is None:
        return value
    return (
        int(value)
        if isinstance(value, int)
        else float(value)
        if isinstance(value, float)
        else str(value)
    )
