"""The bandwidth that a smoke test should reach: from the catalogue's tables, the policy, and
earlier results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core.baselines import history_rows, read_baselines
from unhang.core.errors import UserError
from unhang.core.schemas.policy import load_policy, policy_faults
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang.smoke.commands.smoke_options import SmokeOptions
from unhang.smoke.expectations import Expectations, read_expectations


def expectations_of(options: SmokeOptions) -> Expectations:
    """By --baseline, --policy and --policy-bandwidth. Raises UserError."""
    rows = (
        bandwidth_in(options.policy_bandwidth)
        if options.policy_bandwidth is not None
        else bandwidth_of(options.policy)
    )
    return read_expectations(history_rows(read_baselines(options.baseline)), rows)


def bandwidth_of(path: str | None) -> list[dict[str, Any]]:
    """Rows of the key `bandwidth` of a file with one policy; [] without a file. Raises
    UserError."""
    if path is None:
        return []
    policy = load_policy(Path(path)).everybody
    if policy is None:
        raise UserError(f"--policy: {path} has several groups, not one policy")
    return list(policy.get("bandwidth") or ())


def bandwidth_in(text: str) -> list[dict[str, Any]]:
    """The same rows from JSON, which the inventory's values are passed as. Raises UserError."""
    try:
        rows = parse_strictly(text)
    except NotStrict as problem:
        raise UserError(f"bandwidth of the policy: this is not JSON: {problem}") from None
    for where, message in policy_faults({"bandwidth": rows}):
        raise UserError(f"{'.'.join(map(str, where))} of the policy: {message}")
    return list(rows)
