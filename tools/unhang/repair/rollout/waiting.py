"""Deadlines of steps, as times and as text. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.repair.rollout.steps import BEFORE, PROOFS, REBOOTS, TOGETHER, WAIT

# Defaults of roles/drain, roles/smoke_test and playbooks/tasks/rollout; a test compares them.
DRAIN_WAIT_S, REBOOT_S, SMOKE_BEFORE_S, SMOKE_S = 3600, 1800, 180, 600
READ_AGAIN_S = 120  # playbooks/tasks/rollout/reboot.yml reads the node's driver containers


def limit_of(step: str, variables: Mapping[str, Any], kinds: int = 1) -> int:
    """Seconds that the step may take, from the play's variables; 0 if nothing limits it, or a variable is a template. kinds: number of kinds of nodes in the
    batch; the smoke test runs for one kind after the other.
    """
    if step == WAIT:
        return 0 if _is_on(variables, "drain_beside_jobs", False) else _seconds(variables, "drain_wait_timeout_s", DRAIN_WAIT_S)
    if step in REBOOTS:  # ansible.builtin.reboot waits for the boot for this time, and the same time again for the node to answer
        limit = _seconds(variables, "unhang_reboot_timeout_s", REBOOT_S)
        return 2 * limit + READ_AGAIN_S if limit else 0
    if step == BEFORE:
        asked = _is_on(variables, "unhang_smoke_before", _is_on(variables, "unhang_smoke", True))
        return _seconds(variables, "unhang_smoke_before_s", SMOKE_BEFORE_S) if asked else 0
    if step in PROOFS[1:] and _is_on(variables, "unhang_smoke", True) and not variables.get("smoke_test_burn_in"):
        return _seconds(variables, "smoke_test_deadline_s", SMOKE_S) * (kinds if step == TOGETHER else 1)
    return 0


def until_words(step: str, until: str) -> str:
    """The text after a step's name in a line; "" for no limit."""
    if not until:
        return ""
    if step in REBOOTS:
        return f"back by {until}, or it has failed"
    return f"until {until}, longer if it fails" if step in PROOFS else f"until {until} at the latest"


def _seconds(variables: Mapping[str, Any], name: str, default: int) -> int:
    given = str(variables.get(name, default))
    return int(given) if given.isdecimal() else 0


def _is_on(variables: Mapping[str, Any], name: str, default: bool) -> bool:
    return str(variables.get(name, default)).lower() in ("true", "yes", "on", "1", "y", "t")
