"""`unhang report` as a user runs it: output, exit code, environment."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import five_situations
import fleets
import golden
import pytest
from forked_commands import forked

from unhang.core.run.own_runs import mark_as_own

TOOLS = str(Path(__file__).parents[2] / "tools")


def unhang(*argv, cwd):
    """What it does, with output as text."""
    return forked(argv, cwd, settings(cwd))


def started(*argv, cwd, **environ):
    """In a process of its own, with output as bytes."""
    return subprocess.run(
        [sys.executable, "-m", "unhang", *argv],
        cwd=cwd,
        env=settings(cwd) | environ,
        capture_output=True,
        timeout=240,
    )


def settings(folder):
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": TOOLS,
        "HOME": str(folder),
        "UNHANG_RUNS": "runs",
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with runs/latest and runs/clean."""
    folder = tmp_path_factory.mktemp("runs")
    mark_as_own(fleets.write_run(folder / "runs/latest", *five_situations.fleet()))
    fleets.write_run(
        folder / "runs/clean", golden.cases()["nothing_found"], [fleets.node("n1", [], {})]
    )
    return folder


@pytest.mark.parametrize(("name", "code"), [("latest", 1), ("clean", 0)])
@pytest.mark.parametrize("form", ["table", "json", "html"])
def test_exit_code_says_whether_something_was_found(runs, name, code, form):
    done = unhang("report", f"runs/{name}", "--format", form, cwd=runs)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(("severity", "code"), [("info", 1), ("critical", 1)])
def test_fail_on_sets_from_which_severity_it_counts(runs, severity, code):
    assert unhang("report", "--fail-on", severity, cwd=runs).returncode == code


def test_findings_of_info_are_shown_and_fail_no_script(tmp_path):
    fleets.write_run(
        tmp_path / "run",
        fleets.document([fleets.finding("r", "n", "info", "worth knowing", "e", "f")], {"ok": 1}),
        [],
    )
    done = unhang("report", "run", cwd=tmp_path)
    assert (done.returncode, "worth knowing" in done.stdout) == (0, True)
    assert unhang("report", "run", "--fail-on", "info", cwd=tmp_path).returncode == 1


def test_a_lesser_finding_passes_a_higher_bar(tmp_path):
    fleets.write_run(
        tmp_path / "run",
        fleets.document([fleets.finding("r", "n", "warning", "t", "e", "f")], {"ok": 1}),
        [],
    )
    assert unhang("report", "run", "--fail-on", "error", cwd=tmp_path).returncode == 0
    assert unhang("report", "run", "--fail-on", "warning", cwd=tmp_path).returncode == 1


def test_an_answer_that_is_not_whole_is_exit_2_and_says_why(tmp_path):
    findings = fleets.document([fleets.finding("r", "n", "warning", "t", "e", "f")], {"ok": 1})
    findings["catalogue"].update(stopped=["endless-rule"], refused=["mine.yml:3: unknown name"])
    fleets.write_run(tmp_path / "run", findings, [])
    done = unhang("report", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "rule endless-rule was stopped" in done.stdout
    assert "mine.yml:3: unknown name" in done.stdout
    unhang("report", "run", "--format", "html", cwd=tmp_path)
    assert "rule endless-rule was stopped" in (tmp_path / "run/report.html").read_text()


def test_a_run_that_read_no_node_is_exit_2(tmp_path):
    fleets.write_run(tmp_path / "run", fleets.document([], {"unreachable": 3}), [])
    assert unhang("report", "run", cwd=tmp_path).returncode == 2


def test_json_is_one_object_and_nothing_else(runs):
    done = started("report", "--format", "json", cwd=runs)
    found, written = json.loads(done.stdout), five_situations.fleet()[0]
    # with the options of the run, as in the table
    commands = [one.pop("command") for one in (*found["causes"], *written["causes"])]
    assert found == written and all(commands)


def test_html_is_written_into_the_run_and_its_path_is_printed(runs):
    done = unhang("report", "runs/latest", "--format", "html", cwd=runs)
    assert done.stdout.strip() == "runs/latest/report.html"
    assert (runs / "runs/latest/report.html").read_text().startswith("<!doctype html>")


def test_html_goes_where_it_is_asked_for(runs, tmp_path):
    assert (
        unhang(
            "report", "--format", "html", "--out", str(tmp_path / "page.html"), cwd=runs
        ).returncode
        == 1
    )
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert unhang("report", "--format", "html", "--out", "-", cwd=runs).stdout.startswith(
        "<!doctype html>"
    )


def test_a_pipe_gets_plain_text_of_a_hundred_columns_unless_the_caller_names_others(runs):
    asked = {"TERM": "xterm-256color", "PYTHONUTF8": "1"}
    narrow = started("report", "-v", cwd=runs, COLUMNS="70", **asked).stdout.decode().splitlines()
    usual = started("report", "-v", cwd=runs, **asked).stdout.decode().splitlines()
    assert max(map(len, narrow)) < 90 < max(map(len, usual))
    done = started("report", "-v", cwd=runs, COLUMNS="100", **asked)
    assert done.stdout.decode() == (golden.FOLDER / "five_situations.100.exit1.txt").read_text(
        encoding="utf-8"
    )


def test_a_locale_without_utf8_gets_ascii(runs):
    done = started(
        "report",
        "-v",
        cwd=runs,
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        PYTHONIOENCODING="ascii",
    )
    assert (done.returncode, done.stdout.decode("ascii")) == (
        1,
        (golden.FOLDER / "five_situations.ascii.exit1.txt").read_text(),
    )


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_gets_colour_unless_it_says_no(runs, environ, coloured):
    ours, theirs = pty.openpty()
    given = settings(runs) | {"COLUMNS": "80", "PYTHONUTF8": "1", **environ}
    with subprocess.Popen(
        [sys.executable, "-m", "unhang", "report"],
        cwd=runs,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65536):
                output += chunk
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 1
    assert (b"\x1b[" in output) == coloured
    assert b"CRITICAL" in output


@pytest.mark.parametrize(
    "argv",
    [
        ("report", "nowhere"),
        ("report", "--format", "pdf"),
        ("report", "runs/latest", "--format", "html", "--out", "no/such/folder/x.html"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(runs, argv):
    done = unhang(*argv, cwd=runs)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    shown = [line for line in done.stderr.splitlines() if line.startswith("unhang")]
    assert len(shown) == 1
    assert "is not a" in shown[0] or "choose from" in shown[0]
