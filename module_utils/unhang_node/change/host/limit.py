"""Brings one limit of a node to what is wanted: files first, then the services that run, without restarting or reloading anything."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from typing import Tuple

from ...parse.resource_limits import UNLIMITED, parse_proc_limits
from ...root import Root
from ...sections.virtualization import container_kind
from ..config.own_files import FilePlan, plan_gone, plan_own
from . import limits

# A service that runs with another limit than it should: unit, pid, (soft, hard) now, (soft, hard) wanted.
RunningLimit = Tuple[str, int, Tuple[int, int], Tuple[int, int]]
RESOURCES = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "stack": resource.RLIMIT_STACK}

HARD = {"memlock": "memlock_hard_bytes", "nofile": "nofile_hard", "stack": "stack_hard_bytes"}
CAP_SYS_RESOURCE = 24


def owner_of(limit: str) -> str:
    """Under which name others' lines are saved."""
    return "host_tuning_" + limit


def most_possible(limit: str) -> int | None:
    """The highest hard limit that can be set on this machine, None when any can: without CAP_SYS_RESOURCE nothing above that of the first process."""
    root = Root()
    status = root.text("/proc/self/status", 65536).split("\n")
    effective = next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)
    if not effective >> CAP_SYS_RESOURCE & 1:
        hard: int | None = parse_proc_limits(root.text("/proc/1/limits", 16384))[HARD[limit]]
        return hard
    return int(root.text("/proc/sys/fs/nr_open", 64)) if limit == "nofile" else None


def why_not(limit: str, wanted: int, most: int | None) -> str | None:
    """Why that cannot be set here, or None. `most`: of most_possible."""
    if limit == "stack" or most is None or limits.at_least(most, wanted):
        return None
    kind = container_kind(Root(), None)
    where = f"in a {kind} container that may not raise limits: raise it on the host" if kind else "on this machine: raise fs.nr_open first"
    return f"{limit} cannot be set to {limits.systemd_pair(wanted, wanted)} {where}; it allows {most} at most"


def plan_limit(rootfs: str, limit: str, wanted: int, units: Sequence[str], most: int | None = None) -> tuple[FilePlan, list[limits.Unit]]:
    """(FilePlan, [Unit]). wanted: bytes or a count, -1 unlimited; units: further ones that start jobs; most: of most_possible. Raises OSError, ValueError."""
    lines = limits.read_conf_lines(rootfs, limit)
    files: dict[str, list[str]] = {path: [] for path in limits.own_drop_ins(rootfs, limit)}
    files[limits.conf_path(limit)] = limits.wanted_conf(limit, wanted, lines, most)
    files[limits.default_path(limit)] = limits.wanted_default(rootfs, limit, wanted, most)
    found = [limits.read_unit(rootfs, limit, name, rootfs == "/") for name in limits.known_units(rootfs, units)]
    for unit in found:
        files[limits.drop_in_path(limit, unit.name)] = limits.wanted_drop_in(limit, wanted, unit, most)
    return plan_own(rootfs, files, others=limits.contradicting(limit, lines, wanted)), found


def plan_without(rootfs: str, limit: str) -> FilePlan:
    """FilePlan that takes all of it back."""
    return plan_gone(rootfs, owner_of(limit), [limits.conf_path(limit), *limits.own_drop_ins(rootfs, limit)])


def plan_running(limit: str, wanted: int, units: Iterable[limits.Unit]) -> list[RunningLimit]:
    """[(unit name, pid, (soft, hard) now, (soft, hard) wanted)] of services that run with another limit than they should."""
    rows = []
    for unit in units:
        if unit.pid is None:
            continue
        try:
            soft, hard = (UNLIMITED if value == resource.RLIM_INFINITY else value for value in resource.prlimit(unit.pid, RESOURCES[limit]))
        except (ProcessLookupError, PermissionError):
            continue
        now = (soft, hard)
        if limit == "stack":
            fine, goal = limits.acceptable(limit, now[0], wanted), (wanted, now[1])
        else:
            fine = all(limits.at_least(value, wanted) for value in now)
            goal = (limits.higher(now[0], wanted), limits.higher(now[1], wanted))
        if not fine:
            rows.append((unit.name, unit.pid, now, goal))
    return rows


def set_running(limit: str, rows: Iterable[RunningLimit]) -> tuple[list[RunningLimit], list[str]]:
    """(rows that were set, lines that say what could not be): a container may not raise what its host gave it."""
    done, manual = [], []
    for row in rows:
        name, pid, _now, goal = row
        try:
            soft, hard = (resource.RLIM_INFINITY if value == UNLIMITED else value for value in goal)
            resource.prlimit(pid, RESOURCES[limit], (soft, hard))
        except ProcessLookupError:
            continue
        except (PermissionError, ValueError) as problem:
            manual.append(f"{name} runs on with its old {limit} until it is started again: {problem}")
            continue
        done.append(row)
    return done, manual


def name_of(limit: str, unit: str) -> str:
    """The limit of one service, as a saved state has it."""
    return f"{limit} of {unit}"


def changes_of(limit: str, rows: Iterable[RunningLimit]) -> list[tuple[str, list[int], list[int]]]:
    """[(name, limit now, limit wanted)] of plan_running's rows, as a saved state keeps them: [soft, hard]."""
    return [(name_of(limit, name), list(now), list(goal)) for name, _pid, now, goal in rows]


def read_running(name: str) -> list[int] | None:
    """[soft, hard] of the service that name_of names, None where it does not run."""
    limit, _of, unit = name.partition(" of ")
    pid = limits.read_unit("/", limit, unit, True).pid
    if not pid:
        return None
    try:
        return [UNLIMITED if value == resource.RLIM_INFINITY else value for value in resource.prlimit(pid, RESOURCES[limit])]
    except (ProcessLookupError, PermissionError):
        return None


def write_running(name: str, value: Sequence[int]) -> None:
    """Gives that service the limit; what it has started keeps its own. Raises OSError, ValueError."""
    limit, _of, unit = name.partition(" of ")
    pid = limits.read_unit("/", limit, unit, True).pid
    if pid:
        soft, hard = (resource.RLIM_INFINITY if one == UNLIMITED else one for one in value)
        resource.prlimit(pid, RESOURCES[limit], (soft, hard))


def effects_of(limit: str, rows: Iterable[RunningLimit]) -> list[tuple[str, str, str]]:
    """[(what, before, after)] for an answer."""
    return [(name_of(limit, name), limits.systemd_pair(*now), limits.systemd_pair(*goal)) for name, _pid, now, goal in rows]
