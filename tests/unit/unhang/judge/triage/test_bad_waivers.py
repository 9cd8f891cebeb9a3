"""A waiver that has expired or names no rule is one finding, and hides no fault of a node."""

from __future__ import annotations

import json

import pytest
from judge_cases import node, rule, sections, write_rules, write_run

from unhang.audit.report.screen import render_screen
from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import conclusion

HOSTS = [f"h{number}" for number in range(1, 7)]
EXPIRED = {"rule": "slow-link", "reason": "riser ordered", "by": "ops", "until": "2026-05-01"}
SLOW = rule(
    "driver.loaded.version == '545.23.08'",
    id="slow-link",
    title="The link is slow",
    severity="warning",
    costs="some jobs",
)


def judged(tmp_path, waiver, limit=None):
    """The findings document of six nodes with this waiver, of which h1 has a fault."""
    rows = [one.row for one in load_catalogue().rules if one.id.startswith("waiver-")]
    catalogue = load_catalogue([write_rules(tmp_path / "rules", SLOW, *rows)], built_in=False)
    nodes = [
        node(
            host,
            sections("545.23.08" if host == "h1" else "580.159.04"),
            policy={"waivers": [waiver]},
        )
        for host in HOSTS
    ]
    run = write_run(tmp_path / "run", *nodes)
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**document, "limit": limit}))
    judge_run(read_run_input(run), catalogue, "2026-06-01", conclude=conclusion(catalogue.rules))
    return json.loads((run / "findings.json").read_text())


def of_waivers(found):
    return [
        (one["rule"], one["hosts"])
        for one in found["findings"]
        if one["rule"].startswith("waiver-")
    ]


def test_an_expired_waiver_is_one_finding_on_the_hosts_that_it_names(tmp_path):
    found = judged(tmp_path, EXPIRED | {"hosts": ["h3"]})
    assert of_waivers(found) == [("waiver-expired", ["h3"])]
    assert found["node_verdicts"]["healthy"] == ["h2", "h4", "h5", "h6"]
    assert found["totals_by_rule"]["waiver-expired"] == {
        "fail": 1,
        "pass": 0,
        "unknown": 0,
        "skip": 6,
        "waived": 0,
    }


@pytest.mark.parametrize(
    "waiver", [EXPIRED, EXPIRED | {"rule": "slow-lnik", "until": "2026-12-31", "hosts": ["h3"]}]
)
def test_one_for_all_hosts_or_of_an_unknown_rule_is_about_the_policy(tmp_path, waiver):
    found = judged(tmp_path, waiver)
    assert [hosts for _, hosts in of_waivers(found)] == [[]]
    assert found["node_verdicts"]["healthy"] == HOSTS[1:]
    assert "WARNING   the policy: A waiver" in render_screen(found)


def test_a_fault_of_a_node_comes_before_it(tmp_path):
    found = judged(tmp_path, EXPIRED | {"hosts": ["h*"]})
    assert [cause["rule"] for cause in found["causes"]] == ["slow-link", "waiver-expired"]


def test_a_waiver_of_hosts_outside_of_the_limit_is_no_finding_there(tmp_path):
    assert of_waivers(judged(tmp_path, EXPIRED | {"hosts": ["x9"]}, limit="h1")) == []
