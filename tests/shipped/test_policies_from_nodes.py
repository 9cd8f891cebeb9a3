"""`unhang policy` on good nodes: its policy holds for these nodes, and a bad node is refused."""

from __future__ import annotations

import json

import pytest
from drafted_policies import changed, policy, run_of
from healthy_nodes import (
    a100_roce,
    h100_infiniband,
    l40s_ethernet,
    rtx_4090_workstation,
    t4_cloud_vm,
)
from local_fleet import PROJECT
from msgspec.structs import replace

from unhang.cli import main
from unhang.core.schemas.policy import load_policy
from unhang.core.smoke_result import smoke_result
from unhang.smoke.bandwidth import judge_bandwidth
from unhang.smoke.commands.smoke_expectations import bandwidth_in, bandwidth_of
from unhang.smoke.expectations import read_expectations

pytestmark = pytest.mark.usefixtures("compiled_rules")

H200 = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
SMOKE = PROJECT / "tests" / "fixtures" / "h200x8" / "smoke.json"


@pytest.mark.parametrize(
    "platform", [a100_roce, h100_infiniband, l40s_ethernet, rtx_4090_workstation, t4_cloud_vm]
)
def test_the_policy_of_a_healthy_node_is_usable_and_holds_for_that_node(tmp_path, capsys, platform):
    facts = platform()
    folder = run_of(tmp_path / "run", {"gpu001": facts})
    code, text, errors = policy(capsys, "--from", folder)
    assert code == 0, errors
    (tmp_path / "policy.yml").write_text(text)
    load_policy(tmp_path / "policy.yml")
    assert main(
        ["judge", str(folder), "--policy", str(tmp_path / "policy.yml"), "--format", "json"]
    ) in (0, 1)
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [row["rule"] for row in found if row["rule"].startswith("policy-")] == []


def test_a_node_that_the_catalogue_calls_bad_is_refused_unless_its_finding_is_accepted(
    tmp_path, capsys
):
    bad = changed(
        h100_infiniband(),
        lambda sections: sections["gpus"].update(pci_count=sections["gpus"]["count"] + 1),
    )
    folder = run_of(tmp_path / "run", {"gpu001": h100_infiniband(), "gpu002": bad})
    code, out, errors = policy(capsys, "--from", folder)
    assert (code, out) == (2, "")
    assert "gpu-fell-off-the-bus" in errors
    assert "(gpu002)" in errors
    assert not (folder / "findings.json").exists()
    rules = [word for word in errors.split("or add: ")[1].split() if word != "--accept"]
    code, out, errors = policy(
        capsys, "--from", folder, *(word for rule in rules for word in ("--accept", rule))
    )
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
    assert {
        **known,
        "operation": "all_reduce",
        "size_bytes": 1 << 30,
        "low_gb_s": 322.1,
        "reached_gb_s": 357.84,
    } in rows
    assert {row["size_bytes"] for row in rows} == {1 << 28, 1 << 30}


def test_a_smoke_test_is_held_against_what_the_policy_says_was_reached(tmp_path, capsys):
    folder = run_of(tmp_path / "run", {"gpu001": h100_infiniband()})
    result = smoke_result(json.loads(SMOKE.read_text()))
    (tmp_path / "policy.yml").write_text(policy(capsys, "--from", folder, "--smoke", SMOKE)[1])
    measured = [
        replace(row, busbw_gb_s=row.busbw_gb_s * share)
        for share in (1.0, 0.85)
        for row in result.collectives
    ]
    found = judge_bandwidth(
        result.group,
        measured,
        read_expectations(bandwidth_of(str(tmp_path / "policy.yml"))).bandwidth,
    )
    assert {row.source for row in found} == {"the policy's bandwidth"}
    assert [row.verdict for row in found] == ["pass"] * 10 + ["fail"] * 10
    assert bandwidth_in(json.dumps(bandwidth_of(str(tmp_path / "policy.yml")))) == bandwidth_of(
        str(tmp_path / "policy.yml")
    )
