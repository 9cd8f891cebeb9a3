"""The same formats and filters in commands that show no judged run: plan, lint and catalogue."""

from __future__ import annotations

import csv
import io
import json

import fleets
import pytest
from test_pasted_commands import FEW, MANY, RUN, write_fleet

from unhang.cli import main


def shown(capsys, *argv, code=0):
    capsys.readouterr()
    assert main(list(map(str, argv))) == code
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path):
    return write_fleet(tmp_path / RUN, FEW)


def test_a_plan_has_a_row_for_each_node_that_something_is_said_of(folder, capsys):
    rows = list(csv.DictReader(io.StringIO(shown(capsys, "plan", folder, "-o", "csv"))))
    assert {(row["host"], row["person"].partition(":")[0]) for row in rows if row["person"]} == {
        (host, "a-person") for host in FEW[1:]
    } | {("gone-1", "node-unreachable")}
    assert json.loads(shown(capsys, "plan", folder, "-o", "json"))["schema"] == "unhang/plan/1"
    assert shown(capsys, "plan", folder, "-q") == ""


def test_the_plans_table_says_what_a_person_has_to_do_with_the_rule_that_asks_for_it(
    folder, capsys
):
    table = shown(capsys, "plan", folder)
    assert "  gpu[002-003,007]\n    look (a-person)\n" in table
    assert "  gone-1\n    no remedy is known; look at the evidence (node-unreachable)" in table
    # a long command is continued as a shell reads it
    assert f"plan {folder} -o csv" in " ".join(table.replace("\\\n", " ").split())


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text("export NCCL_P2P_DISABLE=1\nexport NCCL_ASYNC_ERROR_HANDLING=1\n")
    return path


def test_findings_of_the_lint_are_narrowed_by_rule_and_severity_and_so_is_the_exit_code(
    script, capsys
):
    rows = list(csv.DictReader(io.StringIO(shown(capsys, "lint", script, "-o", "csv", code=1))))
    assert [(row["rule"], row["line"]) for row in rows] == [("hides-fault", "1"), ("renamed", "2")]
    assert [
        row["rule"]
        for row in json.loads(
            shown(capsys, "lint", script, "--rule", "hides-*", "-o", "json", code=1)
        )["findings"]
    ] == ["hides-fault"]
    assert "0 errors, 0 warnings" in shown(capsys, "lint", script, "--severity", "error")
    assert shown(capsys, "lint", script, "-q", code=1) == ""


def test_rules_of_the_catalogue_are_narrowed_by_id_and_severity(capsys):
    narrowed = ("catalogue", "--rule", "nccl-*", "--severity", "critical,error")
    rows = json.loads(shown(capsys, *narrowed, "-o", "json"))["rows"]
    assert rows
    assert all(
        row["id"].startswith("nccl-") and row["severity"] in ("critical", "error") for row in rows
    )
    table = csv.DictReader(io.StringIO(shown(capsys, *narrowed, "-o", "csv")))
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert shown(capsys, "catalogue", "--rule", "xid-fatal").splitlines()[-1] == "1 row"


@pytest.mark.parametrize("command", [["lint", "{script}"], ["catalogue"]])
def test_a_severity_that_there_is_none_of_is_refused(script, capsys, command):
    assert main([word.format(script=script) for word in command] + ["--severity", "fatal"]) == 2
    assert "--severity takes one of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["--severity", "eror"],
            "--severity: 'eror' is not a severity (did you mean error?)",
        ),
        (
            ["--rule", "xid-fatale"],
            "--rule: 'xid-fatale' is not a rule of the catalogue (did you mean xid-fatal?)",
        ),
        (["--host", "gpu[001-"], "'gpu[001-' is not a node set such as gpu[001-016]"),
        (
            ["--group", "a100", "-o", "html"],
            "--format html shows a whole run and takes no --group a100",
        ),
    ],
)
def test_an_audit_with_a_mistyped_filter_asks_no_node(tmp_path, capsys, argv, problem):
    inventory = tmp_path / "hosts"  # missing: a command that reaches it reports that
    assert (
        main(
            [
                "audit",
                "-i",
                str(inventory),
                "--out",
                str(tmp_path / "runs"),
                *argv,
            ]
        )
        == 2
    )
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_hosts_that_are_too_many_for_a_line_stand_in_the_runs_own_folder_and_not_behind_latest(
    tmp_path, capsys
):
    write_fleet(tmp_path / RUN, MANY)
    (tmp_path / "latest").symlink_to(RUN)
    text = shown(capsys, "report", tmp_path / "latest", "--rule", "a-role", code=1)
    assert f"--host @{tmp_path / RUN}/limits/a-role-" in text


@pytest.mark.parametrize("form", ["table", "csv", "json", "html"])
def test_a_quiet_report_prints_nothing_and_writes_the_file_that_it_was_given(
    folder, tmp_path, capsys, form
):
    written, quiet = tmp_path / "written", tmp_path / "quiet"
    printed = shown(capsys, "report", folder, "-o", form, "--out", written, code=1)
    assert printed == (f"{written}\n" if form == "html" else "")
    assert shown(capsys, "report", folder, "-o", form, "--out", quiet, "-q", code=1) == ""
    assert quiet.read_bytes() == written.read_bytes() != b""


def test_the_faults_of_one_rule_are_not_counted_as_rules(tmp_path, capsys):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.yml").write_text(
        json.dumps({"rules": [{"id": "faulty", "title": "A title"}]})
    )
    assert (
        main(["judge", str(write_fleet(tmp_path / RUN, FEW)), "--rules", str(tmp_path / "rules")])
        == 2
    )
    printed = capsys.readouterr()
    (*faults, last, _unread) = printed.err.splitlines()
    assert len(faults) > 1
    assert last.startswith(
        f"unhang: {len(faults)} faults in rules: the rules and files that have them were not used, "
    )
    assert f"and {len(faults) - 5} more reasons" in printed.out


def test_a_row_of_csv_has_uuid_serial_number_and_pci_address_of_the_gpu(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    gpus = [
        {
            "index": number,
            "uuid": f"GPU-{number}",
            "serial": f"165{number}",
            "pci_address": f"0000:0{number}:00.0",
        }
        for number in range(3)
    ]
    rows = [
        {**gpu, "row_remap": {"uncorrected": 0, "pending": False, "failed": gpu["index"] == 1}}
        for gpu in gpus
    ]
    node = fleets.node(
        "gpu007", ["all"], {"gpus": {"probe": {"status": "ok"}, "count": 3, "devices": rows}}
    )
    (tmp_path / "gpu007.json").write_text(json.dumps(node))
    out = shown(
        capsys,
        "judge",
        tmp_path / "gpu007.json",
        "--rule",
        "gpu-row-remap-failed",
        "-o",
        "csv",
        code=1,
    )
    (row,) = csv.DictReader(io.StringIO(out))
    assert [row[name] for name in ("host", "where", "uuid", "serial", "pci_address")] == [
        "gpu007",
        "GPU 1",
        "GPU-1",
        "1651",
        "0000:01:00.0",
    ]
