# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role drain. Implementation: unhang.act.rollout, which imports no Ansible."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


def kubernetes_step(
    node: str,
    step: Any,
    pods: str,
    run: str,
    why: str = "",
    takes_over: str = "",
    boot_id: str = "",
) -> Any:
    """What to do with a node of Kubernetes, as unhang.act.rollout.kubernetes_drain.Step. node,
    pods: as kubectl prints them, "" for a node that the API does not know.

    boot_id: of the machine to drain, "" if it was not read.
    """
    from unhang.act.rollout.kubernetes_drain import plan_drain, plan_release

    if not node:
        raise AnsibleFilterError(
            "Kubernetes has no node with this name; drain_node names it where the inventory has"
            " another name"
        )
    try:
        if step == "release":
            found = plan_release(_read(node), _items(pods), str(run), str(takes_over))
        else:
            found = plan_drain(
                _read(node), _items(pods), str(run), str(why), str(takes_over), str(boot_id)
            )
    except ValueError as problem:
        raise AnsibleFilterError(str(problem)) from None
    return {
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(found)},
        "answer": found.answer._asdict(),
    }


def kubernetes_jobs(pods: str) -> Any:
    """Those of the pods whose work would be lost, by namespace and name."""
    from unhang.act.rollout.kubernetes_drain import is_job

    return [
        f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        for pod in _items(pods)
        if is_job(pod)
    ]


def kubernetes_all_jobs(answers: Sequence[Any]) -> Any:
    """{nodes: [name], jobs: {node: [job]}, why} of kubectl's answers about all nodes and all pods;
    why: no answer, for this reason."""
    from unhang.act.rollout.kubernetes_drain import jobs_by_node

    bad = [one for one in answers if one.get("rc") != 0]
    if bad or len(answers) != 2:
        why = next((one.get("stderr") or one.get("msg") for one in bad), "")
        return {"nodes": [], "jobs": {}, "why": str(why or "no answer")}
    try:
        nodes, pods = (_items(one["stdout"]) for one in answers)
    except AnsibleFilterError as problem:  # it is asked again, as where kubectl failed
        return {"nodes": [], "jobs": {}, "why": str(problem)}
    names = [node["metadata"]["name"] for node in nodes]
    return {"nodes": names, "jobs": jobs_by_node(pods), "why": ""}


def kubernetes_states(nodes: str) -> Any:
    """{in_service: [name], out: {name: who and why}} of all nodes, as kubectl prints them."""
    from unhang.act.rollout.kubernetes_drain import list_states

    try:
        return list_states(_items(nodes))
    except ValueError as problem:
        raise AnsibleFilterError(str(problem)) from None


def _read(text: str) -> Any:
    try:
        return json.loads(str(text))
    except ValueError:
        raise AnsibleFilterError(f"kubectl did not print JSON: {str(text)[:80]!r}") from None


def _items(text: str) -> Any:
    """The objects of a list, each with its name."""
    found = _read(text)
    rows = found.get("items") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(map(_is_named, rows)):
        raise AnsibleFilterError(f"kubectl did not print a list: {str(text)[:80]!r}")
    return rows


def _is_named(row: Any) -> bool:
    of = row.get("metadata") if isinstance(row, dict) else None
    return isinstance(of, dict) and isinstance(of.get("name"), str)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_kubernetes_step": kubernetes_step,
            "unhang_kubernetes_jobs": kubernetes_jobs,
            "unhang_kubernetes_all_jobs": kubernetes_all_jobs,
            "unhang_kubernetes_states": kubernetes_states,
        }
