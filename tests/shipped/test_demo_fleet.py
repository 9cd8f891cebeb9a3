"""The recorded fleet, audited by the real ansible-playbook and judged: a finding for each
situation, and none on healthy nodes."""

from __future__ import annotations

import filecmp
import importlib.util
import json
import os
import re
from pathlib import Path

import page_commands
import pytest
from forked_commands import forked
from page_visit import CHROMIUM, Visit
from report_picture import PICTURE, shown_words, words_in

from unhang.act.plan.plan_document import render_plan
from unhang.act.plan.planning import PlanOptions, plan_run
from unhang.audit.report.screen import render_screen
from unhang.core.run.actions import Setting
from unhang.judge.rules.compiled_catalogue import load_catalogue

PROJECT = Path(__file__).resolve().parents[2]
RECORDED = PROJECT / "inventory" / "demo" / "recorded"
HEALTHY = {"gpu001", "gpu002", "gpu003", "gpu005", "gpu008", "a100-01", "t4-01", "login01"}
MOST_BYTES = 1_500_000
pytestmark = pytest.mark.xdist_group("demo")  # one audit of the fleet for all tests


@pytest.fixture(scope="module")
def run(demo_audit):
    """The run folder of `unhang audit --inventory inventory/demo`."""
    assert demo_audit.code == 1, demo_audit.errors[-2000:]
    return demo_audit.folder.parent / "latest"


@pytest.fixture(scope="module")
def findings(run):
    return json.loads((run / "findings.json").read_text())["findings"]


@pytest.fixture(scope="module")
def statuses(run):
    return {
        node["host"]: node["status"]
        for node in (json.loads(path.read_text()) for path in (run / "nodes").glob("*.json"))
    }


def hosts_of(finding):
    return set(finding.get("hosts") or [finding["host"]])


def failed(findings, rule):
    """The nodes with a finding of a rule."""
    return {
        host
        for finding in findings
        if finding["rule"] == rule and finding["verdict"] == "fail"
        for host in hosts_of(finding)
    }


def test_fleet_has_at_least_sixteen_nodes_and_all_but_the_broken_were_read(statuses):
    assert len(statuses) >= 16
    assert {host: status for host, status in statuses.items() if status != "ok"} == {
        "gone01": "unreachable",
        "odd01": "invalid",
    }


@pytest.mark.parametrize(
    ("situation", "host", "rules"),
    [
        (
            1,
            "ws-a6000",
            [
                "kernel-below-5-5",
                "pcie-width-below-max",
                "nccl-interface-not-named",
                "acs-on-bare-metal",
            ],
        ),
        (2, "ws-3090-1", ["driver-545-23-08-p2p-deadlock"]),
        (2, "ws-3090-2", ["driver-545-23-08-p2p-deadlock", "nccl-p2p-disabled"]),
        (2, "dev01", ["group-driver-differs"]),
        (3, "fsdp01", ["nccl-setting-not-real", "gpu-shared-by-users", "gpu-in-use"]),
        (
            3,
            "fsdp02",
            ["torch-setting-renamed", "nccl-algorithm-forced", "group-settings-differ"],
        ),
        (3, "fsdp03", ["group-torch-nccl-differs", "nccl-ib-disabled-with-rdma"]),
        (3, "gpu004", ["group-nccl-differs"]),
        (3, "gpu006", ["nvlink-some-inactive"]),
        (3, "gpu007", ["gpu-needs-reboot", "xid-fatal", "gpu-gives-no-handle"]),
        (
            4,
            "mega01",
            [
                "build-nvcc-differs-from-torch",
                "build-ninja-missing",
                "build-python-headers-missing",
                "build-memory-small",
                "build-temp-space-small",
            ],
        ),
        (
            5,
            "llmc01",
            ["cuda-visible-devices-pinned", "all-ranks-on-one-gpu", "gpu-compute-mode-exclusive"],
        ),
    ],
)
def test_situation_is_found_where_the_story_puts_it_and_shown_as_such(
    findings, situation, host, rules
):
    for rule in rules:
        assert host in failed(findings, rule), rule
        shown = [
            finding
            for finding in findings
            if finding["rule"] == rule and finding["verdict"] == "fail"
        ]
        assert all(situation in finding["situations"] for finding in shown), rule


def test_node_that_is_gone_and_node_that_answers_rubbish_are_findings(findings):
    assert failed(findings, "node-unreachable") == {"gone01"}
    assert failed(findings, "node-answer-invalid") == {"odd01"}


