"""From an audit to a plan: each faulty GPU has one verb on the screen and in JSON, a plan does what a
role can do, and a GPU to replace has its ticket beside the plan."""

from __future__ import annotations

import json

import faulty_fleet
import pytest

from unhang.act.plan.plan_document import read_plan
from unhang.audit.report.screen import render_screen
from unhang.cli import main
from unhang.core.run.own_runs import mark_as_own
from unhang.judge.triage.run_judging import judge_folder

GPU = faulty_fleet.healthy_sections()["gpus"]["devices"][3]
AT, UUID = GPU["pci_address"], GPU["uuid"]
RULES = {
    "gpu01": "gpu-needs-reset", "gpu02": "gpu-needs-reboot", "gpu03": "gpu-needs-replacement",
    "gpu04": "gpu-needs-its-job-restarted", "gpu05": "gpu-needs-reset",
}  # fmt: skip


def with_xid(code, resets=()):
    def change(sections):
        line = f"NVRM: Xid (PCI:{AT[:-2]}): {code}, pid=1"
        sections["faults"]["events"] = [faulty_fleet.xid(code, line, AT)]
        sections["faults"]["resets"] = list(resets)

    return change


def with_action(sections):
    sections["gpus"]["devices"][3]["recovery_action"] = "drain_and_reset"


AGAIN = {
    "uuid": UUID, "pci_address": AT, "verb": "reset the GPU", "because": ["Xid 95"],
    "age_s": 7200,
}  # fmt: skip


def on_a_machine_of_its_own(number, change):
    def changed(sections):
        sections["node"]["machine_id"] = f"{number:032x}"
        change(sections)

    return changed


FAULTS = {
    "gpu01": with_xid(95), "gpu02": with_xid(79), "gpu03": with_xid(95, [AGAIN]),
    "gpu04": with_xid(31), "gpu05": with_action,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs") / "run"
    faults = {
        host: on_a_machine_of_its_own(number, change)
        for number, (host, change) in enumerate(FAULTS.items())
    }
    faulty_fleet.write_fleet(folder, faults, nodes=8)
    judge_folder(folder, [], None, "2026-11-20")
    mark_as_own(folder)
    return folder


@pytest.fixture(scope="module")
def findings(run):
    return json.loads((run / "findings.json").read_text())


def test_the_audit_says_of_each_faulty_gpu_one_thing(findings):
    found = {
        one["host"]: one
        for one in findings["findings"]
        if one["verdict"] == "fail" and one["rule"] in RULES.values()
    }
    assert {host: one["rule"] for host, one in found.items()} == RULES
    assert {one["where"]["uuid"] for one in found.values()} == {UUID}
    assert found["gpu01"]["found"] == f"GPU 3 ({UUID}, {AT}): Xid 95"
    assert found["gpu03"]["found"].endswith("Xid 95, again within a day of a reset for it")
    assert found["gpu05"]["found"].endswith("NVML's recovery action drain_and_reset")


def test_the_verb_is_the_cause_and_the_faults_are_below_it(findings):
    causes = {one["nodes"][0]: one for one in findings["causes"] if one["rule"] in RULES.values()}
    assert causes["gpu03"]["explains"] == ["xid-fatal"]
    assert "gpu-asks-for-recovery" in causes["gpu01"]["explains"]  # of gpu05, the same cause
    assert [one["uuid"] for one in causes["gpu03"]["devices"]] == [UUID]
    screen = render_screen(findings, 100, run="runs/latest")
    assert "A GPU must be replaced [gpu-needs-replacement], for: vendor" in screen
    assert "A GPU must be reset [gpu-needs-reset]" in screen


def test_a_plan_does_what_a_role_can_do_and_writes_the_ticket(run, capsys):
    assert main(["plan", str(run)]) == 0
    said = capsys.readouterr()
    plan = read_plan(run)
    roles = {one.host: [remedy.role for remedy in one.remedies] for one in plan.hosts}
    assert {host for host, played in roles.items() if "gpu_reset" in played} == {
        "gpu01", "gpu02", "gpu05",
    }  # fmt: skip
    reboots = {one.host: [boot.step for boot in one.reboots] for one in plan.hosts}
    assert (reboots["gpu01"], reboots["gpu02"]) == ([], ["apply"])
    person = {one.host: [row.rule for row in one.person] for one in plan.hosts}
    assert "gpu-needs-replacement" in person["gpu03"]
    ticket = run / "ticket-gpu03.md"
    assert "a GPU of gpu03 must be replaced; the vendor's ticket: " in said.err
    assert said.err.rstrip().endswith("/ticket-gpu03.md")
    text = ticket.read_text()
    assert "A GPU must be replaced" in text
    assert f"| reset the GPU | {UUID}, 2 hours before this reading, for Xid 95 |" in text
    assert [path.name for path in run.glob("ticket-*")] == ["ticket-gpu03.md"]
