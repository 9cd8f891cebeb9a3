"""A healthy document with some changes: the answer of a node with a fault, and the rules of the
catalogue that fail on it."""

from __future__ import annotations

import copy
import functools
import re

from healthy_platforms import PLATFORMS, on_kernel
from healthy_sections import setting

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.check import check_schema
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view, judge_fragments
from unhang.judge.rules.node_rules import NodeView, finding_texts, judge_rule, node_world
from unhang.judge.rules.rules import SEVERITIES

_STEP = re.compile(r"([A-Za-z_0-9]+)((?:\[[^\]]*\])*)$")


@functools.cache
def catalogue():
    return load_catalogue()


@functools.cache
def view(today="2026-11-20"):
    return catalogue_view(catalogue().tables, tuple(rule.id for rule in catalogue().rules), today)


def places(holder, path):
    """(container, key) of every place that matches a path such as
    gpus.devices[*].pcie.width_now."""
    head, _, rest = path.partition(".")
    name, indexes = _STEP.match(head).groups()
    found = [(holder, name)]
    for index in re.findall(r"\[([^\]]*)\]", indexes):
        found = [
            (box[key], number)
            for box, key in found
            for number in (range(len(box[key])) if index == "*" else [int(index)])
        ]
    return found if not rest else [place for box, key in found for place in places(box[key], rest)]


def changed(document, change):
    """A copy of a document with the changes of a row. Raises KeyError for a key or a place that
    does not exist.

    gpus: their new, lower number. nccl, driver, kernel: another version, wherever it occurs.
    settings: NCCL's in /etc/nccl.conf.
    facts: {path: value}. add: {path of a list: items}.
    """
    document = copy.deepcopy(document)
    sections = document["sections"]
    for key, value in change.items():
        CHANGES[key](document, sections, value)
    return document


def _nccl(_, sections, version):
    for library in sections["nccl"]["libraries"]:
        library["version"] = version
    for environment in sections["torch"]["environments"]:
        environment["nccl"] = version


def _driver(_, sections, version):
    driver, old = sections["driver"], sections["driver"]["loaded"]["version"]
    driver["loaded"].update(version=version, line=f"NVRM version: {version}")
    driver.update(branch=version.split(".")[0], nvml_version=f"13.{version}")
    for library in driver["userspace"].values():
        library.update(version=version, path=library["path"].replace(old, version))
    driver["on_disk"]["version"] = driver["gsp_firmware"]["version"] = version
    for device in sections["gpus"]["devices"]:
        device["gsp_version"] = version
    for part in (sections["fabric_manager"], sections["fabric_manager"]["imex"]):
        if part["version"]:
            part["version"] = version
    for rows in (sections["kernel"]["modules"], sections["kernel"]["dkms"]):
        for row in rows:
            row["version"] = version if row["version"] == old else row["version"]
    for row in sections["kernel"]["installed"]:
        row["nvidia_module"] = version
    branch = f"-{old.split('.')[0]}", f"-{version.split('.')[0]}"
    for row in [*driver["packages"], *sections["packages"]["installed"]]:
        row.update(version=row["version"].replace(old, version), name=row["name"].replace(*branch))
    sections["packages"]["holds"] = [
        name.replace(*branch) for name in sections["packages"]["holds"]
    ]


def _settings(_, sections, values):
    nccl = sections["nccl"]
    nccl["settings"] = [row for row in nccl["settings"] if row["name"] not in values] + [
        setting(*pair) for pair in values.items()
    ]
    for effective in nccl["effective"].values():
        effective.update(values)


def _facts(_, sections, values):
    for path, value in values.items():
        for box, key in places(sections, path):
            box[key] = copy.deepcopy(value)


def _add(_, sections, values):
    for path, items in values.items():
        for box, key in places(sections, path):
            box[key] = [*(box[key] or []), *copy.deepcopy(items)]


def _gpus(_, sections, count):
    gpus, links = sections["gpus"], sections["interconnect"]
    gpus.update(count=count, pci_count=count, devices=gpus["devices"][:count])
    links["links"] = [row for row in links["links"] if row["gpu"] < count]
    links["by_gpu"] = links["by_gpu"][:count]
    links["pairs"] = [row for row in links["pairs"] if row["a"] < count and row["b"] < count]


CHANGES = {
    "gpus": _gpus, "nccl": _nccl, "driver": _driver, "kernel": lambda document, _,
    release: on_kernel(document, release), "settings": _settings,
    "facts": _facts, "add": _add,
}  # fmt: skip


