"""A policy from good nodes: it holds for these very nodes, pins what they share, leaves open what differs, and bad nodes are refused."""

from __future__ import annotations

import copy
import json

import pytest
from healthy_nodes import a100_roce, h100_infiniband, l40s_ethernet, rtx_4090_workstation, t4_cloud_vm
from local_fleet import PROJECT

from unhang.cli import main
from unhang.commands.smoke_expectations import bandwidth_in, bandwidth_of
from unhang.errors import UserError
from unhang.judge.policy import load_policy, policy_faults
from unhang.plan.policy_from_nodes import policy_from_nodes, policy_of, render_policy
from unhang.smoke.bandwidth import Group, judge_bandwidth
from unhang.smoke.expectations import read_expectations

H200 = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
SMOKE = PROJECT / "tests" / "fixtures" / "h200x8" / "smoke.json"


def run_of(folder, nodes):
    """A run folder. nodes: {host: facts}."""
    (folder / "nodes").mkdir(parents=True)
    for host, facts in nodes.items():
        status = "ok" if facts else "unreachable"
        node = {"schema": "unhang/node/1", "host": host, "groups": ["training"], "policy": {}, "status": status, "message": None, "facts": facts}
        (folder / "nodes" / f"{host}.json").write_text(json.dumps(node))
    run = {"schema": "unhang/run/1", "id": folder.name, "started": "2026-11-20T17:57:45Z", "finished": "2026-11-20T17:58:00Z", "inventory": [], "limit": None}
    controller = {"unhang": "0", "ansible_core": "0", "python": "3.11"}
    (folder / "run.json").write_text(json.dumps({**run, "hosts": list(nodes), "controller": controller, "policy_sources": []}))
    return folder


def changed(facts, change):
    """The facts with a change of their sections."""
    facts = copy.deepcopy(facts)
    change(facts["sections"])
    return facts