def test_nothing_above_info_is_said_against_a_healthy_node(findings):
    blamed = {
        (finding["rule"], host)
        for finding in findings
        if finding["verdict"] == "fail" and finding["severity"] != "info"
        for host in (blamed_hosts(finding)) & HEALTHY
    }
    assert blamed == set()


def blamed_hosts(finding):
    """Of a comparison, only the hosts that differ from most."""
    if finding["scope"] == "node":
        return hosts_of(finding)
    return set(finding["hosts"])


def test_no_rule_lacks_a_fact_on_a_healthy_node(findings):
    lacking = {
        (finding["rule"], host)
        for finding in findings
        if finding["verdict"] == "unknown"
        for host in hosts_of(finding) & HEALTHY
    }
    assert lacking == set()


def test_recorded_trees_are_what_their_builder_writes(tmp_path):
    specification = importlib.util.spec_from_file_location("demo_build", RECORDED / "build.py")
    builder = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(builder)
    builder.build(tmp_path)
    for name in builder.MADE:
        assert differing(filecmp.dircmp(tmp_path / name, RECORDED / name)) == []


def differing(comparison):
    """Paths whose files differ between the two trees."""
    own = [
        f"{comparison.right}/{name}"
        for name in comparison.left_only + comparison.right_only + comparison.diff_files
    ]
    return own + [path for below in comparison.subdirs.values() for path in differing(below)]


