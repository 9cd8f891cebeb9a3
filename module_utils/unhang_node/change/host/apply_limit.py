"""Sets one limit of a node: first in files, then in running services, without restarting or
reloading anything."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from typing import Tuple

from ...base.parse.resource_limits import UNLIMITED, parse_proc_limits
from ...base.root import Root
from ...facts.sections.virtualization import container_kind, has_capability
from ..config.disabled_lines import ManualStep
from ..config.own_files import FilePlan, plan_gone, plan_own
from . import limit_values
from .later_lines import FileLine

# A service that runs with a wrong limit: unit, pid, (soft, hard) now, (soft, hard) wanted.
RunningLimit = Tuple[str, int, Tuple[int, int], Tuple[int, int]]
RESOURCES = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "stack": resource.RLIMIT_STACK,
}

HARD = {"memlock": "memlock_hard_bytes", "nofile": "nofile_hard", "stack": "stack_hard_bytes"}
CAP_SYS_RESOURCE = 24


def owner_of(limit: str) -> str:
    """Name of the saved state of others' lines that this limit disables."""
    return "host_tuning_" + limit


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


def plan_limit(
    rootfs: str, limit: str, wanted: int, units: Sequence[str], most: int | None = None
) -> tuple[FilePlan, list[limit_values.Unit]]:
    """(FilePlan, [Unit]). wanted: bytes or a count, -1 unlimited; units: further units that start
    jobs; most: result of most_possible. Raises OSError, ValueError."""
    lines = limit_values.read_conf_lines(rootfs, limit)
    files: dict[str, list[str]] = {path: [] for path in limit_values.own_drop_ins(rootfs, limit)}
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
    return (
        plan._replace(
            manual=[*plan.manual, *(_beyond(limit, row) for rows in later for row in rows.beyond)]
        ),
        found,
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


def plan_without(rootfs: str, limit: str) -> FilePlan:
    """FilePlan that removes unhang's files for this limit and restores others' lines."""
    return plan_gone(
        rootfs,
        owner_of(limit),
        [limit_values.conf_path(limit), *limit_values.own_drop_ins(rootfs, limit)],
    )


def plan_running(limit: str, wanted: int, units: Iterable[limit_values.Unit]) -> list[RunningLimit]:
    """[(unit name, pid, (soft, hard) now, (soft, hard) wanted)] of services that run with a wrong
    limit."""
    rows = []
    for unit in units:
        if unit.pid is None:
            continue
        try:
            soft, hard = (
                UNLIMITED if value == resource.RLIM_INFINITY else value
                for value in resource.prlimit(unit.pid, RESOURCES[limit])
            )
        except (ProcessLookupError, PermissionError):
            continue
        now = (soft, hard)
        if limit == "stack":
            fine, goal = limit_values.acceptable(limit, now[0], wanted), (wanted, now[1])
        else:
            fine = all(limit_values.at_least(value, wanted) for value in now)
            goal = (limit_values.higher(now[0], wanted), limit_values.higher(now[1], wanted))
        if not fine:
            rows.append((unit.name, unit.pid, now, goal))
    return rows


def set_running(limit: str, rows: Iterable[RunningLimit]) -> tuple[list[RunningLimit], list[str]]:
    """(rows whose limit was set, a line for each that failed): a container may not raise the limits
    that its host gave it."""
    done, manual = [], []
    for row in rows:
        name, pid, _now, goal = row
        try:
            soft, hard = (resource.RLIM_INFINITY if value == UNLIMITED else value for value in goal)
            resource.prlimit(pid, RESOURCES[limit], (soft, hard))
        except ProcessLookupError:
            continue
        except (PermissionError, ValueError) as problem:
            manual.append(
                f"{name} runs on with its old {limit} until it is started again: {problem}"
            )
            continue
        done.append(row)
    return done, manual


def name_of(limit: str, unit: str) -> str:
    """Name of one service's limit in a saved state."""
    return f"{limit} of {unit}"


def changes_of(limit: str, rows: Iterable[RunningLimit]) -> list[tuple[str, list[int], list[int]]]:
    """[(name, limit now, limit wanted)] of plan_running's rows, for a saved state; a limit is
    [soft, hard]."""
    return [(name_of(limit, name), list(now), list(goal)) for name, _pid, now, goal in rows]


def read_running(name: str) -> list[int] | None:
    """[soft, hard] of the service in a name that name_of made, None if it does not run."""
    limit, _of, unit = name.partition(" of ")
    pid = limit_values.read_unit("/", limit, unit, True).pid
    if not pid:
        return None
    try:
        return [
            UNLIMITED if value == resource.RLIM_INFINITY else value
            for value in resource.prlimit(pid, RESOURCES[limit])
        ]
    except (ProcessLookupError, PermissionError):
        return None


def write_running(name: str, value: Sequence[int]) -> None:
    """Sets the limit of that service; processes that it has started keep theirs. Raises OSError,
    ValueError."""
    limit, _of, unit = name.partition(" of ")
    pid = limit_values.read_unit("/", limit, unit, True).pid
    if pid:
        soft, hard = (resource.RLIM_INFINITY if one == UNLIMITED else one for one in value)
        resource.prlimit(pid, RESOURCES[limit], (soft, hard))


def effects_of(limit: str, rows: Iterable[RunningLimit]) -> list[tuple[str, str, str]]:
    """[(name of the limit, before, after)] for a module's result."""
    return [
        (name_of(limit, name), limit_values.systemd_pair(*now), limit_values.systemd_pair(*goal))
        for name, _pid, now, goal in rows
    ]
