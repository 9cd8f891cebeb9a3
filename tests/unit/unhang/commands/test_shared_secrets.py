"""Whatever is made to be shared holds no secret of a node: every format of a report, tickets, rows of the history, webhooks, archives and files of faults."""

from __future__ import annotations

import argparse
import json
import tarfile
from pathlib import Path

import fleets
import pytest

from unhang import cli
from unhang.base.junit import Case, Outcome, render_suite
from unhang.commands.hooks import call
from unhang.commands.row_output import show_rows
from unhang.commands.run_output import FORMATS
from unhang.commands.smoke_output import deliver
from unhang.jobs.inspect.bundle import write_bundle
from unhang.jobs.inspect.verdict import inspection_of
from unhang.prove.smoke.result import judge
from unhang.prove.smoke.streams import Stream
from unhang.show.history.changes import FoundChange
from unhang.show.history.news import LONGEST, news_of
from unhang.show.history.run_rows import RunRow
from unhang.show.report.json import render_json

EVIDENCE = Path(__file__).resolve().parents[3] / "fixtures" / "inspect" / "evidence"
BODY = [letter * 40 + "0aZ+" * 6 for letter in "pqr"]
PARTS = ("hunter2hunter2", "Zq81hd73kd02mcn4", *BODY)
TEXT = "\n".join(
    [
        "exec --password hunter2hunter2 --lr 3",
        "hf_Zq81hd73kd02mcn4Zq81hd73kd02mcn4ab",
        "-----BEGIN RSA PRIVATE KEY-----",
        *BODY,
        "-----END RSA PRIVATE KEY-----",
    ]
)
RUNS = [RunRow(number, f"run{number}", "", "2026-11-20T03:00:00Z", None, None, None, None, 0, 0, 0, 0, 0) for number in (1, 2)]


def holds_secret(text):
    """The parts of secrets that are in a text, eight letters of one are enough."""
    return [part for part in PARTS if any(part[at : at + 8] in text for at in range(len(part) - 7))]


@pytest.fixture
def run(tmp_path):
    """A run in which a node says secrets wherever it has free text."""
    where = {"index": 0, "name": TEXT}
    found = fleets.finding(
        "xid-fatal", "gpu007", "critical", TEXT, TEXT, TEXT, owner="vendor", where=where, remedy={"person": TEXT}, evidence=[{"path": "a.b", "value": TEXT}]
    )
    unread = fleets.finding("a-rule", "gpu008", "error", "t", "e", "f", verdict="unknown", missing=[{"path": "gpus", "status": "error", "reason": TEXT}])
    document = fleets.document([found, unread], {"ok": 1, "failed": 1})
    sections = fleets.sections(TEXT, 2, TEXT, TEXT, TEXT)
    nodes = [fleets.node("gpu007", ["all"], sections), fleets.node("gpu008", [TEXT], None, "failed", TEXT)]
    folder = fleets.write_run(tmp_path / "run", document, nodes)
    (folder / "nodes" / "gpu007.json").write_text(json.dumps(nodes[0]))
    (folder / "remediation-gpu007.json").write_text(json.dumps({"status": "failed", "why": TEXT}))
    return folder


@pytest.mark.parametrize("form", [*FORMATS, "ticket"])
def test_no_format_of_a_report_holds_a_secret(run, tmp_path, capsys, form):
    out = tmp_path / "out"
    hosts = ["--host", "gpu007"] if form == "ticket" else []
    assert cli.main(["report", str(run), "-o", form, "--out", str(out), *hosts, *(["--per-node", "9"] if form == "prometheus" else [])]) in (0, 1, 2)
    text = out.read_text() + "".join(capsys.readouterr())
    assert holds_secret(text) == []
    assert "gpu007" in text


def test_a_ticket_as_a_page_holds_none(run, tmp_path):
    out = tmp_path / "ticket.html"
    cli.main(["report", str(run), "-o", "ticket", "--host", "gpu007", "--out", str(out)])
    assert holds_secret(out.read_text()) == []


