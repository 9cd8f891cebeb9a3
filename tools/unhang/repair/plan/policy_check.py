"""Judges a policy before it is applied: the rules judge the node's facts with the versions of the policy. A policy with a known fault is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from unhang.audit.judge.compiled_catalogue import Catalogue
from unhang.audit.judge.documents import part_names, to_fragment
from unhang.audit.judge.engine import Engine
from unhang.audit.judge.expression import Path
from unhang.audit.judge.node_rules import CatalogueView, NodeView
from unhang.audit.judge.own_facts import is_own
from unhang.audit.judge.policy import one_line, policy_faults, waivers_of
from unhang.audit.judge.rules import Rule, tables_shape
from unhang.repair.plan.policy_facts import PolicyFacts
from unhang.schemas.shapes import fact_shapes

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
SERIOUS = ("critical", "error")
# Facts that foreseen_sections() sets, and facts of the same sections that stay. A rule that reads others compares with versions that the roles change too.
_VERSIONS = (("driver", "loaded", "version"), ("driver", "on_disk", "version"), ("driver", "branch"), ("kernel", "release"))
SET = frozenset((*_VERSIONS, ("driver", "loaded"), ("driver", "on_disk")))
FLAVOUR, RELEASE = ("driver", "loaded", "flavour"), ("kernel", "release")
STAYS = frozenset((("driver", "loaded", "is_loaded"), FLAVOUR, ("driver", "install_method"), ("driver", "gsp_firmware", "enabled")))
READ = {"probe": {"status": "ok"}}
SECTIONS = ("driver", "fabric_manager", "kernel")
FIELDS = {"driver": ("loaded", "on_disk", "branch"), "kernel": ("release",)}  # facts that foreseen_sections() sets
MOST_PASSED = 4096  # of one engine


def foreseen_sections(sections: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """The node's sections after the policy is applied. Only exact versions can be foreseen."""
    driver, kernel = policy.get("driver") or {}, policy.get("kernel") or {}
    after = dict(sections)
    if driver.get("version"):
        section = dict(sections.get("driver") or READ)
        loaded = {**(section.get("loaded") or {}), "is_loaded": True, "version": driver["version"]}
        section["loaded"] = {**loaded, "flavour": driver["flavour"]} if driver.get("flavour") else loaded
        section["on_disk"] = {**(section.get("on_disk") or {}), "version": driver["version"]}
        section["branch"] = driver["version"].split(".")[0]
        after["driver"] = section
    if kernel.get("version"):
        after["kernel"] = {**(sections.get("kernel") or READ), "release": kernel["version"]}
    return after


def decides(rule: Rule) -> bool:
    """True for a rule whose verdict on the node as planned concerns the policy."""
    if rule.scope != "node" or rule.severity not in SERIOUS or any(map(is_own, rule.decision_reads)):
        return False  # no policy changes how long a node has been up
    if rule.decision_reads & SET:
        return is_foreseeable(rule)
    return "role" not in rule.row["remedy"] and any(path[:2] in (("policy", "driver"), ("policy", "kernel")) for path in rule.decision_reads)


def is_foreseeable(rule: Rule) -> bool:
    """True for a rule about nothing but a version that the policy sets: its verdict can be predicted."""
    about = rule.decision_reads & SET
    return rule.scope == "node" and bool(about) and all(path in SET | STAYS for path in rule.decision_reads if path[0] in SECTIONS)


def foreseen_paths(policy: Mapping[str, Any]) -> frozenset[Path]:
    """The facts that foreseen_sections() changes under this policy."""
    driver, kernel = policy.get("driver") or {}, policy.get("kernel") or {}
    paths = {path for path in SET if path[0] == "driver"} if driver.get("version") else set()
    return frozenset(paths | ({FLAVOUR} if driver.get("flavour") else set()) | ({RELEASE} if kernel.get("version") else set()))


def decides_of(rule: Rule, foreseen: frozenset[Path]) -> bool:
    """Whether this policy changes the facts that a rule reads. A finding on other facts exists already, and may be the one that the roles repair."""
    return bool(rule.decision_reads & foreseen) or not rule.decision_reads & SET