def test_recorded_fleet_stays_small():
    assert (
        sum(
            path.lstat().st_size
            for path in RECORDED.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        < MOST_BYTES
    )


def test_output_that_the_page_of_the_situations_quotes_is_what_the_audit_prints(run):
    printed = forked(["report", run, "-v"], PROJECT, os.environ).stdout
    quoted = page_commands.shown()["situations"]
    assert quoted
    for finding in "\n".join(quoted).split("\n\n"):
        assert " ".join(finding.split()) in " ".join(printed.split()), finding


@pytest.mark.parametrize("form", ["table", "table -v", "csv", "junit", "sarif", "html"])
def test_no_word_of_the_program_itself_reaches_a_reader(run, form, capsys):
    """Numbers of situations, tables of the catalogue, indices of lists: findings name things and
    facts instead. JSON has paths, for programs."""
    from unhang import cli

    cli.main(["report", str(run), "--format", *form.split(), "--out", "-"])
    reported = re.sub(r"<script.*?</script>", "", capsys.readouterr().out, flags=re.DOTALL)
    assert len(reported) > 1000
    assert (
        re.findall(
            r".{0,40}(?:\bsituations? \d|\btables\.[a-z_]+|\b[a-z_]+\[\d+\]\.[a-z]).{0,40}",
            reported,
        )
        == []
    )


def test_the_first_screen_of_the_demo_is_one_screen_at_80_columns(run):
    findings = json.loads((run / "findings.json").read_text())
    lines = render_screen(findings, 80).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("23 nodes: ")
    reported = "\n".join(lines)
    for cause in findings["causes"]:
        assert f"[{cause['rule']}]" in reported or not (
            cause["severity"] == "critical" or cause["unread"]
        )


def test_the_plan_repairs_what_a_role_can_and_names_who_must_look_at_the_rest(run, findings):
    options = PlanOptions(max_unavailable="2", group_limits=["workstations=1"])
    plan = plan_run(run.resolve(), load_catalogue(), options)
    assert {entry.host: entry.roles for entry in plan.hosts if entry.remedies} == {
        "fsdp01": ["nccl_profile"],
        "fsdp02": ["nccl_profile"],
        "gpu007": ["gpu_reset"],
        "llmc01": ["gpu_binding"],
        "mega01": ["build_toolchain"],
        "ws-3090-1": ["gpu_driver", "package_hold"],
        "ws-3090-2": ["gpu_driver", "package_hold"],
        "ws-a6000": ["nccl_profile", "host_tuning"],
    }
    for finding in (
        one for one in findings if one["verdict"] == "fail" and one["severity"] != "info"
    ):
        for entry in map(plan.for_host, hosts_of(finding)):
            planned = {rule for remedy in entry.remedies for rule in remedy.because}
            named = {row.rule for row in entry.person if row.what}
            assert finding["rule"] in planned | named or any(
                finding["rule"] in row.why for row in entry.refused
            ), (entry.host, finding["rule"])
    assert all(
        len({"ws-3090-1", "ws-3090-2", "ws-a6000"}.intersection(wave.hosts)) <= 1
        for wave in plan.waves
    )
    assert render_plan(plan_run(run.resolve(), load_catalogue(), options)) == render_plan(plan)


@pytest.mark.parametrize(
    ("host", "rule", "explained"),
    [
        (
            "gpu007",
            "gpu-needs-reboot",
            {"xid-fatal", "gpu-gives-no-handle"},
        ),
        (
            "gpu006",
            "nvlink-some-inactive",
            {"policy-nvlinks", "group-nvlinks-differ", "gpu-not-as-its-model-should-be"},
        ),
        (
            "gpu004",
            "policy-nccl-version",
            {"group-nccl-differs", "group-nccl-build-differs", "nccl-several-versions-on-host"},
        ),
        (
            "fsdp03",
            "group-torch-differs",
            {"group-torch-nccl-differs", "group-torch-cuda-differs"},
        ),
    ],
)
def test_one_fault_of_the_demo_is_one_grave_cause(run, host, rule, explained):
    causes = [
        cause
        for cause in json.loads((run / "findings.json").read_text())["causes"]
        if host in cause["nodes"]
    ]
    (cause,) = [cause for cause in causes if cause["rule"] == rule]
    assert explained <= set(cause["explains"])
    assert not explained & {one["rule"] for one in causes}


def test_a_cause_that_is_shown_with_a_role_is_one_that_a_plan_gives_to_that_role(run):
    causes = [
        cause
        for cause in json.loads((run / "findings.json").read_text())["causes"]
        if cause["remedy"]["role"] and not cause["remedy"]["conflicts"]
    ]
    entries = {entry.host: entry for entry in plan_run(run, load_catalogue([])).hosts}
    assert len(causes) >= 8
    for cause in causes:
        role, rule = cause["remedy"]["role"], cause["rule"]
        for host in cause["nodes"]:
            given = [
                one for one in entries[host].remedies if one.role == role and rule in one.because
            ]
            assert given, (rule, role, host)
        assert not [
            person
            for host in cause["nodes"]
            for person in entries[host].person
            if person.rule == rule
        ], rule


def test_a_cause_whose_role_refuses_its_node_is_shown_with_the_reason_and_without_the_role(run):
    """The recorded node of situation 1 has no boot loader that supports a trial boot."""
    (cause,) = [
        cause
        for cause in json.loads((run / "findings.json").read_text())["causes"]
        if cause["rule"] == "kernel-below-5-5"
    ]
    assert cause["remedy"]["role"] is None
    assert cause["remedy"]["person"][0].startswith(
        "role kernel refuses this node: the boot loader cannot clear its one-shot entry"
    )
    assert cause["command"].startswith("unhang explain ")
    (line,) = [
        line.why
        for entry in plan_run(run, load_catalogue([])).hosts
        for line in entry.refused
        if "kernel-below-5-5" in line.why
    ]
    assert line.endswith(
        cause["remedy"]["person"][0].removeprefix("role kernel refuses this node: ")
    )


def test_no_node_of_the_demo_is_told_to_set_what_another_finding_takes_away(run):
    causes = [
        cause
        for cause in json.loads((run / "findings.json").read_text())["causes"]
        if "ws-3090-2" in cause["nodes"] and cause["severity"] != "info"
    ]
    assert [cause["rule"] for cause in causes] == ["driver-545-23-08-p2p-deadlock"]
    assert "nccl-p2p-disabled" in causes[0]["explains"]


def test_the_readme_shows_the_first_screen_of_the_demo(run):
    shown = page_commands.shown()["demo"]
    named = next(word for word in shown[-2].split() if word.startswith("runs/"))
    setting = Setting(".venv/bin/unhang", named, ("inventory/demo",))
    findings = json.loads((run / "findings.json").read_text())
    printed = render_screen(
        findings, 100, run=named, program=".venv/bin/unhang", setting_of=lambda cause: setting
    ).splitlines()
    printed.append("unhang: exit code 1 of unhang audit (make: 0), there are findings")
    own = 2  # lines with the run's id and its time
    counts = re.compile(r"^[\d,]+ checks|[\d,]+ more causes: .*")  # any new rule changes them
    cut = shown.index("[…]")  # the README shows the first and the last lines
    printed[cut:] = ["[…]", *printed[len(printed) - (len(shown) - cut - 1) :]]
    assert [counts.sub("N", line) for line in shown[own:]] == [
        counts.sub("N", line) for line in printed[own:]
    ]


@pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: the page is not looked at in a browser"
)
def test_the_picture_in_the_readme_shows_what_the_page_of_the_demo_shows(run, browser):
    with Visit(browser, run / "report.html") as visit:
        shown = shown_words(visit)
    assert "healthy" in shown
    assert words_in(PICTURE) == shown, "out of date: make pictures"
