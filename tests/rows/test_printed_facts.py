"""What a rule finds in facts it also finds in the output of each tool that prints them, and nobody
is accused by output who is not accused by these facts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from healthy_machines import complete_machines

from unhang.commands.printed_facts import Output, Printed
from unhang.commands.printed_findings import judged_nodes
from unhang.commands.printed_nodes import Node
from unhang.jobs.diagnose.audited import OF_A_TOOL
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view, verdict_of
from unhang.judge.rules.rules import Rule

FIXTURES = Path(__file__).parents[1] / "fixtures"
PRINTERS = yaml.safe_load((FIXTURES / "printers.yml").read_text(encoding="utf-8"))
TOOLS = PRINTERS["tools"]
CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules if rule.scope == "node"}
VIEW = catalogue_view(CATALOGUE.tables, tuple(RULES))


def of(item: Any, path: str) -> Any:
    return reduce(lambda one, name: (one or {}).get(name), path.split("."), item)


def shown(facts: Any, below: Mapping[str, Any]) -> Any:
    """What a tool prints of facts: those of its fields that are there."""
    if isinstance(facts, list):
        return [own for one in facts if (own := shown(one, below)) != {}]
    if not below or not isinstance(facts, dict):
        return facts
    found = {name: shown(facts[name], own) for name, own in below.items() if name in facts}
    return {name: own for name, own in found.items() if own not in ([], {})}


def fields(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The paths that it shows, as a tree."""
    names = [row[0] for row in PRINTERS["gpu_names"] if row[tool.get("gpu", 1)]]
    tree: dict[str, Any] = {}
    for path in tool.get("shows", [f"gpus.devices.{name}" for name in names]):
        reduce(lambda one, name: one.setdefault(name, {}), path.split("."), tree)
    return tree


def machine(facts: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a rule's example that the tool shows, as a machine of which it shows all GPUs."""
    found = copy.deepcopy(shown(facts, fields(tool)))
    for section, items, field, others in tool.get("without", ()):
        if rows := found.get(section, {}).get(items):
            found[section][items] = [one for one in rows if one.get(field) not in others]
    gpus = found.setdefault("gpus", {})
    for place, one in enumerate(gpus.get("devices") or ()):
        address = f"0000:{place + 16:02x}:00.0"
        usual = {"index": place, "model": "NVIDIA Sample", "pci_address": address}
        one.update(usual | one)
    models = [one["model"] for one in gpus.get("devices") or ()]
    gpus["count"] = len(models) or 2
    gpus["model"] = models[0] if len({*models}) == 1 else None
    return found


def printed(tool: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    jinja = jinja2.Environment(undefined=jinja2.ChainableUndefined)
    jinja.filters["fact"] = of
    text = jinja.from_string(PRINTERS["macros"] + tool["text"])
    return text.render(PRINTERS | dict(facts)).strip("\n").splitlines()


def accused(rules: Sequence[Rule], lines: Sequence[str]) -> dict[str, str]:
    output = Output("", range(len(lines)), lines)
    node = Node("", Printed([output]))
    faults, _ = judged_nodes(replace(CATALOGUE, rules=rules), [node])
    return {one.rule: one.severity for one in faults}


def test_each_tool_whose_output_rules_judge_has_a_printer():
    page = (FIXTURES.parents[1] / "docs/diagnose.md").read_text(encoding="utf-8")
    tools = page.partition("become facts of the audit")[0].rpartition("\n\n")[2].split("`")[1::2]
    assert [one for one in tools if not any(one in name for name in TOOLS)] == []


@pytest.mark.parametrize("name", TOOLS)
def test_a_rule_finds_in_the_output_of_a_tool_what_it_finds_in_its_facts(name):
    tool, wrong, seen = TOOLS[name], [], set()
    for rule in RULES.values():
        for example in (one for kind in rule.row["examples"].values() for one in kind):
            facts = machine(example, tool)
            verdict = verdict_of(rule, facts, VIEW)
            if verdict not in ("fail", "pass"):
                continue
            lines = printed(tool, facts)
            is_read = OF_A_TOOL.search("\n".join(lines).encode())
            if bool(is_read and accused([rule], lines)) != (verdict == "fail"):
                wrong.append(f"{rule.id}: {verdict}, and not so in\n" + "\n".join(lines))
            seen |= {rule.id} if verdict == "fail" else set()
    assert seen and wrong == []


@pytest.mark.parametrize("name", TOOLS)
def test_output_of_a_healthy_machine_accuses_nobody(name):
    for one in complete_machines():
        lines = printed(TOOLS[name], machine(one.document["sections"], TOOLS[name]))
        found = {
            rule for rule, level in accused([*RULES.values()], lines).items() if level != "info"
        }
        assert (one.name, *(found - one.above_info.keys())) == (one.name,)
