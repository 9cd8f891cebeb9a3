"""The part of a cause's remedy that the log has not met yet: a lower bound is no advice where every version in the log is above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.jobs.diagnose.log_facts import Facts
from unhang_node.versions.compare import compare_versions, holds

_COMPARED = ("driver", "nccl", "kernel")  # keys of a policy with a version; the fact of a log is named after each, and so is the order


def fitting_remedy(remedy: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """The remedy without the parts of a policy whose lower bound (`nccl.min`) every version of the log meets, and without its role if nothing else is left."""
    wanted = remedy.get("variables") or {}
    left = {key: values for key, values in wanted.items() if not (key in _COMPARED and _is_met(key, values.get("min"), facts))}
    if left == wanted:
        return dict(remedy)
    gone = () if left else ("role", "variables")
    return {name: value for name, value in {**remedy, "variables": left}.items() if name not in gone}


def _is_met(key: str, least: str | None, facts: Facts) -> bool:
    found = facts.values(f"{key}_version") if least else []
    return bool(found) and all(holds(compare_versions(one, least, key), ">=") is True for one in found)
