"""The causes of a run name the roles that a plan gives the findings to, also if a role refuses the
whole node."""

from __future__ import annotations

import copy
import json

import judge_cases
import pytest
from case_rows import case_rows

from unhang import cli
from unhang.act.plan.host_plan import plan_for_host
from unhang.act.plan.plan_document import read_plan
from unhang.act.plan.planning import PlanOptions, plan_run
from unhang.act.plan.role_coverage import remedying_of, repairs_of_run, who_repairs
from unhang.audit.report import phrases
from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.folding import fold_findings
from unhang.audit.report.manual_work import with_manual_work
from unhang.core.run.documents import NodeDocument, to_fragment
from unhang.core.schemas.check import check_schema
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import judge_folder

ROWS = case_rows(__file__)

CATALOGUE = load_catalogue()
TODAY = "2026-11-20"
REMEDYING = remedying_of(CATALOGUE, TODAY)
OK = {"probe": {"status": "ok"}}
SECTIONS = {
    "node": {
        **OK,
        "os": {"id": "ubuntu", "version_id": "22.04", "family": "debian"},
        "image": {"kind": "installed"},
    },
    "kernel": {
        **OK,
        "release": "5.4.0-172-generic",
        "out_of_tree": ["nvidia"],
        "boot": {"can_clear_one_shot": True},
    },
    "driver": {
        **OK,
        "loaded": {"is_loaded": True, "version": "545.23.08", "flavour": "proprietary"},
        "install_method": "packages",
    },
}
REMEDIES = {
    "kernel-below-5-5": {"role": "kernel", "policy": {"kernel": {"min": "5.15.0"}}},
    "driver-545-23-08-p2p-deadlock": {
        "role": "gpu_driver",
        "policy": {"driver": {"min": "580.65.06"}},
    },
    "packages-driver-not-held": {"role": "package_hold", "policy": {"driver": {"held": True}}},
}


def found(rule):
    return {
        "rule": rule,
        "severity": "error",
        "scope": "node",
        "where": {},
        "remedy": REMEDIES[rule],
    }


def asked(policy=None, **changes):
    """(who repairs its findings, the plan) of one node. changes: section -> fields."""
    sections = copy.deepcopy(SECTIONS)
    for section, fields in changes.items():
        sections.setdefault(section, dict(OK)).update(fields)
    node = NodeDocument("gpu1", ("training",), policy or {}, "ok", None, to_fragment(sections))
    findings = [found(rule) for rule in REMEDIES]
    return who_repairs(node, findings, REMEDYING).for_people(), plan_for_host(
        node, findings, REMEDYING
    )


@pytest.mark.parametrize(
    ("changes", "refused"),
    ROWS["test_the_causes_have_what_a_plan_gives_to_roles_and_why_a_role_refuses_the_node"],
)
def test_the_causes_have_what_a_plan_gives_to_roles_and_why_a_role_refuses_the_node(
    changes, refused
):
    told, plan = asked(**changes)
    assert told.roles == {one.role: one.because for one in plan.remedies}
    of_role = {remedy["role"]: rule for rule, remedy in REMEDIES.items()}
    assert {rule for rule, _ in told.turned_down} == {of_role[role] for role in refused}
    for role, reason in refused.items():
        (text,) = [text for rule, text in told.turned_down if rule == of_role[role]]
        assert text.startswith(f"role {role} refuses this node: ") and reason in text
        assert [
            line.why
            for line in plan.refused
            if line.why == f"role {role} (for {of_role[role]}): {text.partition(': ')[2]}"
        ]


WAIVER = {
    "rule": "driver-545-23-08-p2p-deadlock",
    "reason": "one GPU per job",
    "by": "ops",
    "until": "2027-01-01",
}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (
            {"driver": {"version": "545.23.08"}},
            (
                "Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs"
                " (driver-545-23-08-p2p-deadlock)"
            ),
        ),
        (
            {"driver": {"version": "545.23.08"}, "kernel": {"min": "5.15.0"}},
            "(driver-545-23-08-p2p-deadlock)",
        ),
        ({"driver": {"versoin": "1"}}, "The policy cannot be used (policy-not-usable)"),
        ({"driver": {"flavour": "proprietary"}}, "(policy-flavour-not-for-gpu)"),
        ({"driver": {"version": "545.23.08"}, "waivers": [WAIVER]}, ""),
        ({"driver": {"version": "580.159.04"}}, ""),
        ({"driver": {"flavour": "open"}}, ""),
        ({"kernel": {"version": "5.15.0-100-generic"}}, ""),
    ],
)
def test_a_policy_that_a_plan_refuses_leaves_every_finding_of_the_host_to_a_person(policy, why):
    model, architecture = (
        ("NVIDIA B200", "blackwell")
        if "flavour-not-for-gpu" in why
        else ("NVIDIA GeForce RTX 3090", "ampere")
    )
    told, plan = asked(
        policy,
        gpus={"count": 2, "model": model, "devices": [{"index": 0, "architecture": architecture}]},
    )
    assert told.roles == {one.role: one.because for one in plan.remedies}
    assert bool(told.roles) != bool(why)
    assert [why in text for _, text in told.turned_down] == (
        [True] * len(told.turned_down) if why else []
    )
    assert (
        bool(why)
        == bool(told.turned_down)
        == any(line.why.startswith("unhang_policy: ") for line in plan.refused)
    )


