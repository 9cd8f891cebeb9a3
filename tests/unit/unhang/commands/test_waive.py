"""`unhang waive`: the waiver stands in the inventory's policy, every other byte of it stays."""

from __future__ import annotations

import json

import pytest
import yaml
from changed_nodes import changed
from healthy_platforms import PLATFORMS
from judge_cases import node, rule, sections, write_rules, write_run

from unhang.audit.report.table import render_table
from unhang.cli import main
from unhang.core.errors import UserError
from unhang.core.run.own_runs import mark_as_own
from unhang.core.run.run_input import read_run_input
from unhang.core.schemas.policy import waivers_of
from unhang.judge.fleet.judging import judge_run
from unhang.judge.fleet.waiver_rows import Wish, waiver_rows
from unhang.judge.fleet.waiver_text import with_waivers
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import conclusion, judge_folder

SLOW = rule(
    "driver.loaded.version == '545.23.08'",
    id="slow-link",
    severity="warning",
    costs="some jobs",
    explains=["group-link-differs"],
)
TWIN = rule(
    None,
    id="group-link-differs",
    severity="warning",
    costs="some jobs",
    scope="group",
    compare="driver.loaded.version",
)
POLICY = """\
# who runs it: ops
unhang_policy:
  # the board
  gpu: {count: 2}   # two each
other: "{{ here }}"
"""
WITH = POLICY.replace(
    "unhang_policy:\n",
    """unhang_policy:
  waivers:
    # until the move
    - {rule: other-rule, reason: "so", by: ops, until: "2099-01-01"}
""",
)
FOREVER = ("--until", "2099-12-31", "--reason", "risers ordered: ticket #4711", "--by", "ops")


def rejudged(tmp_path, run, waivers=()):
    """The findings of a run, of which every node has these waivers."""
    for file in (run / "nodes").iterdir():
        document = json.loads(file.read_text())
        file.write_text(json.dumps({**document, "policy": {"waivers": list(waivers)}}))
    catalogue = load_catalogue([write_rules(tmp_path / "rules", SLOW, TWIN)], built_in=False)
    assert catalogue.faults == ()
    judge_run(read_run_input(run), catalogue, "2026-06-01", conclude=conclusion(catalogue.rules))
    return json.loads((run / "findings.json").read_text())


@pytest.fixture
def run(tmp_path):
    """A run of this user: of four nodes h1 has a fault, which a comparison shows too."""
    hosts = [f"h{number}" for number in range(1, 5)]
    run = write_run(
        tmp_path / "run",
        *(node(one, sections("545.23.08" if one == "h1" else "580.159.04")) for one in hosts),
    )
    policy = tmp_path / "training.yml"
    policy.write_text(POLICY)
    policy.chmod(0o640)
    document = json.loads((run / "run.json").read_text())
    made = {**document, "inventory": [str(tmp_path)], "policy_sources": [str(policy)]}
    (run / "run.json").write_text(json.dumps(made))
    mark_as_own(run)
    rejudged(tmp_path, run)
    return run


def test_a_waiver_is_written_and_covers_the_twin(run, tmp_path, capsys):
    policy = tmp_path / "training.yml"
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run)]) == 0
    assert "+    - rule:" in capsys.readouterr().out
    written = policy.read_text()
    assert [line for line in written.splitlines() if line in POLICY.splitlines()] == (
        POLICY.splitlines()
    )
    assert policy.stat().st_mode & 0o777 == 0o640
    waivers = yaml.safe_load(written)["unhang_policy"]["waivers"]
    assert [(one["rule"], one["hosts"]) for one in waivers] == [
        ("slow-link", ["h1"]),
        ("group-link-differs", ["h1"]),
    ]
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run)]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert policy.read_text() == written
    assert {one["verdict"] for one in rejudged(tmp_path, run, waivers)["findings"]} == {"waived"}


def test_print_writes_nothing(run, tmp_path, capsys):
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run), "--print"]) == 0
    (row, _twin) = yaml.safe_load(capsys.readouterr().out)
    assert row["reason"] == "risers ordered: ticket #4711"
    assert (tmp_path / "training.yml").read_text() == POLICY


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--until", "2020-01-01"), "--until must be"),
        (("--until", "soon"), "--until takes a date"),
        (("--reason", "{{ lookup('pipe', 'id') }}"), "without templates"),
        (("--reason", "two\nlines"), "--reason must be a line"),
        (("--host", "h2"), "--host names h2, without a finding"),
    ],
)
def test_a_mistake_changes_no_file(run, tmp_path, capsys, change, says):
    assert main(["waive", "slow-link", *FOREVER, *change, "--run", str(run)]) == 2
    assert says in capsys.readouterr().err
    assert (tmp_path / "training.yml").read_text() == POLICY