def policy(capsys, *arguments):
    """(exit code, standard output, standard error) of `unhang policy`."""
    capsys.readouterr()
    code = main(["policy", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("platform", [a100_roce, h100_infiniband, l40s_ethernet, rtx_4090_workstation, t4_cloud_vm])
def test_the_policy_of_a_healthy_node_is_usable_and_holds_for_that_node(tmp_path, capsys, platform):
    facts = platform()
    folder = run_of(tmp_path / "run", {"gpu001": facts})
    code, text, errors = policy(capsys, "--from", folder)
    assert code == 0, errors
    (tmp_path / "policy.yml").write_text(text)
    load_policy(tmp_path / "policy.yml")
    assert main(["judge", str(folder), "--policy", str(tmp_path / "policy.yml"), "--format", "json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [row["rule"] for row in found if row["rule"].startswith("policy-")] == []


def test_what_a_recorded_machine_has_is_pinned_with_the_reason(tmp_path):
    draft = policy_from_nodes({"gpu001": H200["sections"], "gpu002": H200["sections"]})
    written = policy_of(draft)
    assert policy_faults(written) == []
    assert written["driver"] == {"version": "580.159.04", "flavour": "open"}
    assert written["gpu"] == {"model": "NVIDIA H200", "count": 8, "compute_mode": "default"}
    assert (written["nvlink"], written["pcie"]) == ({"links_per_gpu": 18}, {"generation": 5, "width": 16})
    text = render_policy(draft, ["head"])
    assert '    version: "580.159.04" # exactly this one' in text
    (tmp_path / "policy.yml").write_text(text)
    assert load_policy(tmp_path / "policy.yml").everybody == written


def test_what_differs_is_left_open_and_says_who_has_what():
    other = changed(H200, lambda sections: sections["driver"]["loaded"].update(version="570.1"))
    draft = policy_from_nodes({"gpu001": H200["sections"], "gpu002": other["sections"]})
    assert "version" not in policy_of(draft)["driver"]
    [why] = [one.why for one in draft.undecided if one.key == "driver.version"]
    assert why == "the nodes differ: 580.159.04 on gpu001; 570.1 on gpu002"


def test_the_least_of_all_nodes_is_the_measure_for_sizes_and_links():
    other = changed(
        H200, lambda sections: (sections["limits"]["shm"].update(size_bytes=1 << 30), sections["interconnect"]["by_gpu"][3].update(nvlinks_active=12))
    )
    written = policy_of(policy_from_nodes({"gpu001": H200["sections"], "gpu002": other["sections"]}))
    assert written["limits"]["shm_bytes"] == 1 << 30
    assert written["nvlink"]["links_per_gpu"] == 12


def test_a_node_that_the_catalogue_calls_bad_is_refused_unless_its_finding_is_accepted(tmp_path, capsys):
    bad = changed(h100_infiniband(), lambda sections: sections["gpus"].update(pci_count=sections["gpus"]["count"] + 1))
    folder = run_of(tmp_path / "run", {"gpu001": h100_infiniband(), "gpu002": bad})
    code, out, errors = policy(capsys, "--from", folder)
    assert (code, out) == (2, "")
    assert "gpu-fell-off-the-bus" in errors
    assert "(gpu002)" in errors
    assert not (folder / "findings.json").exists()
    rules = [word for word in errors.split("or add: ")[1].split() if word != "--accept"]
    code, out, errors = policy(capsys, "--from", folder, *(word for rule in rules for word in ("--accept", rule)))
    assert code == 0, errors
    assert "Accepted although found on these nodes: " in out
    assert policy(capsys, "--from", folder, "--limit", "gpu001")[0] == 0


def test_what_a_smoke_test_measured_is_written_down(tmp_path, capsys):
    folder = run_of(tmp_path / "run", {"gpu001": h100_infiniband()})
    code, out, errors = policy(capsys, "--from", folder, "--smoke", SMOKE)
    assert code == 0, errors
    (tmp_path / "policy.yml").write_text(out)
    rows = load_policy(tmp_path / "policy.yml").everybody["bandwidth"]
    known = {"gpu": "NVIDIA H200", "gpus": 8, "nvls": False, "transport": "nvlink"}
    assert {**known, "operation": "all_reduce", "size_bytes": 1 << 30, "low_gb_s": 322.1, "reached_gb_s": 357.84} in rows
    assert {row["size_bytes"] for row in rows} == {1 << 28, 1 << 30}


def test_a_smoke_test_is_held_against_what_the_policy_says_was_reached(tmp_path, capsys):
    folder, result = run_of(tmp_path / "run", {"gpu001": h100_infiniband()}), json.loads(SMOKE.read_text())
    (tmp_path / "policy.yml").write_text(policy(capsys, "--from", folder, "--smoke", SMOKE)[1])
    group = Group(**result["group"])
    measured = [{**row, "busbw_gb_s": row["busbw_gb_s"] * share} for share in (1.0, 0.85) for row in result["collectives"]]
    found = judge_bandwidth(group, measured, read_expectations((), bandwidth_of(str(tmp_path / "policy.yml"))).bandwidth)
    assert {row["source"] for row in found} == {"the policy's bandwidth"}
    assert [row["verdict"] for row in found] == ["pass"] * 10 + ["fail"] * 10
    assert bandwidth_in(json.dumps(bandwidth_of(str(tmp_path / "policy.yml")))) == bandwidth_of(str(tmp_path / "policy.yml"))


@pytest.mark.parametrize("text", ["{", "7", '[{"gpu": "NVIDIA H200"}]'])
def test_bandwidth_of_an_inventory_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="of the policy: "):
        bandwidth_in(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "RUN", "--limit", "gpu009"], "expected hosts of"),
        (["--from", "RUN"], "found gpu002 without facts"),
        (["--from", "RUN", "--out", "RUN/run.json"], "expected no file at"),
        (["--from", "RUN/nowhere"], "expected a run folder"),
        (["--from", "RUN", "--smoke", "RUN/run.json"], "expected unhang/smoke/1"),
    ],
)
def test_what_cannot_be_done_is_said_and_writes_nothing(tmp_path, capsys, arguments, message):
    folder = run_of(tmp_path / "run", {"gpu001": H200, "gpu002": None})
    before = sorted(path.name for path in folder.rglob("*"))
    code, out, errors = policy(capsys, *[word.replace("RUN", str(folder)) for word in arguments])
    assert (code, out) == (2, "")
    assert message in errors
    assert sorted(path.name for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    "damage", [lambda facts: facts.pop("sections"), lambda facts: facts.update(sections=[]), lambda facts: facts["sections"].update(gpus=[1])]
)
def test_a_node_whose_answer_is_no_document_is_refused_by_name(tmp_path, capsys, damage):
    bad = copy.deepcopy(H200)
    damage(bad)
    folder = run_of(tmp_path / "20261120T175745Z-c128066de5", {"gpu001": H200, "gpu002": bad})
    assert main(["policy", "--from", str(folder)]) == 2
    out, printed = capsys.readouterr()
    assert out == ""
    assert "gpu002: " in printed and "choose others with --limit" in printed
    assert "fault of unhang" not in printed
