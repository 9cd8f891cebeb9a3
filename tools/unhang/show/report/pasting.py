"""Commands of causes in a form to paste: finds the commands of a finding, and wraps long ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.audit.triage.actions import Setting, command
from unhang.show.report.folding import Fold

MOST_COMMANDS = 2


def commands_by_rule(findings: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Rule -> the causes that explain its findings."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cause in findings["causes"]:
        for rule in (cause["rule"], *cause["explains"]):
            found.setdefault(rule, []).append(cause)
    return found


def commands_of(fold: Fold, by_rule: Mapping[str, Sequence[Mapping[str, Any]]], setting_of: Callable[[Mapping[str, Any]], Setting]) -> list[str]:
    """The commands of the causes of a fold's findings, each once. by_rule: result of commands_by_rule."""
    hosts = set(fold.hosts)
    causes = [one for one in by_rule.get(str(fold.example["rule"]), ()) if not one["nodes"] or hosts.intersection(one["nodes"])]
    return list(dict.fromkeys(command(one, setting_of(one)) for one in causes[:MOST_COMMANDS]))


def command_lines(text: str, width: int) -> list[str]:
    r"""A command over several lines, each but the last ending in a backslash; nothing between quotes is broken."""
    lines = [""]
    for word in _with_values(_split(text)):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) > width - 2:
            lines[-1] += " \\"
            lines.append("  " + word)
        else:
            lines[-1] = longer if len(lines) == 1 else f"{lines[-1]} {word}"
    return lines


def _with_values(parts: Sequence[str]) -> list[str]:
    """The parts with each option joined to its value, so that they stay on one line."""
    joined: list[str] = []
    for word in parts:
        if joined and joined[-1].startswith("-") and " " not in joined[-1] and not word.startswith("-"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def _split(text: str) -> list[str]:
    """Split at blanks outside quotes."""
    parts, quote = [""], ""
    for letter in text:
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        if letter == " " and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
