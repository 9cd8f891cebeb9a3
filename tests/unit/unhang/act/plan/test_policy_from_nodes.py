"""A policy from good nodes: it holds for these very nodes, pins what they share, leaves open what
differs, and bad nodes are refused."""

from __future__ import annotations

import copy
import json

import pytest
from drafted_policies import changed, policy, policy_of, run_of
from local_fleet import PROJECT

from unhang.act.plan.policy_from_nodes import policy_from_nodes, render_policy
from unhang.cli import main
from unhang.core.errors import UserError
from unhang.core.schemas.policy import load_policy, policy_faults
from unhang.smoke.commands.smoke_expectations import bandwidth_in

H200 = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())


def test_what_a_recorded_machine_has_is_pinned_with_the_reason(tmp_path):
    draft = policy_from_nodes({"gpu001": H200["sections"], "gpu002": H200["sections"]})
    written = policy_of(draft)
    assert policy_faults(written) == []
    assert written["driver"] == {"version": "580.159.04", "flavour": "open"}
    assert written["gpu"] == {"model": "NVIDIA H200", "count": 8, "compute_mode": "default"}
    assert (written["nvlink"], written["pcie"]) == (
        {"links_per_gpu": 18},
        {"generation": 5, "width": 16},
    )
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
        H200,
        lambda sections: (
            sections["limits"]["shm"].update(size_bytes=1 << 30),
            sections["interconnect"]["by_gpu"][3].update(nvlinks_active=12),
        ),
    )
    written = policy_of(
        policy_from_nodes({"gpu001": H200["sections"], "gpu002": other["sections"]})
    )
    assert written["limits"]["shm_bytes"] == 1 << 30
    assert written["nvlink"]["links_per_gpu"] == 12


def test_an_escape_byte_of_one_node_leaves_its_key_open_names_that_node_and_blocks_nothing_else():
    hostile = changed(H200, lambda sections: sections["gpus"].update(model="NVIDIA \x1b[2JH200"))
    draft = policy_from_nodes({"gpu001": H200["sections"], "gpu002": hostile["sections"]})
    [why] = [one.why for one in draft.undecided if one.key == "gpu.model"]
    assert why.startswith("the text of gpu002 is none to write down: on gpu002 it ")
    written = policy_of(draft)
    assert "model" not in written["gpu"] and written["driver"]["version"] == "580.159.04"
    text = render_policy(draft, [])
    assert "gpu002" in text and "\x1b" not in text


@pytest.mark.parametrize("text", ["{", "7", '[{"gpu": "NVIDIA H200"}]'])
def test_bandwidth_of_an_inventory_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="of the policy: "):
        bandwidth_in(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "RUN", "--limit", "gpu009"], "--host names gpu009"),
        (["--from", "RUN"], "there are no facts of gpu002"),
        (["--from", "RUN", "--out", "RUN/run.json"], "run.json exists already"),
        (["--from", "RUN/nowhere"], "is not a run folder"),
        (["--from", "RUN", "--smoke", "RUN/run.json"], "run.json is not unhang/smoke/1"),
        (
            ["--from", "RUN", "--smoke", "RUN/nowhere"],
            "is not a result of unhang smoke",
        ),
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
    "damage",
    [
        lambda facts: facts.pop("sections"),
        lambda facts: facts.update(sections=[]),
        lambda facts: facts["sections"].update(gpus=[1]),
    ],
)
def test_a_node_whose_answer_is_no_document_is_refused_by_name(tmp_path, capsys, damage):
    bad = copy.deepcopy(H200)
    damage(bad)
    folder = run_of(tmp_path / "20261120T175745Z-c128066de5", {"gpu001": H200, "gpu002": bad})
    assert main(["policy", "--from", str(folder)]) == 2
    out, printed = capsys.readouterr()
    assert out == ""
    assert "gpu002: " in printed and "choose others with --host" in printed
    assert "fault of unhang" not in printed


@pytest.mark.slow
def test_the_newest_run_can_be_named_and_is_never_taken_for_a_node(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    found = "latest is not a run folder (one that holds run.json); there is none yet, make one with: unhang audit"
    assert policy(capsys, "--from", "latest", "--out", "policy.yml") == (
        2,
        "",
        f"unhang: {found}\n",
    )
    folder = run_of(tmp_path / "runs" / "20261120T175745Z-0123456789", {"gpu001": H200})
    (tmp_path / "runs" / "latest").symlink_to(folder.name)
    code, out, problem = policy(capsys, "--from", "latest", "--out", "policy.yml")
    assert (code, problem) == (0, ""), out
    assert load_policy(tmp_path / "policy.yml").everybody["driver"] == {
        "version": "580.159.04",
        "flavour": "open",
    }
    assert f"(run {folder.name})" in (tmp_path / "policy.yml").read_text().splitlines()[0]
