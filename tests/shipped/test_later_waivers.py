"""A run whose finding is waived after the audit is planned without another audit."""

from __future__ import annotations

import json

import faulty_fleet
import pytest

from unhang.cli import main
from unhang.core.run.own_runs import mark_as_own
from unhang.judge.triage.run_judging import judge_folder

FOREVER = ("--until", "2099-12-31", "--reason", "risers ordered", "--by", "ops")
RULE = "pcie-width-below-max"


@pytest.fixture
def run(tmp_path):
    """A run of this user of four nodes, of which gpu02 has a narrow slot, and its inventory."""
    folder = faulty_fleet.write_fleet(
        tmp_path / "run", {"gpu02": faulty_fleet.narrow_slot}, nodes=4
    )
    home = tmp_path / "inventory"
    (home / "group_vars").mkdir(parents=True)
    policy = home / "group_vars" / "gpu.yml"
    policy.write_text("unhang_policy:\n  gpu:\n    count: 8\n")
    document = json.loads((folder / "run.json").read_text())
    named = {"inventory": [str(home)], "policy_sources": [str(policy)]}
    (folder / "run.json").write_text(json.dumps({**document, **named}))
    mark_as_own(folder)
    judge_folder(folder, [], None, "2026-11-20")
    return folder, policy


def planned(folder, capsys):
    """(rules that the plan leaves to a person, standard error)."""
    assert main(["plan", str(folder), "-o", "json"]) == 0
    shown = capsys.readouterr()
    hosts = json.loads(shown.out)["hosts"]
    return {one["rule"] for host in hosts for one in host["person"]}, shown.err


def test_a_waiver_that_was_written_after_the_audit_leaves_its_finding_out(run, capsys):
    folder, policy = run
    assert main(["waive", RULE, "--run", str(folder), *FOREVER]) == 0
    assert "risers ordered" in policy.read_text()
    capsys.readouterr()
    rules, told = planned(folder, capsys)
    assert RULE not in rules
    assert "waivers that the inventory's policy has now, written after the audit: " in told
    assert f"{RULE} on gpu02" in told


def test_without_a_waiver_and_with_one_that_names_no_hosts_the_finding_stays(run, capsys):
    folder, policy = run
    policy.write_text(
        "unhang_policy:\n  waivers:\n    - {rule: pcie-width-below-max, reason: so, by: ops, until:"
        ' "2099-01-01"}\n'
    )
    rules, told = planned(folder, capsys)
    assert RULE in rules
    assert "waivers" not in told


@pytest.mark.parametrize("text", ["$ANSIBLE_VAULT;1.1;AES256\n6162\n", "unhang_policy: [\n", ""])
def test_a_policy_that_cannot_be_read_as_it_is_has_no_waivers(run, capsys, text):
    folder, policy = run
    policy.write_text(text)
    assert RULE in planned(folder, capsys)[0]
