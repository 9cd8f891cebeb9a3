"""Finds the commands of a finding, to be pasted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.audit.report.folding import Fold
from unhang.core.run.actions import Setting, command

MOST_COMMANDS = 2


def commands_by_rule(findings: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Rule -> the causes that explain its findings."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cause in findings["causes"]:
        for rule in (cause["rule"], *cause["explains"]):
            found.setdefault(rule, []).append(cause)
    return found


def commands_of(
    fold: Fold,
    by_rule: Mapping[str, Sequence[Mapping[str, Any]]],
    setting_of: Callable[[Mapping[str, Any]], Setting],
) -> list[str]:
    """The commands of the causes of a fold's findings, each once. by_rule: result of
    commands_by_rule."""
    hosts = set(fold.hosts)
    causes = [
        one
        for one in by_rule.get(str(fold.example["rule"]), ())
        if not one["nodes"] or hosts.intersection(one["nodes"])
    ]
    return list(dict.fromkeys(command(one, setting_of(one)) for one in causes[:MOST_COMMANDS]))