@pytest.mark.parametrize("at", range(LONGEST - 60, LONGEST, 7))
def test_a_webhook_gets_none_also_where_a_text_is_cut(at):
    said = "x" * at + " " + TEXT
    row = FoundChange("new", "error", "xid-fatal", said, {"name": said}, said, ("gpu007",))
    assert holds_secret(json.dumps(news_of(*RUNS, [row], "warning"))) == []


def test_a_hook_that_fails_prints_none():
    why = call(["/bin/sh", "-c", "echo $0; exit 3", "login failed for password=hunter2hunter2"], {})
    assert "found 3" in why and holds_secret(why) == []


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_rows_of_a_table_and_for_other_programs_hold_none(capsys, form):
    rows = [{"host": "gpu007", "found": TEXT, "password": "hunter2hunter2"}]
    show_rows(argparse.Namespace(format=form, quiet=False), lambda width: ("gpu007", *TEXT.splitlines()), rows, ("host", "found", "password"), "host")
    out = capsys.readouterr().out
    assert "gpu007" in out and holds_secret(out) == []


def test_a_table_of_lint_holds_none(tmp_path, capsys):
    script = tmp_path / "job.sh"
    script.write_text(f"export NCCL_NVLS_ENABLE={TEXT.splitlines()[1]}\n")
    assert cli.main(["lint", str(script)]) == 1
    out = capsys.readouterr().out
    assert "NCCL_NVLS_ENABLE=<secret>" in out and holds_secret(out) == []


def test_a_table_of_inspect_holds_none(tmp_path, capsys):
    looked_at = json.loads((EVIDENCE / "never-RAS-and-stacks.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps({**looked_at, "asked_as": TEXT.splitlines()[1]}))
    assert cli.main(["inspect", "--evidence", str(tmp_path / "a.json")]) == 1
    out = capsys.readouterr().out
    assert "<secret>" in out and holds_secret(out) == []


@pytest.mark.parametrize("form", ["table", "json", "junit"])
def test_a_result_of_the_smoke_test_holds_none(capsys, form):
    failed = {"e": "phase_end", "rank": 0, "phase": "environment", "status": "fail", "message": TEXT, "result": {}}
    events = ({"e": "phase_begin", "rank": 0, "phase": "environment"}, failed, {"e": "node_end"})
    deliver(judge([Stream("gpu007", (0,), events, None)]), argparse.Namespace(format=form, out=None))
    out = capsys.readouterr().out
    assert "gpu007" in out and "secret&" in out.replace(">", "&") and holds_secret(out) == []


def test_results_for_a_ci_server_hold_none():
    cases = [Case("a", "b", Outcome("failure", TEXT, [TEXT], "c")), Case("a", "b", output=[TEXT])]
    assert holds_secret(render_suite("x", cases, {"a": TEXT})) == []
    assert holds_secret(render_json({"suspects": [{"why": TEXT}]})) == []


def test_an_archive_of_a_job_holds_none(tmp_path):
    evidence = {"schema": "unhang/evidence/1", "host": "gpu007", "ranks": [{"why": TEXT}], "note": TEXT}
    inspection = inspection_of([evidence])
    inspection["remarks"] = [TEXT]
    write_bundle(tmp_path / "b.tgz", [evidence], inspection)
    with tarfile.open(tmp_path / "b.tgz") as archive:
        texts = [archive.extractfile(one).read().decode() for one in archive]
    assert len(texts) == 3
    assert holds_secret("".join(texts)) == []


def test_the_file_of_a_fault_holds_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fails(arguments):
        raise RuntimeError(TEXT)

    monkeypatch.setattr("unhang.commands.runs.run", fails)
    assert cli.main(["runs", "--db", f"{tmp_path}/password=hunter2hunter2"]) == cli.COULD_NOT_LOOK
    [written] = tmp_path.glob("unhang-fault-*")
    assert "RuntimeError" in written.read_text()
    assert holds_secret(written.read_text() + "".join(capsys.readouterr())) == []