def test_a_rule_that_found_nothing_is_refused(run, capsys):
    assert main(["waive", "slow-lnik", *FOREVER, "--run", str(run)]) == 2
    assert "slow-link" in capsys.readouterr().err


def test_a_run_of_somebody_else_names_no_file_to_write(run, tmp_path, capsys):
    (run / "made-here").unlink()
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run)]) == 2
    assert "--file is needed" in capsys.readouterr().err
    assert (tmp_path / "training.yml").read_text() == POLICY


def test_a_policy_outside_the_inventory_is_not_written_unasked(run, tmp_path, capsys):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.yml"
    outside.write_text(POLICY)
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**document, "policy_sources": [str(outside)]}))
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run)]) == 2
    assert "name --file" in capsys.readouterr().err
    assert outside.read_text() == POLICY
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run), "--file", str(outside)]) == 0
    outside.unlink()


@pytest.mark.parametrize(
    "text",
    [
        "unhang_policy: {gpu: {count: 2}}\n",
        "unhang_policy:\n  waivers: [{rule: a, reason: b, by: c, until: '2099-01-01'}]\n",
        "unhang_policy: &all\n  gpu: {count: 2}\n",
        "unhang_policy:\r\n  gpu: {count: 2}\r\n",
        "unhang_policy: !vault |\n  $ANSIBLE_VAULT\n",
        "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
        "other: 1\n",
    ],
)
def test_a_file_in_another_form_stays_and_the_waiver_is_printed(run, tmp_path, capsys, text):
    policy = tmp_path / "training.yml"
    policy.write_bytes(text.encode())
    assert main(["waive", "slow-link", *FOREVER, "--run", str(run)]) == 2
    said = capsys.readouterr().err
    assert "no file was changed" in said
    assert 'rule: "slow-link"' in said
    assert policy.read_bytes() == text.encode()


def test_a_waiver_joins_those_that_are_there():
    row = {"rule": "slow-link", "reason": "so", "by": "ops", "until": "2099-01-01"}
    made = with_waivers(WITH, [row], "training.yml")
    assert [one["rule"] for one in yaml.safe_load(made)["unhang_policy"]["waivers"]] == [
        "slow-link",
        "other-rule",
    ]
    assert all(line in made.splitlines() for line in WITH.splitlines())
    with pytest.raises(UserError):
        with_waivers("unhang_policy:\n", [row], "training.yml")


def test_the_command_stands_under_each_finding_of_v(run):
    shown = render_table(json.loads((run / "findings.json").read_text()), 160)
    assert "waive     unhang waive slow-link --host h1 --until DATE --reason TEXT" in shown


def of_parts(tmp_path, *changes, waivers=()):
    """A run of one H100 node, one field of which differs for each change; judged with waivers."""
    document = changed(PLATFORMS["h100_infiniband"](), {"facts": dict(changes)})
    folder = write_run(tmp_path / f"run{len(changes)}", node("h1", document["sections"]))
    file = folder / "nodes" / "h1.json"
    made = {**json.loads(file.read_text()), "policy": {"waivers": list(waivers)}}
    file.write_text(json.dumps(made))
    judge_folder(folder, [], None, "2026-06-01")
    return folder


UNLIKE = "unlike-the-others-of-its-node"
SLOW_CLOCK = ("gpus.devices[5].clocks.sm_max_mhz", 1200)
OLD_VBIOS = ("gpus.devices[5].vbios", "96.00.74.00.01")


@pytest.mark.slow
def test_a_waiver_of_one_part_leaves_the_node_s_others(tmp_path, capsys):
    run = of_parts(tmp_path, SLOW_CLOCK)
    assert main(["waive", UNLIKE, *FOREVER, "--run", str(run), "--print"]) == 0
    rows = yaml.safe_load(capsys.readouterr().out)
    assert [one.get("parts") for one in rows] == [["GPU 5 clocks.sm_max_mhz"]]
    both = of_parts(tmp_path, SLOW_CLOCK, OLD_VBIOS, waivers=rows)
    findings = json.loads((both / "findings.json").read_text())["findings"]
    found = {one["where"]["field"]: one["verdict"] for one in findings if one["rule"] == UNLIKE}
    assert found == {"clocks.sm_max_mhz": "waived", "vbios": "fail"}


def test_what_a_node_calls_its_part_is_no_wildcard():
    wish = Wish("a-rule", None, "2099-12-31", "so", "ops")
    where = {"name": "*", "field": "mtu"}
    found = {"rule": "a-rule", "verdict": "fail", "host": "h1", "scope": "node", "where": where}
    (row,) = waiver_rows({"findings": [found], "causes": []}, wish, "2026-06-01")
    (waiver,) = waivers_of({"waivers": [row]})
    assert waiver.covers("h1", (), where)
    assert not waiver.covers("h1", (), {"name": "bond0", "field": "mtu"})
