"""Unknown names of nodes, rules, folders and runs: the message lists the known ones, and nothing is
overwritten."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from rollout_plans import planned
from test_pasted_commands import FEW, RUN, write_fleet

from unhang.cli import main
from unhang.core.ansible.playbook_command import why_no_run


@pytest.fixture
def folder(tmp_path):
    return write_fleet(tmp_path / "runs" / RUN, FEW)


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        (
            "--host",
            "zzz",
            "--host: 'zzz' is not a node of this run; there are gone-1,gpu[001-003,007]",
        ),
        (
            "--severity",
            "high",
            ("--severity: 'high' is not a severity; there are critical, error, info, warning"),
        ),
        ("--rule", "zzz", "--rule: 'zzz' is not a rule that was judged in this run"),
    ],
)
def test_a_name_that_is_near_no_other_is_answered_with_those_that_there_are(
    folder, option, given, message, capsys
):
    assert main(["report", str(folder), option, given]) == 2
    assert message in capsys.readouterr().err


def test_a_document_that_is_not_there_is_no_run_that_is_not_there(tmp_path, capsys):
    assert main(["judge", str(tmp_path / "node.json")]) == 2
    shown = capsys.readouterr().err
    assert "node.json is missing, not a folder" in shown and "run folder" not in shown


def test_groups_and_nodes_of_a_run_are_listed_where_none_was_meant(folder, capsys):
    assert main(["history", "diff", "zzz", "gpu001", "--run", str(folder)]) == 2
    shown = capsys.readouterr().err
    assert (
        "its groups are" in shown
        and "its nodes gone-1,gpu[001-003,007]; --run names another run" in shown
    )


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ("none", "is no folder of rules; nothing was judged"),
        ("empty", "holds no .yml files of rules;"),
    ],
)
def test_a_wrong_folder_of_rules_leaves_the_findings_as_they_were(
    folder, tmp_path, rules, found, capsys
):
    (tmp_path / "empty").mkdir()
    before = (folder / "findings.json").read_bytes()
    assert main(["judge", str(folder), "--rules", str(tmp_path / rules)]) == 2
    assert found in capsys.readouterr().err
    assert (folder / "findings.json").read_bytes() == before


def test_status_without_a_run_shows_the_newest_plan_where_a_later_audit_has_none(
    tmp_path, monkeypatch, capsys
):
    runs = tmp_path / "runs"
    for name in ("20261120T070000Z-0123456789", "20261121T070000Z-0123456789"):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text(
            json.dumps({"schema": "unhang/run/1", "id": name, "hosts": [], "inventory": []})
        )
    planned(runs / "20261120T070000Z-0123456789")
    (runs / "latest").symlink_to("20261121T070000Z-0123456789")
    monkeypatch.setenv("UNHANG_RUNS", str(runs))
    main(["remediate", "--status"])
    shown = capsys.readouterr()
    assert "has no plan; this is the newest run that has one" in shown.err
    assert "rollout of run" in shown.out
    assert main(["remediate", "20261121T070000Z-0123456789", "--status"]) == 2


@pytest.mark.parametrize(
    ("held", "inventories", "limit", "reason"),
    [
        (
            "[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: not enough values\n[ERROR]: no hosts to target\n",
            ["hosts.ini"], None,
            "Ansible's ini reader refuses it: not enough values; see: ansible-inventory -i hosts.ini --graph",
        ),
        ("[ERROR]: no hosts to target\n", None, "gpu[1-2]",
        "audit -i INVENTORY --host 'gpu[1-2]'"),
        (
            "[ERROR]: Could not match supplied host pattern, ignoring: gpu099\n", ["hosts.yml"],
            "gpu[003,099]",
            "hosts.yml has hosts, but none that gpu099 names; list them with: ansible-inventory -i hosts.yml --graph",
        ),
        ("[ERROR]: no hosts to target\n", ["inventory/mine"], "gpu9",
        "inventory/mine has no hosts that --host gpu9 matches"),
    ],
)  # fmt: skip
def test_reason_of_an_audit_without_hosts_says_what_to_type(
    held, inventories, limit, reason, monkeypatch
):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert reason in why_no_run(held, inventories, limit)


def test_a_named_program_of_ansible_is_the_one_of_this_installation(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = why_no_run("[ERROR]: no hosts to target\n", ["inventory/mine"], None)
    named = re.search(r"list them with: (\S+)/ansible-inventory -i inventory/mine --graph$", reason)
    assert (Path(named[1]) / "ansible-inventory").is_file()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["catalogue", "--rule", "xid-fatl"],
            "--rule takes the id of a rule, not 'xid-fatl'; did you mean xid-fatal?",
        ),
        (["catalogue", "--rule", "zzz-*"], "`unhang catalogue` lists them"),
        (["history", "--prune", "--older-than", "3"], "--older-than takes yesterday, 12h, 3d"),
    ],
)
def test_a_wrong_value_is_refused_under_the_option_that_was_typed(
    argv, message, capsys, monkeypatch
):
    monkeypatch.setattr("os.execve", lambda *_: pytest.fail("Ansible was started"))
    assert main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            ["remediate", "latest", "--app"],
            "unrecognized arguments: --app; unhang remediate --help has the options\n",
        ),
        (
            ["history", "--prun"],
            "unrecognized arguments: --prun; unhang history --help has the options\n",
        ),
        (["report", "latest", "--sev", "error"], "did you mean --severity?\n"),
        (["history", "-n", "-1"], "argument -n/--newest: '-1' is not a number of runs\n"),
        (
            ["history", "--prune", "--keep", "-1"],
            "argument --keep: '-1' is not a number of run folders\n",
        ),
    ],
)
def test_what_the_parser_does_not_take_is_refused_and_no_option_that_acts_is_proposed(
    typed, message, capsys
):
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(message)
