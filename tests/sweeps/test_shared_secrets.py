"""Whatever is made to be shared holds no secret of a node: every format of a report, tickets, rows
of the history, webhooks, archives and files of faults."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import fleets
import pytest
from inspected import inspection_of, write_bundle
from run_folders import Fleet, facts, finding

from unhang import cli
from unhang.audit.commands.run_output import FORMATS
from unhang.audit.history.changes import FoundChange
from unhang.audit.history.news import LONGEST, news_of
from unhang.audit.history.past import node_pasts
from unhang.audit.history.runs import PastRun
from unhang.core.commands.hook_orphans import call_and_end_all
from unhang.core.commands.row_output import show_rows
from unhang.core.json_text import render_json
from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.secrets_in_text import masked_document
from unhang.judge.rules.node_rules import LONGEST_EVIDENCE, cut
from unhang.smoke.commands.smoke_output import deliver
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream

EVIDENCE = Path(__file__).resolve().parents[1] / "fixtures" / "inspect" / "evidence"
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
RUNS = [
    PastRun(f"run{number}", Path(), "2026-11-20T03:00:00Z", None, None, (), frozenset())
    for number in (1, 2)
]


def holds_secret(text):
    """The parts of secrets that are in a text, eight letters of one are enough."""
    return [part for part in PARTS if any(part[at : at + 8] in text for at in range(len(part) - 7))]


@pytest.fixture
def run(tmp_path):
    """A run in which a node says secrets wherever it has free text."""
    where = {"index": 0, "name": TEXT}
    found = fleets.finding(
        "xid-fatal",
        "gpu007",
        "critical",
        TEXT,
        TEXT,
        TEXT,
        owner="vendor",
        where=where,
        remedy={"person": TEXT},
        evidence=[{"path": "a.b", "value": TEXT}],
    )
    unread = fleets.finding(
        "a-rule",
        "gpu008",
        "error",
        "t",
        "e",
        "f",
        verdict="unknown",
        missing=[{"path": "gpus", "status": "error", "reason": TEXT}],
    )
    document = fleets.document([found, unread], {"ok": 1, "failed": 1})
    sections = fleets.sections(TEXT, 2, TEXT, TEXT, TEXT)
    nodes = [
        fleets.node("gpu007", ["all"], sections),
        fleets.node("gpu008", [TEXT], None, "failed", TEXT),
    ]
    folder = fleets.write_run(tmp_path / "run", document, nodes)
    (folder / "nodes" / "gpu007.json").write_text(json.dumps(nodes[0]))
    (folder / "remediation-gpu007.json").write_text(
        json.dumps({"host": "gpu007", "roles": ["gpu_driver"], "healthy": False, "reasons": [TEXT]})
    )
    return folder


@pytest.mark.parametrize("form", [*FORMATS, "ticket"])
def test_no_format_of_a_report_holds_a_secret(run, tmp_path, capsys, form):
    out = tmp_path / "out"
    hosts = ["--host", "gpu007"] if form == "ticket" else []
    assert cli.main(
        [
            "report",
            str(run),
            "-o",
            form,
            "--out",
            str(out),
            *hosts,
            *(["--per-node", "9"] if form == "prometheus" else []),
        ]
    ) in (0, 1, 2)
    text = out.read_text() + "".join(capsys.readouterr())
    assert holds_secret(text) == []
    assert "gpu007" in text


def test_a_ticket_says_how_the_node_was_after_the_repair(run, tmp_path):
    out, proof = tmp_path / "t.md", run / "remediation-gpu007.json"
    for healthy, said in (
        (True, "roles gpu\\_driver; the node is healthy afterwards"),
        (False, "roles gpu\\_driver; the node is not healthy afterwards: left: xid-fatal"),
    ):
        proof.write_text(
            json.dumps(
                {
                    "roles": ["gpu_driver"],
                    "healthy": healthy,
                    "reasons": [] if healthy else ["left: xid-fatal"],
                }
            )
        )
        assert cli.main(
            ["report", str(run), "-o", "ticket", "--out", str(out), "--host", "gpu007"]
        ) in (0, 1)
        assert f"| repair by unhang | {said} |" in out.read_text()
    proof.write_text(json.dumps(["healthy"]))
    assert cli.main(
        ["report", str(run), "-o", "ticket", "--out", str(out), "--host", "gpu007"]
    ) in (0, 1)
    assert "repair by unhang" not in out.read_text()


@pytest.mark.parametrize("at", range(LONGEST - 60, LONGEST, 7))
def test_a_webhook_gets_none_also_where_a_text_is_cut(at):
    said = "x" * at + " " + TEXT
    row = FoundChange("new", "error", "xid-fatal", said, {"name": said}, said, ("gpu007",))
    assert holds_secret(json.dumps(news_of(*RUNS, [row], "warning"))) == []


def test_a_hook_that_fails_prints_none():
    why = call_and_end_all(
        ["/bin/sh", "-c", "echo $0; exit 3", "login failed for password=hunter2hunter2"], {}
    )
    assert "code 3" in why and holds_secret(why) == []


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_rows_of_a_table_and_for_other_programs_hold_none(capsys, form):
    rows = [{"host": "gpu007", "found": TEXT, "password": "hunter2hunter2"}]
    show_rows(
        form,
        False,
        lambda width: ("gpu007", *TEXT.splitlines()),
        rows,
        ("host", "found", "password"),
    )
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
    failed = {
        "e": "phase_end",
        "rank": 0,
        "phase": "environment",
        "status": "fail",
        "message": TEXT,
        "result": {},
    }
    events = ({"e": "phase_begin", "rank": 0, "phase": "environment"}, failed, {"e": "node_end"})
    deliver(judge([Stream("gpu007", (0,), events, None)]), form, None)
    out = capsys.readouterr().out
    assert "gpu007" in out and "secret&" in out.replace(">", "&") and holds_secret(out) == []


def test_results_for_a_ci_server_hold_none():
    cases = [Case("a", "b", Outcome("failure", TEXT, [TEXT], "c")), Case("a", "b", output=[TEXT])]
    assert holds_secret(render_suite("x", cases, {"a": TEXT})) == []
    assert holds_secret(render_json({"suspects": [{"why": TEXT}]})) == []


def test_an_archive_of_a_job_holds_none(tmp_path):
    fixtures = Path(__file__).resolve().parents[1] / "fixtures" / "inspect" / "evidence"
    evidence = json.loads((fixtures / "never-RAS-and-stacks.json").read_text())
    evidence["sections"]["log_tail"]["logs"][0]["lines"] += TEXT.splitlines()
    evidence["ranks"][0]["settings"]["NCCL_HOSTID"] = TEXT
    write_bundle(tmp_path / "b.tgz", [evidence], inspection_of([evidence]))
    with tarfile.open(tmp_path / "b.tgz") as archive:
        texts = [archive.extractfile(one).read().decode() for one in archive]
    assert len(texts) == 4
    assert holds_secret("".join(texts)) == []


def test_the_file_of_a_fault_holds_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fails(arguments):
        raise RuntimeError(TEXT)

    monkeypatch.setattr("unhang.audit.commands.history.run", fails)
    assert (
        cli.main(["history", f"{tmp_path}/password=hunter2hunter2/{'x' * 5000}"])
        == cli.COULD_NOT_LOOK
    )
    [written] = tmp_path.glob("unhang-fault-*")
    assert (
        "RuntimeError" in written.read_text()
        and len(written.read_text().splitlines()[1]) <= cli.LONGEST_TYPED
    )
    assert holds_secret(written.read_text() + "".join(capsys.readouterr())) == []


TOKEN = "hf_Zq81hd73kd02mcn4Zq81hd73kd02mcn4ab"
# where the tables and the history cut their texts, and before
AT = (*range(30, 90, 7), *range(130, 210, 9), *range(270, 305, 6))


@pytest.fixture(scope="module")
def cut_histories(tmp_path_factory):
    """Pairs of runs in which a token stands at another place of a text each."""
    files = []
    for at in AT:
        folder, said = tmp_path_factory.mktemp("cut"), "x " * (at // 2) + TOKEN
        fleet = Fleet(folder)
        waiver = {"reason": said, "by": said, "until": "2026-11-21"}
        waived = finding(
            "worse", "gpu2", verdict="waived", found=said, where={"name": said}, waiver=waiver
        )
        first = fleet.run({"gpu1": facts(), "gpu2": facts()}, [])
        second = fleet.run(
            {"gpu1": facts(said), "gpu2": facts()},
            [finding("bad", "gpu1", found=said, where={"name": said}), waived],
            limit=said,
        )
        files.append((first, second))
    return files


@pytest.mark.parametrize(
    "command",
    [(), ("diff",), ("bad",), ("gpu1",)],
    ids=" ".join,
)
def test_no_table_of_the_history_holds_half_a_token_where_it_cuts_or_wraps(
    cut_histories, capsys, monkeypatch, command
):
    monkeypatch.setenv("COLUMNS", "100")
    for first, second in cut_histories:
        monkeypatch.setenv("UNHANG_RUNS", str(first.parent))
        given = (str(first), str(second)) if command == ("diff",) else ()
        assert cli.main(["history", *command, *given]) in (0, 1)
        assert holds_half("".join(capsys.readouterr())) == []


def test_neither_does_the_past_of_a_node_on_a_page(cut_histories):
    for _, run in cut_histories:
        assert holds_half(str(node_pasts(run))) == []
        assert node_pasts(run)["gpu1"]


def test_nor_a_comparison_of_two_sides(tmp_path, capsys):
    for number, at in enumerate(range(100, 170, 9)):
        first, second = (tmp_path / f"{number}{name}.json" for name in "ab")
        for path, value in ((first, "535"), (second, "x " * (at // 2) + TOKEN)):
            document = {
                "schema": "unhang/node-facts/1",
                "collector": {"version": "1"},
                "sections": facts(value),
            }
            path.write_text(json.dumps(document))
        for form in ("table", "json", "csv"):
            assert cli.main(["history", "diff", str(first), str(second), "-o", form]) == 1
            text = "".join(capsys.readouterr())
            assert holds_half(text) == [] and "driver.loaded.version" in text


def test_nor_the_evidence_of_a_finding():
    for at in range(LONGEST_EVIDENCE - 50, LONGEST_EVIDENCE, 5):
        assert holds_half(masked_document(cut("x " * (at // 2) + TOKEN))) == []


def holds_half(text):
    """Eight characters of the token in a row."""
    whole = "".join(text.split())
    return [TOKEN[at : at + 8] for at in range(len(TOKEN) - 7) if TOKEN[at : at + 8] in whole]


@pytest.mark.parametrize("form", ["table", "json", "evidence"])
def test_nor_a_diagnosis_of_lines_that_are_longer_than_it_quotes(tmp_path, capsys, form):
    log = tmp_path / "a.log"
    for at in range(440, 520, 4):
        said = "y " * (at // 2)
        lines = [
            f"RuntimeError: CUDA out of memory. {said}{TOKEN} end",
            f"{said}{TOKEN} torch.OutOfMemoryError: CUDA out of memory",
            f"last {said}{TOKEN} z",
        ]
        log.write_text("\n".join(lines) + "\n")
        assert cli.main(["diagnose", str(log), "-o", form]) in (0, 1, 3)
        assert holds_half("".join(capsys.readouterr())) == []


@pytest.mark.parametrize("form", ["table", "json", "csv", "sarif"])
def test_nor_a_lint_of_lines_that_are_longer_than_it_quotes(tmp_path, capsys, form):
    script = tmp_path / "job.sbatch"
    for at in range(0, 160, 6):
        more = f"--x={'y' * at} {TOKEN}"
        launches = (
            f"torchrun --standalone --nnodes=2 {more} t.py\nsrun --ntasks-per-node=8 torchrun"
            f" --nproc-per-node 8 {more} t.py\n"
        )
        script.write_text(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBTACH"
            f" {more}\n{launches}"
        )
        assert cli.main(["lint", str(script), "-o", form]) == 1
        assert holds_half("".join(capsys.readouterr())) == []
