"""A rule's example as a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.rules.node_rules import NodeView

CONTEXT_KEYS = ("policy", "host", "groups", "run_status", "message", "policy_error")


def example_node(fragment: Mapping[str, Any], host: str = "example") -> NodeView:
    """A fragment {section: fields, policy: …, run_status: …} as a node. Raises InvalidNode with the
    place of a wrong type."""
    unknown = [key for key in fragment if key not in CONTEXT_KEYS and key not in fact_shapes()]
    sections = {
        key: {"probe": {"status": "ok"}, **value} if isinstance(value, dict) else value
        for key, value in fragment.items()
        if key not in CONTEXT_KEYS
    }
    status = fragment.get("run_status", "ok")
    facts = to_fragment(sections) if status == "ok" or sections or unknown else None
    return NodeView(
        fragment.get("host", host), tuple(fragment.get("groups", ("gpu",))),
        fragment.get("policy", {}), status, fragment.get("message", ""),
        fragment.get("policy_error", ""), facts,
    )  # fmt: skip
