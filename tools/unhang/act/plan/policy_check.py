"""Judges a policy before it is applied: the rules judge the node's facts with the versions of the
policy. A policy with a known fault is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.policy import Policy, one_line, policy_faults, waivers_of
from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.engine import Engine
from unhang.judge.rules.expression import Path
from unhang.judge.rules.node_rules import CatalogueView, Judged, NodeView
from unhang.judge.rules.rules import Rule

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
SERIOUS = ("critical", "error")
# Facts that foreseen_sections() sets, and facts of the same sections that stay. A rule that reads
# others compares with versions that the roles change too.
_VERSIONS = (
    ("driver", "loaded", "version"),
    ("driver", "on_disk", "version"),
    ("driver", "branch"),
    ("kernel", "release"),
)
SET = frozenset((*_VERSIONS, ("driver", "loaded"), ("driver", "on_disk")))
FLAVOUR, RELEASE = ("driver", "loaded", "flavour"), ("kernel", "release")
STAYS = frozenset(
    (
        ("driver", "loaded", "is_loaded"),
        FLAVOUR,
        ("driver", "install_method"),
        ("driver", "gsp_firmware", "enabled"),
    )
)
READ = {"probe": {"status": "ok"}}
SECTIONS = ("driver", "fabric_manager", "kernel")
# facts that foreseen_sections() sets
FIELDS = {"driver": ("loaded", "on_disk", "branch"), "kernel": ("release",)}
UPTIME = ("node", "uptime_s")  # no policy changes how long a node has been up


def foreseen_sections(sections: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    """The node's sections after the policy is applied. Only exact versions can be foreseen."""
    driver, kernel = policy.get("driver") or {}, policy.get("kernel") or {}
    after = dict(sections)
    if driver.get("version"):
        section = dict(sections.get("driver") or READ)
        loaded = {**(section.get("loaded") or {}), "is_loaded": True, "version": driver["version"]}
        section["loaded"] = (
            {**loaded, "flavour": driver["flavour"]} if driver.get("flavour") else loaded
        )
        section["on_disk"] = {**(section.get("on_disk") or {}), "version": driver["version"]}
        section["branch"] = driver["version"].split(".")[0]
        after["driver"] = section
    if kernel.get("version"):
        after["kernel"] = {**(sections.get("kernel") or READ), "release": kernel["version"]}
    return after


def decides(rule: Rule) -> bool:
    """True for a rule whose verdict on the node as planned concerns the policy."""
    if rule.scope != "node" or rule.severity not in SERIOUS or UPTIME in rule.decision_reads:
        return False
    if rule.decision_reads & SET:
        return is_foreseeable(rule)
    return "role" not in rule.row["remedy"] and any(
        path[:2] in (("policy", "driver"), ("policy", "kernel")) for path in rule.decision_reads
    )


def is_foreseeable(rule: Rule) -> bool:
    """True for a rule about nothing but a version that the policy sets: its verdict can be
    predicted."""
    about = rule.decision_reads & SET
    return (
        rule.scope == "node"
        and bool(about)
        and all(path in SET | STAYS for path in rule.decision_reads if path[0] in SECTIONS)
    )


def foreseen_paths(policy: Policy) -> frozenset[Path]:
    """The facts that foreseen_sections() changes under this policy."""
    driver, kernel = policy.get("driver") or {}, policy.get("kernel") or {}
    paths = {path for path in SET if path[0] == "driver"} if driver.get("version") else set()
    return frozenset(
        paths
        | ({FLAVOUR} if driver.get("flavour") else set())
        | ({RELEASE} if kernel.get("version") else set())
    )


def decides_of(rule: Rule, foreseen: frozenset[Path]) -> bool:
    """Whether this policy changes the facts that a rule reads. A finding on other facts exists
    already, and may be the one that the roles repair."""
    return bool(rule.decision_reads & foreseen) or not rule.decision_reads & SET


