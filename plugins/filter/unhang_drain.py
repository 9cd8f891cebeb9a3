# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the role drain. Implementation: unhang.act.rollout, which imports no Ansible."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

_TOOLS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")]
# plain ansible-playbook may run without unhang, or with another version of it
for _folder in _TOOLS:
    if _folder not in sys.path:
        sys.path.insert(0, _folder)


def kubernetes_step(
    nodes: Sequence[Any],
    step: Any,
    pods: Sequence[Any],
    run: str,
    why: str = "",
    takes_over: str = "",
    boot_id: str = "",
) -> Any:
    """What to do with a node of Kubernetes, as unhang.act.rollout.kubernetes_drain.Step. nodes,
    pods: resources of kubernetes.core.k8s_info.

    boot_id: of the machine to drain, "" if it was not read.
    """
    from unhang.act.rollout.kubernetes_drain import plan_drain, plan_release
    from unhang.core.ansible.inventory import plain

    nodes, pods = plain([nodes, pods])
    if len(nodes) != 1:
        raise AnsibleFilterError(
            f"expected one node of Kubernetes with this name, found {len(nodes)}; drain_node names"
            " it where the inventory has another name"
        )
    try:
        if step == "release":
            found = plan_release(nodes[0], pods, str(run), str(takes_over))
        else:
            found = plan_drain(nodes[0], pods, str(run), str(why), str(takes_over), str(boot_id))
    except ValueError as problem:
        raise AnsibleFilterError(str(problem)) from None
    return {
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(found)},
        "answer": found.answer._asdict(),
    }


def kubernetes_jobs(pods: Sequence[Any]) -> Any:
    """Those of the pods whose work would be lost, by namespace and name."""
    from unhang.act.rollout.kubernetes_drain import is_job
    from unhang.core.ansible.inventory import plain

    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in plain(pods)
        if is_job(pod)
    ]


def kubernetes_jobs_by_node(pods: Sequence[Any]) -> Any:
    """{node: [job]} of those of the pods whose work would be lost."""
    from unhang.act.rollout.kubernetes_drain import jobs_by_node
    from unhang.core.ansible.inventory import plain

    return jobs_by_node(plain(pods))


def kubernetes_states(nodes: Sequence[Any]) -> Any:
    """{in_service: [name], out: {name: who and why}} of nodes as kubernetes.core.k8s_info lists
    them."""
    from unhang.act.rollout.kubernetes_drain import list_states
    from unhang.core.ansible.inventory import plain

    try:
        return list_states(plain(nodes))
    except ValueError as problem:
        raise AnsibleFilterError(str(problem)) from None


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_kubernetes_step": kubernetes_step,
            "unhang_kubernetes_jobs": kubernetes_jobs,
            "unhang_kubernetes_jobs_by_node": kubernetes_jobs_by_node,
            "unhang_kubernetes_states": kubernetes_states,
        }
