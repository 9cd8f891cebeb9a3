"""Sets one limit of a node: first in files, then in running services, without restarting or
reloading anything."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterable, Sequence

from ...base.parse.resource_limits import UNLIMITED, parse_proc_limits
from ...base.root import Root
from ...facts.sections.virtualization import container_kind, has_capability
from ..config.disabled_lines import ManualStep
from ..config.own_files import FilePlan, plan_gone, plan_own
from ..journal.running_values import Change
from . import limit_values
from .later_lines import FileLine
from .setting import Setting

RESOURCES = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "stack": resource.RLIMIT_STACK,
}

HARD = {"memlock": "memlock_hard_bytes", "nofile": "nofile_hard", "stack": "stack_hard_bytes"}
CAP_SYS_RESOURCE = 24


def most_possible(limit: str) -> int | None:
    """The highest hard limit that can be set on this machine, None if any can: without
    CAP_SYS_RESOURCE no limit above that of process 1."""
    root = Root()
    if not has_capability(root, CAP_SYS_RESOURCE):
        hard: int | None = parse_proc_limits(root.text("/proc/1/limits", 16384))[HARD[limit]]
        return hard
    return int(root.text("/proc/sys/fs/nr_open", 64)) if limit == "nofile" else None


def why_not(limit: str, wanted: int, most: int | None) -> str | None:
    """The reason why this limit cannot be set here, or None. `most`: result of most_possible."""
    if limit == "stack" or most is None or limit_values.at_least(most, wanted):
        return None
    kind = container_kind(Root(), None)
    where = (
        f"in a {kind} container that may not raise limits: raise it on the host"
        if kind
        else "on this machine: raise fs.nr_open first"
    )
    return (
        f"{limit} cannot be set to {limit_values.systemd_pair(wanted, wanted)} {where}; it allows"
        f" {most} at most"
    )


def plan_limit(rootfs: str, limit: str, wanted: int | None, units: Sequence[str]) -> Setting:
    """wanted: bytes or a count, -1 unlimited, None to undo it; units: further units that start
    jobs. Raises OSError, ValueError."""
    owner, own = "host_tuning_" + limit, limit_values.own_drop_ins(rootfs, limit)
    if wanted is None:
        return Setting(owner, plan_gone(rootfs, owner, [limit_values.conf_path(limit), *own]))
    if wanted < UNLIMITED:
        raise ValueError(f"value must be -1 for unlimited, or a number from 0 on, and is {wanted}")
    most = most_possible(limit) if rootfs == "/" else None
    why = why_not(limit, wanted, most)
    if why:
        return Setting(owner, FilePlan(manual=[why]))
    lines = limit_values.read_conf_lines(rootfs, limit)
    files: dict[str, list[str]] = {path: [] for path in own}
    files[limit_values.conf_path(limit)] = limit_values.wanted_conf(limit, wanted, lines, most)
    defaults = limit_values.later_defaults(rootfs, limit, wanted)
    files[limit_values.default_path(limit)] = limit_values.wanted_default(
        rootfs, limit, wanted, defaults, most
    )
    found = [
        limit_values.read_unit(rootfs, limit, name, rootfs == "/", wanted)
        for name in limit_values.known_units(rootfs, units)
    ]
    for unit in found:
        files[limit_values.drop_in_path(limit, unit.name)] = limit_values.wanted_drop_in(
            limit, wanted, unit, most
        )
    later = [defaults, *(unit.later for unit in found)]
    others = limit_values.contradicting(limit, lines, wanted) + [
        row for rows in later for row in rows.to_disable
    ]
    plan = plan_own(rootfs, files, others=others)
    beyond = [_beyond(limit, row) for rows in later for row in rows.beyond]
    return Setting(
        owner=owner,
        plan=plan._replace(manual=[*plan.manual, *beyond]),
        changes=plan_running(limit, wanted, found),
        write=set_running,
    )


def _beyond(limit: str, row: FileLine) -> ManualStep:
    path, number, line = row
    return ManualStep(
        file=path,
        line=number,
        name=limit,
        why=(
            f"{line.strip()!r} is read after ours and wins, in a file that is not below /etc; take"
            " it out"
        ),
    )


def plan_running(limit: str, wanted: int, units: Iterable[limit_values.Unit]) -> list[Change]:
    """[Change] of the services that run with a wrong limit; a value is [soft, hard]."""
    rows = []
    for unit in units:
        now = limit_of(unit.pid, limit)
        if now is None:
            continue
        if limit == "stack":
            fine, goal = limit_values.acceptable(limit, now[0], wanted), [wanted, now[1]]
        else:
            fine = all(limit_values.at_least(value, wanted) for value in now)
            goal = [limit_values.higher(value, wanted) for value in now]
        if not fine:
            rows.append(
                Change(kind="limit", name=f"{limit} of {unit.name}", value=now, wanted=goal)
            )
    return rows


def set_running(name: str, value: Sequence[int]) -> str | None:
    """Sets a limit; returns a line if it stays, because a container may not raise the limits that
    its host gave it."""
    limit, _of, unit = name.partition(" of ")
    try:
        write_running(name, value)
    except (PermissionError, ValueError) as problem:
        return f"{unit} runs on with its old {limit} until it is started again: {problem}"
    return None


def limit_of(pid: int | None, limit: str) -> list[int] | None:
    """[soft, hard] of a process, None if there is none or it cannot be read."""
    try:
        pair = resource.prlimit(pid, RESOURCES[limit]) if pid else ()
    except (ProcessLookupError, PermissionError):
        return None
    return [UNLIMITED if value == resource.RLIM_INFINITY else value for value in pair] or None


def pid_of(name: str) -> tuple[str, int | None]:
    """(limit, main process of the service) of a name such as "nofile of slurmd.service"."""
    limit, _of, unit = name.partition(" of ")
    return limit, limit_values.read_unit("/", limit, unit, True).pid


def read_running(name: str) -> list[int] | None:
    """[soft, hard] of the service in a Change's name, None if it does not run."""
    limit, pid = pid_of(name)
    return limit_of(pid, limit)


def write_running(name: str, value: Sequence[int]) -> None:
    """Sets the limit of that service, if it still runs; processes that it has started keep theirs.
    Raises OSError, ValueError."""
    limit, pid = pid_of(name)
    soft, hard = (resource.RLIM_INFINITY if one == UNLIMITED else one for one in value)
    with contextlib.suppress(ProcessLookupError):
        if pid:
            resource.prlimit(pid, RESOURCES[limit], (soft, hard))
