"""A pipe or a device in place of a file: one line of error, and no program waits for it or replaces
it."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import signal
import threading
from pathlib import Path

import pytest
from judge_cases import node, write_run

from unhang.cli import main
from unhang.core.path_arguments import checked_inventory, irregular
from unhang.core.run.whole_files import write_atomically
from unhang.core.smoke_result import document_of
from unhang.smoke.commands.smoke_output import deliver
from unhang.smoke.result import judge

HOSTS = "all:\n  hosts:\n    gpu001: {}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a run, a pipe without a writer and inventories that contain such a
    pipe."""
    monkeypatch.chdir(tmp_path)
    write_run(Path("run"), node("a1"))
    os.mkfifo("pipe")
    for place in ("folder", "beside/group_vars", "beside/host_vars", "logs", "rules"):
        Path(place).mkdir(parents=True)
    for place in ("folder/hosts.yml", "beside/hosts.yml", "hosts.yml"):
        Path(place).write_text(HOSTS)
    for place in (
        "folder/generated.yml",
        "beside/host_vars/gpu001.yml",
        "rules/mine.yml",
    ):
        os.mkfifo(place)
    return tmp_path


REFUSED = [
    ["audit", "-i", "pipe"],
    ["audit", "-i", "folder"],
    ["audit", "-i", "beside/hosts.yml"],
    ["audit", "-i", "/dev/zero"],
    ["audit", "-i", "hosts.yml", "--limit", "@pipe"],
    ["judge", "run", "--policy", "pipe"],
    ["catalogue", "--rules", "rules"],
    ["report", "run", "--out", "pipe"],
    ["report", "run", "--format", "html", "--out", "/dev/null"],
    ["smoke", "--local", "--out", "pipe"],
    ["smoke", "--hosts", "gpu001", "--inventory", "pipe"],
    ["smoke", "--hosts", "gpu001", "--ssh-config", "pipe"],
]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_is_no_regular_file_is_refused_in_one_line_and_never_waited_for(
    here, capsys, arguments
):
    capsys.readouterr()
    assert main(arguments) == 2
    out, problem = capsys.readouterr()
    assert len(problem.splitlines()) == 1
    named = arguments[-1].lstrip("@").partition("/hosts.yml")[0]
    assert named in problem
    assert out == ""
    assert irregular(Path("pipe")) == "a pipe"
    assert irregular(Path("/dev/null")) == "a device"


def test_the_findings_of_a_run_may_not_be_a_pipe_either(here, capsys):
    os.mkfifo("run/findings.json")
    Path("log.txt").write_text(
        "a1: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    )
    assert main(["diagnose", "log.txt", "--run", "run"]) == 2
    assert "run/findings.json cannot be read: it is not a regular file" in capsys.readouterr().err


def test_an_inventory_of_regular_files_passes_from_any_folder(here):
    assert checked_inventory("hosts.yml") == str(here / "hosts.yml")
    assert checked_inventory("gpu001,gpu002") == "gpu001,gpu002"
    Path("folder/generated.yml").unlink()
    Path("folder/gone.yml").symlink_to("nowhere")
    assert checked_inventory("folder") == str(here / "folder")


def test_a_script_may_come_through_a_pipe_that_somebody_writes_to(here, capsys):
    writer = threading.Thread(target=lambda: Path("pipe").write_text("export NCCL_P2P_DISABLE=1\n"))
    writer.start()
    assert main(["lint", "pipe", "--format", "json"]) in (0, 1)
    writer.join()
    assert [one["found"] for one in json.loads(capsys.readouterr().out)["findings"]] == [
        "NCCL_P2P_DISABLE=1"
    ]


def test_a_pipe_that_nobody_writes_to_is_given_up(here, capsys, monkeypatch):
    monkeypatch.setattr("unhang.jobs.lint.linting.PIPE_PATIENCE_S", 0.1)
    assert main(["lint", "pipe"]) == 2
    assert (
        capsys.readouterr().err
        == "unhang: pipe: cannot be read: nothing came through the pipe for 0.1 s\n"
    )


WRITING = [
    ["smoke", "--local", "--out"],
    ["smoke", "--local", "--timeout", "30", "--out"],
    ["report", "run", "--format", "html", "--out"],
    ["judge", "run", "--out"],
    ["policy", "--from", "run", "--out"],
]


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_folder_in_which_nothing_can_be_written_is_said_before_the_work_is_done(
    here, capsys, arguments
):
    capsys.readouterr()
    assert main([*arguments, "nowhere/result"]) == 2
    assert capsys.readouterr() == (
        "",
        "unhang: --out cannot write result: nowhere is not a folder\n",
    )
    Path("shut").mkdir(mode=0o555)
    here.chmod(0o755)
    before = os.geteuid()
    try:
        os.seteuid(before or 65534)
        code = main([*arguments, "shut/result"])
    finally:
        os.seteuid(before)
    assert (code, capsys.readouterr()) == (
        2,
        (
            "",
            "unhang: --out cannot write result: shut may not be written to\n",
        ),
    )


def test_what_cannot_be_written_names_the_file_that_was_meant(here):
    with pytest.raises(OSError) as problem:
        write_atomically(Path("nowhere/report.html"), "text")
    assert problem.value.filename == "nowhere/report.html"


@contextlib.contextmanager
def full_disk():
    """No file can be written: what the kernel answers is not ENOSPC, and as much an OSError of
    write()."""
    most, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        signal.signal(signal.SIGXFSZ, handler)


PASSED = judge([])


def test_on_a_full_disk_a_result_is_shown_all_the_same_and_the_file_named_and_nothing_left(
    here, monkeypatch
):
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdout", shown)  # standard output of the tests is a file, too
    Path("out").mkdir()
    with full_disk(), pytest.raises(OSError) as problem:
        deliver(PASSED, "json", "out/result.json")
    assert json.loads(shown.getvalue()) == document_of(PASSED)
    assert (problem.value.filename, problem.value.errno) == ("out/result.json", errno.EFBIG)
    assert list(Path("out").iterdir()) == []


def test_a_result_whose_folder_is_gone_is_shown_all_the_same(here, capsys):
    with pytest.raises(OSError):
        deliver(PASSED, "json", "nowhere/result.json")
    assert json.loads(capsys.readouterr().out) == document_of(PASSED)