def documents(case):
    """The documents of a case: one node, or the nodes of a group, for which `changes` has each
    node's own changes."""
    healthy = PLATFORMS[case["node"]]()
    return [changed(healthy, change) for change in case["changes"]]


def schema_faults(document):
    return [str(one) for one in check_schema(document, "node-facts-1")]


def found_on_node(document, policy=None, rules=None):
    """{rule id: severity} of the node rules that fail on a document."""
    world = node_world(
        NodeView(
            "node1", ("training",), policy or {}, "ok", "", "", to_fragment(document["sections"])
        ),
        view(),
    )
    rules = [
        rule for rule in (catalogue().rules if rules is None else rules) if rule.scope == "node"
    ]
    return {
        rule.id: severity
        for rule in rules
        if (severity := severity_of(rule, judge_rule(rule, world)))
    }


def severity_of(rule, verdicts):
    """The most severe finding of a rule; None without one."""
    return min(
        (one.severity or rule.severity for one in verdicts if one.verdict == "fail"),
        key=SEVERITIES.index,
        default=None,
    )


def found_in_group(nodes):
    """{rule id: severity} of the group rules that fail on documents of one group."""
    fragments = [document["sections"] for document in nodes]
    return {
        rule.id: rule.severity
        for rule in catalogue().rules
        if rule.scope == "group" and judge_fragments(rule, fragments, view()) == "fail"
    }


def found(case):
    """{rule id: severity} of all rules that fail in a case and not on the healthy node itself."""
    nodes = documents(case)
    healthy, failing = baseline(case["node"])
    rules = {
        rule: severity
        for document in nodes
        for rule, severity in found_on_node(document, rules=rules_about(document, healthy)).items()
    }
    if len(nodes) > 1:
        rules |= found_in_group(nodes)
    return {rule: severity for rule, severity in rules.items() if rule not in failing}


@functools.cache
def baseline(name):
    """(a healthy document, ids of the rules that fail on it)."""
    healthy = PLATFORMS[name]()
    return healthy, frozenset(found_on_node(healthy))


@functools.cache
def sections_read():
    """{rule id: sections that its decision reads} of the node rules."""
    return {
        rule.id: {path[0] for path in rule.decision_reads}
        for rule in catalogue().rules
        if rule.scope == "node"
    }


def rules_about(document, healthy):
    """The node rules that read a section in which a document differs from the healthy one; the
    results of all others are unchanged."""
    differing = {
        name
        for name, section in document["sections"].items()
        if section != healthy["sections"].get(name)
    }
    return [
        rule
        for rule in catalogue().rules
        if rule.scope == "node" and sections_read()[rule.id] & differing
    ]


def found_anew(case):
    """Ids of the rules with a finding in a case that the healthy node does not have, or has with
    other evidence."""
    nodes = documents(case)
    healthy, _ = baseline(case["node"])
    anew = {
        rule
        for document in nodes
        for rule, *_ in _evidence(document, rules_about(document, healthy))
        - healthy_evidence(case["node"])
    }
    return anew | (set(found_in_group(nodes)) if len(nodes) > 1 else set())


@functools.cache
def healthy_evidence(name):
    return _evidence(
        baseline(name)[0], [rule for rule in catalogue().rules if rule.scope == "node"]
    )


def _evidence(document, rules):
    """{(rule id, item, evidence)} of the findings on a document."""
    world = node_world(
        NodeView("node1", ("training",), {}, "ok", "", "", to_fragment(document["sections"])),
        view(),
    )
    return {
        (rule.id, one.item, repr(one.evidence))
        for rule in rules
        for one in judge_rule(rule, world)
        if one.verdict == "fail"
    }


def words_of(document, rule_id):
    """The findings of a node rule on a document: `found` of each."""
    world = node_world(
        NodeView("node1", ("training",), {}, "ok", "", "", to_fragment(document["sections"])),
        view(),
    )
    (rule,) = [rule for rule in catalogue().rules if rule.id == rule_id]
    world.begin()
    items = (
        {one.path: one for one in world.items(rule.for_each.evaluate(world))}
        if rule.for_each is not None
        else {}
    )
    return [
        finding_texts(rule, world, one, items)["found"]
        for one in judge_rule(rule, world)
        if one.verdict == "fail"
    ]
