"""What two rules propose for one node never contradicts: one value for each key of the policy, and no version below what another asks for at least."""

from __future__ import annotations

import itertools

import pytest
from changed_nodes import catalogue, view

from unhang.audit.rules.examples import verdict_of
from unhang.core.run.documents import InvalidNode
from unhang_node.base.versions.compare import compare_versions, holds

PROPOSALS = {rule.id: rule.row["remedy"]["policy"] for rule in catalogue().rules if rule.scope == "node" and rule.row["remedy"].get("policy")}
RULES = {rule.id: rule for rule in catalogue().rules}


def leaves(policy, path=()):
    """(path of a key, value) of each value in a policy."""
    for key, value in policy.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def contradicts(one, other):
    """Keys of the policy for which two proposals cannot both be followed. Two least versions can: the higher one is followed."""
    first, second = dict(leaves(one)), dict(leaves(other))
    same = [path for path in first.keys() & second.keys() if path[-1] != "min" and first[path] != second[path]]
    return same + [path for mine, theirs in ((first, second), (second, first)) for path in mine if path[-1] == "version" and below(mine, theirs, path)]


def below(mine, theirs, path):
    """Whether a version that one proposes is below the least that the other asks for."""
    least = theirs.get((*path[:-1], "min"))
    return least is not None and holds(compare_versions(mine[path], least, path[0]), "<")


def merged(one, other):
    """Two examples as one node, None where they say different things of one fact. Lists are joined."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = {**one, **other}
        for key in one.keys() & other.keys():
            found[key] = merged(one[key], other[key])
            if found[key] is None:
                return None
        return found
    if isinstance(one, list) and isinstance(other, list):
        return one if one == other else one + other
    return one if one == other else None


def can_both_fire(one, other):
    """Whether an example of each rule, combined into one node, causes both findings."""
    for first, second in itertools.product(RULES[one].row["examples"]["match"], RULES[other].row["examples"]["match"]):
        node = merged(first, second)
        try:
            if node is not None and all(verdict_of(RULES[rule], node, view()) == "fail" for rule in (one, other)):
                return True
        except InvalidNode:
            continue
    return False


CLASHES = [pair for pair in itertools.combinations(sorted(PROPOSALS), 2) if contradicts(PROPOSALS[pair[0]], PROPOSALS[pair[1]])]


@pytest.mark.parametrize(("one", "other"), CLASHES or [(None, None)])
def test_rules_whose_advice_clashes_never_fire_on_one_node(one, other):
    assert one is None or not can_both_fire(one, other)


def test_a_contradiction_would_be_seen():
    assert contradicts({"driver": {"version": "535.154.05"}}, {"driver": {"min": "580.65.06"}}) == [("driver", "version")]
    assert contradicts({"driver": {"min": "535.154.05"}}, {"driver": {"min": "580.65.06"}}) == []
    assert contradicts({"host": {"iommu": "off"}}, {"host": {"iommu": "passthrough"}}) == [("host", "iommu")]


@pytest.mark.parametrize("rule", sorted(rule for rule, policy in PROPOSALS.items() if policy.get("driver", {}).keys() & {"min", "version"}))
def test_no_rule_advises_a_branch_that_has_ended(rule):
    driver = PROPOSALS[rule]["driver"]
    branch = catalogue().tables["driver_branches"][(driver.get("version") or driver["min"]).split(".")[0]]
    assert "version" not in driver or branch.get("eol", "9999") > "2026-11-20"