def test_what_a_refusing_role_would_have_been_told_stays_out_of_the_policy():
    told, plan = asked(driver={"install_method": "runfile"})
    assert told.policy == plan.remedies[0].policy
    assert "min" not in told.policy.get("driver", {})


@pytest.mark.parametrize("method", ["packages", "runfile", "container"])
def test_each_node_is_refused_for_its_own_reason(method):
    sections = {**SECTIONS, "driver": {**SECTIONS["driver"], "install_method": method}}
    node = NodeDocument("gpu1", (), {}, "ok", None, to_fragment(sections))
    told = who_repairs(node, [found("driver-545-23-08-p2p-deadlock")], REMEDYING).for_people()
    assert bool(told.turned_down) == (method != "packages")


def test_a_node_that_was_not_read_is_refused_by_no_role():
    unread = NodeDocument("gpu1", (), {}, "unreachable", "No route to host", None)
    assert who_repairs(unread, [found(rule) for rule in REMEDIES], REMEDYING).refusing == {}


def test_a_judged_run_names_the_roles_of_its_plan(tmp_path):
    """One of two nodes with the same finding has its driver from NVIDIA's run file, which the role
    refuses."""
    rows = [
        judge_cases.rule(
            "driver.loaded.is_loaded", id="own", remedy=REMEDIES["driver-545-23-08-p2p-deadlock"]
        )
    ]
    rules = judge_cases.write_rules(tmp_path / "rules", *rows)
    nodes = [
        judge_cases.node(
            method,
            {
                **judge_cases.sections(),
                **SECTIONS,
                "driver": {**SECTIONS["driver"], "install_method": method},
            },
        )
        for method in ("packages", "runfile")
    ]
    run = judge_cases.write_run(tmp_path / "run", *nodes)
    judge_folder(run, [rules], None, TODAY, repairs=repairs_of_run)
    causes = [
        one
        for one in json.loads((run / "findings.json").read_text())["causes"]
        if one["rule"] == "own"
    ]
    by_role = {one["remedy"]["role"]: one["nodes"] for one in causes}
    plan = plan_run(run, load_catalogue([rules]), PlanOptions(only=["own"]))
    assert by_role == {"gpu_driver": ["packages"], None: ["runfile"]}
    assert [one.host for one in plan.hosts if one.remedies] == ["packages"]
    # the command reads the rules that judged the run
    assert cli.main(["plan", str(run), "--rule", "own", "-q"]) == 0
    assert read_plan(run).waves == plan.waves


def test_a_finding_that_a_role_leaves_to_a_person_names_no_role_in_a_report(tmp_path, capsys):
    rows = [
        judge_cases.rule(
            "driver.loaded.is_loaded", id="own", remedy=REMEDIES["driver-545-23-08-p2p-deadlock"]
        )
    ]
    rules = judge_cases.write_rules(tmp_path / "rules", *rows)
    refused = {
        **judge_cases.sections(),
        **SECTIONS,
        "driver": {**SECTIONS["driver"], "install_method": "runfile"},
    }
    run = judge_cases.write_run(
        tmp_path / "run",
        judge_cases.node("packages", {**judge_cases.sections(), **SECTIONS}),
        judge_cases.node("runfile", refused),
    )
    judge_folder(run, [rules], None, TODAY, repairs=repairs_of_run)
    judged = json.loads((run / "findings.json").read_text())
    assert list(check_schema(judged, "findings-1")) == []
    for findings in (judged, narrowed(judged, Filter(rules=("own",)))):
        document = with_manual_work(findings)
        by_host = {
            one["host"]: phrases.action(one) for one in document["findings"] if one["rule"] == "own"
        }
        assert by_host["packages"].startswith("apply role gpu_driver")
        assert (
            "apply role" not in by_host["runfile"]
            and "role gpu_driver refuses this node" in by_host["runfile"]
        )
        assert (
            len(
                [
                    fold
                    for fold in fold_findings(document["findings"])
                    if fold.example["rule"] == "own"
                ]
            )
            == 2
        )
    for argv in (["-v"], ["-o", "csv"], ["-o", "sarif"], ["-o", "html", "--out", "-"]):
        cli.main(["report", str(run), *argv])
        shown = capsys.readouterr().out
        assert "apply role gpu_driver" in shown and "role gpu_driver refuses this node" in " ".join(
            shown.split()
        ), argv
