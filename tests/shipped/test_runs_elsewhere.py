"""Run folders: UNHANG_RUNS applies wherever runs are read, and documents are written completely or
not at all."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from judge_cases import node, write_run

from unhang.cli import main
from unhang.core.errors import UserError
from unhang.core.run.run_folder import find_run, latest_run, runs_folder
from unhang.core.run.whole_files import write_atomically
from unhang.core.smoke_result import smoke_result
from unhang.smoke.commands import smoke_output

pytestmark = pytest.mark.usefixtures("compiled_rules")

ID = "20261120T043323Z-a8229f1434"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of runs that UNHANG_RUNS names, with one run and `latest`; it is not the current
    folder."""
    runs = tmp_path / "the runs 100%"
    write_run(runs / ID, node("a1"))
    (runs / "latest").symlink_to(ID)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("UNHANG_RUNS", str(runs))
    return runs


def test_unhang_runs_names_the_folder_whatever_the_checkout(elsewhere, monkeypatch, tmp_path):
    assert runs_folder() == runs_folder(Path("/checkout")) == elsewhere
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UNHANG_RUNS", "~/mine")
    assert runs_folder() == tmp_path / "mine"
    monkeypatch.setenv("UNHANG_RUNS", "")
    assert (runs_folder(), runs_folder(Path("/checkout"))) == (
        ROOT / "runs",
        Path("/checkout/runs"),
    )


def test_the_checkout_has_its_runs_whichever_folder_a_command_is_typed_in(
    elsewhere, monkeypatch, tmp_path, capsys
):
    checkout = tmp_path / "checkout"
    (checkout / "playbooks").mkdir(parents=True)
    (checkout / "playbooks" / "audit.yml").touch()
    elsewhere.rename(checkout / "runs")
    monkeypatch.delenv("UNHANG_RUNS")
    monkeypatch.setenv("UNHANG_HOME", str(checkout))
    assert main(["judge", "-q"]) in (0, 1)
    for folder, latest in (
        (checkout, "runs/latest"),
        (tmp_path, "checkout/runs/latest"),
        (tmp_path / "here", str(checkout / "runs" / "latest")),
    ):
        monkeypatch.chdir(folder)
        assert latest_run() == latest
        assert {
            find_run(named).resolve()
            for named in (ID, "latest", f"runs/{ID}", "runs/latest", latest)
        } == {checkout / "runs" / ID}
        for named in ([], ["latest"]):
            assert main(["report", *named, "-o", "json"]) in (0, 1)
            assert json.loads(capsys.readouterr().out)["run"]["id"] == "r1"


def test_where_there_is_no_checkout_the_runs_are_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("UNHANG_RUNS", raising=False)
    monkeypatch.setenv("UNHANG_HOME", str(tmp_path))
    assert runs_folder() == Path("runs")


@pytest.mark.parametrize("named", [ID, "latest"])
def test_a_run_is_found_there_by_id_and_as_latest(elsewhere, named):
    assert find_run(named) == elsewhere / ID


def test_judge_report_and_diagnose_read_it(elsewhere, tmp_path, capsys):
    assert main(["judge", "--format", "json"]) in (0, 1)
    judged = json.loads(capsys.readouterr().out)
    assert (elsewhere / ID / "findings.json").is_file()
    assert main(["report", "--format", "json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out) == judged
    assert main(["report", "latest", "--format", "html"]) in (0, 1)
    assert capsys.readouterr().out.strip() == str(elsewhere / ID / "report.html")
    log = tmp_path / "log.txt"
    log.write_text("a1: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert main(["diagnose", str(log), "--run", "latest", "--format", "json"]) in (0, 1, 3)
    assert json.loads(capsys.readouterr().out)["inputs"][0]["file"] == str(log)


@pytest.mark.parametrize("command", ["judge", "report"])
def test_help_names_the_run_that_is_meant(elsewhere, command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = "".join(capsys.readouterr().out.split())  # argparse chooses where it breaks the line
    assert "".join(f"(default: {elsewhere}/latest)".split()) in shown


def test_a_document_that_does_not_fit_names_its_file_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(OSError) as problem:
        _with_files_of_at_most(64 * 1024, lambda: write_atomically(path, "x" * 1_000_000))
    assert problem.value.filename == str(path)
    assert problem.value.strerror == "File too large"
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_a_command_that_finds_no_room_says_for_which_file(elsewhere):
    start = (
        "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from unhang.cli import main;"
        " sys.exit(main())"
    )
    assert main(["judge"]) in (0, 1)
    (elsewhere / ID / "report.html").unlink()
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            start,
            ROOT / "tools",
            ROOT / "module_utils",
            "report",
            "--format",
            "html",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        ),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"unhang: File too large at {elsewhere / 'latest' / 'report.html'}\n"


def _with_files_of_at_most(size_bytes, act):
    """A disk with little room, as far as a process can simulate one for itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python's default: the write fails, the process continues
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        act()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


LONG = {"schema": "unhang/smoke/1", "verdict": "pass", "world_size": 1, "command": "x" * 10_000}
LONG |= {key: [] for key in ("hosts", "phases", "collectives", "suspects", "experiments")}


def test_a_smoke_result_that_finds_no_room_names_its_file_and_leaves_no_half_of_one(tmp_path):
    out = tmp_path / "smoke.json"

    def deliver_one():
        with pytest.raises(OSError, match="File too large") as problem:
            smoke_output.deliver(smoke_result(LONG), "json", str(out))
        assert problem.value.filename == str(out)

    _with_files_of_at_most(100, deliver_one)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_found_by_the_beginning_of_its_id_when_it_is_the_only_one(elsewhere):
    assert find_run(ID[:15]) == elsewhere / ID
    other = elsewhere / f"{ID[:15]}-other"
    other.mkdir()
    (other / "run.json").write_text("{}")
    with pytest.raises(UserError, match=f"{ID[:15]} begins the names of 2 runs"):
        find_run(ID[:15])
    with pytest.raises(UserError, match="2 is not a run folder"):
        find_run("2")