class PolicyJudge:
    """Judges the policies of many nodes, equal nodes once. facts: extracts from a node the facts that decide."""

    def __init__(self, catalogue: Catalogue, today: str):
        self._rules = [rule for rule in catalogue.rules if decides(rule)]
        self.facts = PolicyFacts(frozenset(path for rule in self._rules for path in rule.decision_reads if path[0] in fact_shapes()))
        self._foreseeable = {rule.id: rule for rule in catalogue.rules if is_foreseeable(rule)}
        self._view = CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), today)
        self._engines: dict[Any, tuple[Engine, set[Any]]] = {}  # and the (policy, facts) that have no fault
        self._clearing: dict[frozenset[str], Engine] = {}
        self._made: dict[Any, dict[str, Any]] = {}
        self._policies: dict[bytes, tuple[int, list[tuple[tuple, str]]]] = {}
        self._known_objects: dict[int, tuple[Mapping[str, Any], tuple[int, list[tuple[tuple, str]]]]] = {}  # id -> the policy, and what is known of it
        self._places = {name: part_names().index((name,)) for name in FIELDS}

    def is_usable(self, policy: Mapping[str, Any]) -> bool:
        """Whether a policy follows the schema."""
        return not self._known(policy)[1]

    def refusals(self, host: str, groups: Sequence[str], policy: Mapping[str, Any], sections: Any, seen: Sequence[bytes | None] = ()) -> list[dict[str, Any]]:
        """Reasons why the policy must not be applied to this node; [] for a good policy. sections: typed (judge.documents), None for a node that was not read.

        seen: the bytes of its parts, as far as they are known.
        """
        number, faults = self._known(policy)
        if faults:
            return [_refusal("policy-not-usable", "The policy cannot be used", "one of the schema unhang/policy/1", "; ".join(map(one_line, faults[:5])))]
        if sections is None or not ((policy.get("driver") or {}).keys() & {"version", "flavour"} or (policy.get("kernel") or {}).get("version")):
            return []
        engine, passed = self._engine(host, groups, policy)
        # A finding's texts may quote more of a node than the facts that decide; a policy that passes has no texts.
        alike = (number, tuple(groups), self.facts.of(sections))
        if alike in passed:
            return []
        rest = [None if place in self._places.values() else one for place, one in enumerate(seen)]  # the foreseen sections have other bytes
        node, found = NodeView(host, tuple(groups), policy, "ok", "", "", self._foreseen(sections, policy, number), tuple(rest)), []
        for rule_number, judged, texts, _where in engine.judge(node, number).listed:
            rule = engine.rules[rule_number]
            if judged.verdict == "fail":
                found.append(_refusal(rule.id, rule.row["title"], texts.get("expected", ""), texts.get("found", "")))
        if not found:
            _remember(passed, alike)
        return found

    def cleared(self, host: str, groups: Sequence[str], policy: Mapping[str, Any], sections: Any, rules: Collection[str]) -> frozenset[str]:
        """Of these rules, which fail on the node, those that will pass with the exact versions of this policy. sections: as for refusals()."""
        number, faults = self._known(policy)
        wanted = frozenset(rule for rule in rules if rule in self._foreseeable)
        exact = (policy.get("driver") or {}).get("version") or (policy.get("kernel") or {}).get("version")
        if faults or sections is None or not exact or not wanted:
            return frozenset()
        if wanted not in self._clearing:
            self._clearing[wanted] = Engine([self._foreseeable[rule] for rule in sorted(wanted)], self._view)
        engine, node = self._clearing[wanted], NodeView(host, tuple(groups), policy, "ok", "", "", self._foreseen(sections, policy, number))
        return wanted - {engine.rules[rule_number].id for rule_number, *_ in engine.judge(node, number).listed}

    def _foreseen(self, sections: Any, policy: Mapping[str, Any], number: int) -> SimpleNamespace:
        """Typed sections after the policy with this number is applied. Only the changed fields are copied, because sections are large."""
        found = {name: section for name in FIELDS if (section := getattr(sections, name)) is not None}
        plain = {name: {field: msgspec.to_builtins(getattr(section, field)) for field in FIELDS[name]} for name, section in found.items()}
        key = (number, _encode(plain))
        made = self._made.get(key)
        if made is None:
            after = to_fragment(foreseen_sections(plain, policy))
            made = self._made[key] = {name: getattr(after, name) for name in FIELDS}
        changed = {name: replace(section, **{field: getattr(made[name], field) for field in FIELDS[name]}) for name, section in found.items()}
        return SimpleNamespace(**({name: getattr(sections, name) for name in fact_shapes()} | made | changed))

    def _known(self, policy: Mapping[str, Any]) -> tuple[int, list[tuple[tuple, str]]]:
        """The policy's number, and its faults."""
        before = self._known_objects.get(id(policy))
        if before is not None and before[0] is policy:
            return before[1]
        key = _encode(policy)
        if key not in self._policies:
            self._policies[key] = (len(self._policies), policy_faults(policy))
        self._known_objects[id(policy)] = (policy, self._policies[key])
        return self._policies[key]

    def _engine(self, host: str, groups: Sequence[str], policy: Mapping[str, Any]) -> tuple[Engine, set[Any]]:
        """An engine with the rules that this policy decides, without those that are waived for this host today; and the (policy, facts) without a fault."""
        waived = frozenset(one.rule for one in waivers_of(policy) if one.row["until"] >= self._view.today and one.covers(host, groups))
        key = (waived, foreseen_paths(policy))
        if key not in self._engines:
            self._engines[key] = Engine([rule for rule in self._rules if rule.id not in waived and decides_of(rule, key[1])], self._view), set()
        return self._engines[key]


def refusals_of(document: Mapping[str, Any], catalogue: Catalogue, today: str) -> list[dict[str, Any]]:
    """Reasons why the policy in a node's document (schema unhang/node/1) must not be applied; [] for a good policy, and for a node that was not read."""
    sections = to_fragment(document["facts"]["sections"]) if document["status"] == "ok" else None
    return PolicyJudge(catalogue, today).refusals(document["host"], document["groups"], document.get("policy") or {}, sections)


def _remember(passed: set[Any], alike: Any) -> None:
    if len(passed) >= MOST_PASSED:
        passed.clear()
    passed.add(alike)


def _refusal(rule: str, title: str, expected: str, found: str) -> dict[str, Any]:
    return {"rule": rule, "title": title, "expected": expected, "found": found}
