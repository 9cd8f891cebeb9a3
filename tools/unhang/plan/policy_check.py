"""Judges a policy before it is applied: the node as it would be under it, by the catalogue's rules. What would bring in a known fault is refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from unhang.judge.compiled_catalogue import Catalogue
from unhang.judge.documents import to_fragment
from unhang.judge.engine import Engine
from unhang.judge.node_rules import CatalogueView, NodeView
from unhang.judge.policy import one_line, policy_faults, waivers_of
from unhang.judge.rules import Rule, tables_shape

SERIOUS = ("critical", "error")
# What foreseen_sections() sets, and what stays as it is beside it. A rule that reads more of these sections compares with what the roles bring along.
_VERSIONS = (("driver", "loaded", "version"), ("driver", "on_disk", "version"), ("driver", "branch"), ("kernel", "release"))
SET = frozenset((*_VERSIONS, ("driver", "loaded"), ("driver", "on_disk")))
STAYS = frozenset((("driver", "loaded", "is_loaded"), ("driver", "loaded", "flavour"), ("driver", "install_method"), ("driver", "gsp_firmware", "enabled")))
READ = {"probe": {"status": "ok"}}
SECTIONS = ("driver", "fabric_manager", "kernel")


def foreseen_sections(sections: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """The node's sections as the policy would make them. Exact versions alone can be foreseen."""
    driver, kernel = policy.get("driver") or {}, policy.get("kernel") or {}
    after = dict(sections)
    if driver.get("version"):
        section = copy.deepcopy(sections.get("driver") or READ)
        loaded = {**(section.get("loaded") or {}), "is_loaded": True, "version": driver["version"]}
        section["loaded"] = {**loaded, "flavour": driver["flavour"]} if driver.get("flavour") else loaded
        section["on_disk"] = {**(section.get("on_disk") or {}), "version": driver["version"]}
        section["branch"] = driver["version"].split(".")[0]
        after["driver"] = section
    if kernel.get("version"):
        after["kernel"] = {**(sections.get("kernel") or READ), "release": kernel["version"]}
    return after


def decides(rule: Rule) -> bool:
    """True for a rule whose verdict on the foreseen node tells of the policy."""
    if rule.scope != "node" or rule.severity not in SERIOUS:
        return False
    if rule.decision_reads & SET:
        return all(path in SET | STAYS for path in rule.decision_reads if path[0] in SECTIONS)
    return "role" not in rule.row["remedy"] and any(path[:2] in (("policy", "driver"), ("policy", "kernel")) for path in rule.decision_reads)


def refusals_of(document: Mapping[str, Any], catalogue: Catalogue, today: str) -> list[dict[str, Any]]:
    """Why the policy of a node's document (schema unhang/node/1) is not to be applied; [] for a good one, and for a node that was not read."""
    policy = document.get("policy") or {}
    faults = policy_faults(policy)
    if faults:
        return [_refusal("policy-not-usable", "The policy cannot be used", "one of the schema unhang/policy/1", "; ".join(map(one_line, faults[:5])))]
    if document["status"] != "ok" or not ((policy.get("driver") or {}).keys() & {"version", "flavour"} or (policy.get("kernel") or {}).get("version")):
        return []
    sections = foreseen_sections(document["facts"]["sections"], policy)
    node = NodeView(document["host"], tuple(document["groups"]), policy, "ok", "", "", to_fragment(sections))
    view = CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), today)
    waived = {one.rule for one in waivers_of(policy) if one.row["until"] >= today and one.covers(document["host"], document["groups"])}
    engine = Engine([rule for rule in catalogue.rules if decides(rule) and rule.id not in waived], view)
    found = []
    for number, judged, words, _where in engine.judge(node, 0).listed:
        rule = engine.rules[number]
        if judged.verdict == "fail":
            found.append(_refusal(rule.id, rule.row["title"], words.get("expected", ""), words.get("found", "")))
    return found


def _refusal(rule: str, title: str, expected: str, found: str) -> dict[str, Any]:
    return {"rule": rule, "title": title, "expected": expected, "found": found}
