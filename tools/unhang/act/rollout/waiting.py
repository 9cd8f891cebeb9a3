"""Deadlines of steps, as times and as text. Values in, values out."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.act.rollout.steps import (
    PROOFS,
    REBOOTS,
    SMOKES,
    SOAK,
    TOGETHER,
    WAIT,
)
from unhang.core.errors import UserError

# Defaults of roles/drain, roles/smoke_test and playbooks/tasks/rollout; a test compares them.
DRAIN_WAIT_S, REBOOT_S, SMOKE_S = 3600, 1800, 600
UNLIMITED_S = 86400  # the wait for a job without an end of its own
# Slurm ends a job that is over its time limit within OverTimeLimit and KillWait, and then runs its
# epilog
GRACE_S = 600
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
READ_AGAIN_S = 120  # playbooks/tasks/rollout/reboot.yml reads the node's driver containers


def limit_of(step: str, variables: Mapping[str, Any], kinds: int = 1) -> int:
    """Seconds that the step may take, from the play's variables; 0 if nothing limits it, or a
    variable is a template. kinds: number of kinds of nodes in the batch; the smoke test runs for
    one kind after the other."""
    if step == WAIT:
        return (
            0
            if _is_on(variables, "drain_beside_jobs", False)
            else _seconds(variables, "drain_wait_timeout_s", DRAIN_WAIT_S)
        )
    # ansible.builtin.reboot waits for the boot for this time, and the same time again for the node
    # to answer
    if step in REBOOTS:
        limit = _seconds(variables, "unhang_reboot_timeout_s", REBOOT_S)
        return 2 * limit + READ_AGAIN_S if limit else 0
    if step in SMOKES and _is_on(variables, "unhang_smoke", True):
        return _seconds(variables, "smoke_test_deadline_s", SMOKE_S) * (
            kinds if step == TOGETHER else 1
        )
    return 0


def parse_time(given: str, option: str) -> int:
    """Seconds of 90s, 30m, 12h or 3d. option: for the error. Raises UserError."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", given.strip())
    if not found:
        raise UserError(f"{option} takes a time such as 30m, 12h or 3d, not {given!r}")
    return int(found[1]) * UNITS_S[found[2]]


def waits_until(since: str, ends: Sequence[str]) -> str:
    """When the wait for a node's jobs is over, RFC 3339, UTC: at the last job's time limit, and
    after a day for a job without one. since: when it began; ends: the jobs' own ends, "" for none;
    one without a time zone, as a site's own drain may write it, is of this controller's."""
    start = datetime.datetime.fromisoformat(since)
    known = [end for text in ends if (end := _local_time(text)) is not None]
    if known and len(known) == len(ends):
        over = max(*known, start) + datetime.timedelta(seconds=GRACE_S)
    else:
        over = start + datetime.timedelta(seconds=UNLIMITED_S)
    return utc_text(over)


def utc_text(at: datetime.datetime) -> str:
    """RFC 3339, UTC, as the journal has times."""
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _local_time(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None


def until_words(step: str, until: str) -> str:
    """The text after a step's name in a line; "" for no limit."""
    if not until:
        return ""
    if step in REBOOTS:
        return f"back by {until}, or it has failed"
    if step == SOAK:
        return f"until {until}, then asked again"
    return (
        f"until {until}, longer if it fails" if step in PROOFS else f"until {until} at the latest"
    )


def _seconds(variables: Mapping[str, Any], name: str, default: int) -> int:
    given = str(variables.get(name, default))
    return int(given) if given.isdecimal() else 0


def _is_on(variables: Mapping[str, Any], name: str, default: bool) -> bool:
    return str(variables.get(name, default)).lower() in ("true", "yes", "on", "1", "y", "t")
