# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of playbooks/preprovision.yml. Implementation: unhang.act.gate, which imports no
Ansible."""

from __future__ import annotations

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


def gate_group(hosts: Sequence[str], hostvars: Mapping[str, Any], reference: str = "") -> Any:
    """The hosts that are tested together, the reference first. hostvars: preprovision_alone: result
    of each host's own smoke test."""
    from unhang.act.gate.deciding import fit_for_the_group

    if reference and reference not in hosts:
        wanted = "preprovision_reference must be among the hosts of this run"
        raise AnsibleFilterError(
            f"{wanted}, and {reference} is not among {', '.join(map(str, hosts))}; add it to"
            " --limit"
        )
    return fit_for_the_group(
        [str(host) for host in hosts], _alone(hosts, hostvars), str(reference) or None
    )


def gate_decisions(
    hosts: Sequence[str],
    hostvars: Mapping[str, Any],
    audit: Any,
    together: Any,
    reference: str = "",
    severities: Sequence[str] = (),
    quick: bool = False,
) -> Any:
    """{host: {outcome, reasons}}. audit: findings as text or {}; together: the group's result or
    {}; quick: the audit alone decides."""
    from unhang.act.gate.deciding import Observation, decide
    from unhang.core.ansible.inventory import plain

    counted = _counted(severities)
    try:
        judged = json.loads(audit) if isinstance(audit, str) else plain(audit)
    except ValueError:
        judged = None
    group = plain(together) or None
    observed = Observation(
        judged or None, _alone(hosts, hostvars), group, str(reference) or None, counted, bool(quick)
    )
    return decide([str(host) for host in hosts], observed)


def gate_lines(decisions: Mapping[str, Any]) -> Any:
    """One line for each host, for people."""
    return [
        f"{row['outcome']}: {host}{': ' if row['reasons'] else ''}{'; '.join(row['reasons'])}"
        for host, row in decisions.items()
    ]


def gate_document(
    decisions: Mapping[str, Any],
    run: str,
    hostvars: Mapping[str, Any],
    together: Any,
    reference: str = "",
    severities: Sequence[str] = (),
    quick: bool = False,
) -> Any:
    """gate.json (unhang/gate/1). run: the run folder; together: the group's result or {}."""
    from unhang.act.gate.outcome import SmokeResults, gate_document
    from unhang.core.ansible.inventory import plain

    decided = plain(decisions)
    group = plain(together) or None
    smoke = SmokeResults(_alone(decided, hostvars), group)
    return gate_document(
        Path(str(run)).name,
        decided,
        str(reference) or None,
        _counted(severities),
        smoke,
        bool(quick),
    )


def _counted(severities: Sequence[str]) -> Any:
    from unhang.core.errors import UserError
    from unhang.core.list_arguments import split_list
    from unhang.judge.rules.rules import SEVERITIES

    try:
        return split_list(
            str(severities) if isinstance(severities, str) else list(severities),
            "preprovision_severities",
            SEVERITIES,
        )
    except UserError as problem:
        raise AnsibleFilterError(str(problem)) from None


def _alone(hosts: Sequence[str], hostvars: Mapping[str, Any]) -> Any:
    from unhang.core.ansible.inventory import plain

    found = {str(host): hostvars[host].get("preprovision_alone") for host in hosts}
    return {host: plain(result) for host, result in found.items() if result is not None}


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_gate_group": gate_group,
            "unhang_gate_decisions": gate_decisions,
            "unhang_gate_lines": gate_lines,
            "unhang_gate_document": gate_document,
        }
