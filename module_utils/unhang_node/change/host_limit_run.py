"""Brings one limit of a node to what is wanted: files first, then the services that run, without restarting or reloading anything."""

from __future__ import annotations

import resource

from ..parse.resource_limits import UNLIMITED
from . import host_limits as limits
from .own_files import plan_gone, plan_own

RESOURCES = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "stack": resource.RLIMIT_STACK}


def owner_of(limit):
    """Under which name others' lines are saved."""
    return "host_tuning_" + limit


def plan_limit(rootfs, limit, wanted, units):
    """(Plan, [Unit]). wanted: bytes or a count, -1 unlimited; units: further ones that start jobs. Raises OSError, ValueError."""
    lines = limits.read_conf_lines(rootfs, limit)
    files = {path: [] for path in limits.own_drop_ins(rootfs, limit)}
    files[limits.conf_path(limit)] = limits.wanted_conf(limit, wanted, lines)
    files[limits.default_path(limit)] = limits.wanted_default(rootfs, limit, wanted)
    found = [limits.read_unit(rootfs, limit, name, rootfs == "/") for name in limits.known_units(rootfs, units)]
    for unit in found:
        files[limits.drop_in_path(limit, unit.name)] = limits.wanted_drop_in(limit, wanted, unit)
    return plan_own(rootfs, files, others=limits.contradicting(limit, lines, wanted)), found


def plan_without(rootfs, limit):
    """Plan that takes all of it back."""
    return plan_gone(rootfs, owner_of(limit), [limits.conf_path(limit)] + limits.own_drop_ins(rootfs, limit))


def plan_running(limit, wanted, units):
    """[(unit name, pid, (soft, hard) now, (soft, hard) wanted)] of services that run with another limit than they should."""
    rows = []
    for unit in units:
        if unit.pid is None:
            continue
        try:
            now = tuple(UNLIMITED if value == resource.RLIM_INFINITY else value for value in resource.prlimit(unit.pid, RESOURCES[limit]))
        except (ProcessLookupError, PermissionError):
            continue
        if limit == "stack":
            fine, goal = limits.acceptable(limit, now[0], wanted), (wanted, now[1])
        else:
            fine = all(limits.at_least(value, wanted) for value in now)
            goal = (limits.higher(now[0], wanted), limits.higher(now[1], wanted))
        if not fine:
            rows.append((unit.name, unit.pid, now, goal))
    return rows


def set_running(limit, rows):
    """(rows that were set, lines that say what could not be): a container may not raise what its host gave it."""
    done, left = [], []
    for row in rows:
        name, pid, _now, goal = row
        try:
            soft, hard = (resource.RLIM_INFINITY if value == UNLIMITED else value for value in goal)
            resource.prlimit(pid, RESOURCES[limit], (soft, hard))
        except ProcessLookupError:
            continue
        except (PermissionError, ValueError) as problem:
            left.append("{} runs on with its old {}: {}; the kernel (fs.nr_open) or the host of this container allows no more".format(name, limit, problem))
            continue
        done.append(row)
    return done, left


def effects_of(limit, rows):
    """[(what, before, after)] for an answer."""
    return [("{} of {}".format(limit, name), limits.systemd_pair(*now), limits.systemd_pair(*goal)) for name, _pid, now, goal in rows]
