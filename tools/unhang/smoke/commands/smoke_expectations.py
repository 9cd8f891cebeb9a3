"""The bandwidth that a smoke test should reach: from the catalogue's tables and the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang.core.strict_yaml import YamlFault, load_yaml
from unhang.smoke.commands.smoke_options import SmokeOptions
from unhang.smoke.expectations import Expectations, read_expectations
from unhang_node.base.parse.values import as_map


def expectations_of(options: SmokeOptions) -> Expectations:
    """By --policy and --policy-bandwidth. Raises UserError."""
    rows = (
        bandwidth_in(options.policy_bandwidth)
        if options.policy_bandwidth is not None
        else bandwidth_of(options.policy)
    )
    return read_expectations(rows)


def bandwidth_of(path: str | None) -> list[dict[str, Any]]:
    """Rows of the key `bandwidth` of a file with one policy; [] without a file. Raises
    UserError."""
    if path is None:
        return []
    try:
        policy, _ = load_yaml(Path(path))
    except YamlFault as problem:
        raise UserError(f"{problem}") from None
    policy = as_map(policy).get("unhang_policy", policy)
    if "groups" in as_map(policy):
        raise UserError(f"--policy: {path} has several groups, not one policy")
    return _rows_of(policy, path)


def bandwidth_in(text: str) -> list[dict[str, Any]]:
    """The same rows from JSON, which the inventory's values are passed as. Raises UserError."""
    try:
        rows = parse_strictly(text)
    except NotStrict as problem:
        raise UserError(f"bandwidth of the policy: this is not JSON: {problem}") from None
    return _rows_of({"bandwidth": rows}, "the policy")


def _rows_of(policy: Any, where: str) -> list[dict[str, Any]]:
    """Of a policy whose keys are all checked, but not the order of its versions, which only those
    need who install them."""
    for fault in check_schema({} if policy is None else policy, "policy-1"):
        raise UserError(f"{'.'.join(map(str, fault.path))} of {where}: {fault.message}")
    return list((policy or {}).get("bandwidth") or ())
