"""A policy that names a group which no node is in says so, and names the group that it nearly
names."""

from __future__ import annotations

import json

import pytest
from judge_cases import node, rule, sections, write_rules, write_run

from unhang.core.errors import UserError
from unhang.core.run.run_input import read_run_input
from unhang.core.schemas.policy import load_policy
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue

TIED = rule(None, id="differs", scope="group", tied="info", compare="driver.loaded.version")
FAULT = rule("policy_error != ''", id="bad-policy", found="{{ policy_error }}")


def judged(tmp_path, same_as, limit=None, policy=None):
    """(rule, verdict, hosts, found) of each finding."""
    catalogue = load_catalogue([write_rules(tmp_path / "rules", TIED, FAULT)], built_in=False)
    dev = {"groups": ["all", "dev"], "policy": {"same_as": same_as}}
    run = write_run(
        tmp_path / "run",
        node("p1", sections("580.1"), groups=["all", "production"]),
        node("d1", sections("580.2"), **dev),
    )
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**document, "limit": limit}))
    judge_run(read_run_input(run), catalogue, "2026-06-01", policy)
    found = json.loads((run / "findings.json").read_text())["findings"]
    return [
        (one["rule"], one["verdict"], one["host"] or one["hosts"], one["found"]) for one in found
    ]


@pytest.mark.parametrize(
    ("same_as", "near"), [("prodution", " (did you mean production?)"), ("reference", "")]
)
def test_a_group_that_no_node_is_in_makes_the_comparison_unknown_and_leaves_the_rest_of_the_policy(
    tmp_path, same_as, near
):
    ((rule_id, verdict, _, found),) = judged(tmp_path, same_as)
    assert (rule_id, verdict) == ("differs", "unknown")
    assert found.endswith(
        f"no node of the run is in this group, which the policy names in same_as{near}"
    )


@pytest.mark.parametrize("same_as", ["prodution", "reference"])
def test_a_limited_run_does_not_know_all_groups(tmp_path, same_as):
    assert judged(tmp_path, same_as, limit="dev") == []


@pytest.mark.parametrize(
    ("groups", "near"),
    [("dve: {gpu: {count: 8}}", " (did you mean dev?)"), ("h200: {gpu: {count: 8}}", "")],
)
def test_a_policy_file_for_unknown_groups_alone_is_refused(tmp_path, groups, near):
    path = tmp_path / "next.yml"
    path.write_text(f"groups:\n  {groups}\n")
    with pytest.raises(UserError) as refused:
        judged(tmp_path, "production", policy=load_policy(path))
    name = groups.partition(":")[0]
    assert (
        str(refused.value)
        == f"{path}:2: groups.{name}: no node of the run is in this group{near}\ngroups of the run"
        " are all, dev, production"
    )


@pytest.mark.parametrize("known", ["all: {}", "dev: {gpu: {count: 8}}"])
def test_a_policy_file_may_name_groups_of_other_inventories(tmp_path, known):
    path = tmp_path / "next.yml"
    path.write_text(
        f"groups:\n  {known}\n  dev2: {{gpu: {{count: 8}}}}\n  h200: {{gpu: {{count: 8}}}}\n"
    )
    assert [
        one
        for one in judged(tmp_path, "production", policy=load_policy(path))
        if one[0] == "bad-policy"
    ] == []