class PolicyJudge:
    """Judges the policies of many nodes by the rules about versions."""

    def __init__(self, catalogue: Catalogue, today: str):
        self._decides = frozenset(rule.id for rule in catalogue.rules if decides(rule))
        self._foreseeable = frozenset(rule.id for rule in catalogue.rules if is_foreseeable(rule))
        rules = [rule for rule in catalogue.rules if rule.id in self._decides | self._foreseeable]
        view = CatalogueView(
            catalogue.tables,
            tuple(rule.id for rule in catalogue.rules),
            today,
        )
        self._engine = Engine(rules, view)
        self._faults: dict[bytes, list[tuple[tuple, str]]] = {}

    def is_usable(self, policy: Policy) -> bool:
        return not self._faults_of(policy)

    def refusals(
        self, host: str, groups: Sequence[str], policy: Policy, sections: Any
    ) -> list[dict[str, Any]]:
        """Reasons why the policy must not be applied to this node; [] for a good policy. sections:
        typed, None for a node that was not read."""
        if faults := self._faults_of(policy):
            return [
                _refusal(
                    "policy-not-usable",
                    "The policy cannot be used",
                    "one of the schema unhang/policy/1",
                    "; ".join(map(one_line, faults[:5])),
                )
            ]
        if sections is None or not (
            (policy.get("driver") or {}).keys() & {"version", "flavour"}
            or (policy.get("kernel") or {}).get("version")
        ):
            return []
        today, foreseen = self._engine.catalogue.today, foreseen_paths(policy)
        waived = {
            one.rule
            for one in waivers_of(policy)
            if one.row["until"] >= today and one.covers(host, groups, {})
        }
        return [
            _refusal(rule.id, rule.row["title"], texts.get("expected", ""), texts.get("found", ""))
            for rule, judged, texts in self._listed(host, groups, policy, sections)
            if judged.verdict == "fail" and (judged.severity or rule.severity) in SERIOUS
            if rule.id in self._decides - waived and decides_of(rule, foreseen)
        ]

    def cleared(
        self,
        host: str,
        groups: Sequence[str],
        policy: Policy,
        sections: Any,
        rules: Collection[str],
    ) -> frozenset[str]:
        """Of these rules, which fail on the node, those that will pass with the exact versions of
        this policy. sections: as for refusals()."""
        wanted = self._foreseeable.intersection(rules)
        exact = (policy.get("driver") or {}).get("version") or (policy.get("kernel") or {}).get(
            "version"
        )
        if sections is None or not exact or not wanted or self._faults_of(policy):
            return frozenset()
        return wanted - {rule.id for rule, _, _ in self._listed(host, groups, policy, sections)}

    def _listed(
        self, host: str, groups: Sequence[str], policy: Policy, sections: Any
    ) -> list[tuple[Rule, Judged, dict[str, str]]]:
        """(rule, verdict, texts) of the rules that fail or are undecided on the node as it will be
        under this policy."""
        verdicts = self._engine.judge(
            NodeView(host, tuple(groups), policy, "ok", "", "", _foreseen(sections, policy))
        )
        return [
            (self._engine.rules[number], judged, texts)
            for number, judged, texts, _ in verdicts.listed
        ]

    def _faults_of(self, policy: Policy) -> list[tuple[tuple, str]]:
        key = _encode(policy)
        if key not in self._faults:
            self._faults[key] = policy_faults(policy)
        return self._faults[key]


def _foreseen(sections: Any, policy: Policy) -> SimpleNamespace:
    """Typed sections after the policy is applied. Only the changed fields are copied, because
    sections are large."""
    found = {name: section for name in FIELDS if (section := getattr(sections, name)) is not None}
    plain = {
        name: {field: msgspec.to_builtins(getattr(section, field)) for field in FIELDS[name]}
        for name, section in found.items()
    }
    after = to_fragment(foreseen_sections(plain, policy))
    made = {name: getattr(after, name) for name in FIELDS}
    changed = {
        name: replace(section, **{field: getattr(made[name], field) for field in FIELDS[name]})
        for name, section in found.items()
    }
    return SimpleNamespace(
        **({name: getattr(sections, name) for name in fact_shapes()} | made | changed)
    )


def refusals_of(
    document: Mapping[str, Any], catalogue: Catalogue, today: str
) -> list[dict[str, Any]]:
    """Reasons why the policy in a node's document (schema unhang/node/1) must not be applied; []
    for a good policy, and for a node that was not read."""
    sections = to_fragment(document["facts"]["sections"]) if document["status"] == "ok" else None
    return PolicyJudge(catalogue, today).refusals(
        document["host"], document["groups"], document.get("policy") or {}, sections
    )


def _refusal(rule: str, title: str, expected: str, found: str) -> dict[str, Any]:
    return {"rule": rule, "title": title, "expected": expected, "found": found}
