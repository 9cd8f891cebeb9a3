"""Whether a role can repair a finding on a node: the policy must name the target, and the role must
be able to change it. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.strict_json import value_at

# Keys of the policy without which a role changes nothing; one of them is enough. A role that is not
# listed needs none.
NEEDS: dict[str, tuple[str, ...]] = {
    "kernel": ("kernel.version", "kernel.min"),
    "gpu_driver": ("driver.version", "driver.min", "driver.max"),
    "build_toolchain": ("build.extensions",),
    "host_tuning": ("limits", "host"),
    "package_hold": ("driver.held", "kernel.held", "nccl.held", "ofed.held"),
}
NCCL_PACKAGE = "libnccl2"
POLICY_RULES_OF_NCCL = ("policy-nccl-version", "policy-nccl-min")


def reaches(rule: str, remedy: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """False for an NCCL that is not from a package: the role nccl_profile exchanges the package,
    and does not change Python environments. The row of a table proposes only what reaches."""
    about_library = wants_another_nccl(rule, remedy)
    return not (remedy.get("role") == "nccl_profile" and about_library) or str(
        where.get("package") or where.get("path")
    ).startswith((NCCL_PACKAGE, "tables."))


def wants_another_nccl(rule: str, remedy: Mapping[str, Any]) -> bool:
    """Whether the repair of a rule's finding is another release of NCCL."""
    nccl = (remedy.get("policy") or {}).get("nccl") or {}
    return bool({"min", "version"} & nccl.keys()) or rule in POLICY_RULES_OF_NCCL


def is_configured(role: str | None, *policies: Mapping[str, Any]) -> bool:
    """Whether one of the policies has a key that the role needs."""
    keys = NEEDS.get(role or "", ())
    return not keys or any(value_at(policy, key.split(".")) for policy in policies for key in keys)


def unconfigured_text(role: str, expected: str = "", lacks: Sequence[str] = ()) -> str:
    """The manual work before the role can act. expected: by the rule, "" where nodes of one group
    want different things; lacks: the keys of which the role needs one, if they differ from the
    usual ones."""
    by_role = f"set {' or '.join(lacks or NEEDS[role])} in unhang_policy for role {role}"
    return f"bring {expected}: by hand, or {by_role}" if expected else by_role
