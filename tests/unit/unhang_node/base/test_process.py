"""The one runner of programs on a node, against real programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

import pytest

from unhang_node.base.process import (
    FOLDERS,
    ProgramFailed,
    demand_success,
    output_of,
    run_process,
    start_apart,
)

PATIENT_S = 120  # how long a test waits for what happens at once on an idle machine


def shell(text, **options):
    return run_process(["/bin/sh", "-c", text], **{"deadline_s": PATIENT_S, **options})


def test_code_and_both_outputs_are_kept_apart():
    done = shell("echo out; echo err >&2; exit 3")
    assert (done.code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert not (done.timed_out or done.is_missing or done.is_cut)


def test_merged_outputs_come_in_their_order():
    done = shell("echo one; echo two >&2; echo three", merged=True)
    assert (done.stdout, done.stderr) == ("one\ntwo\nthree\n", "")


def test_the_environment_is_ours_alone(monkeypatch):
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    lines = output_of(
        [sys.executable, "-I", "-c", show],
        PATIENT_S,
        variables={"DEBIAN_FRONTEND": "noninteractive"},
    )
    seen = json.loads(lines)
    assert {name: seen[name] for name in seen if name != "LC_CTYPE"} == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C",
        "HOME": "/", "DEBIAN_FRONTEND": "noninteractive",
    }  # fmt: skip


def test_input_larger_than_a_pipe_passes_while_output_is_read():
    text = "0123456789abcde\n" * 100_000
    assert output_of(["cat"], PATIENT_S, stdin=text) == text


def test_a_program_that_does_not_read_its_input_is_no_error():
    assert shell("exit 0", stdin="x" * 1_000_000).code == 0


def test_without_input_it_reads_an_empty_one():
    assert output_of(["cat"], PATIENT_S) == ""


def test_a_service_that_keeps_the_output_open_is_not_waited_for():
    began = time.monotonic()
    done = shell("setsid sleep 5 & echo started")
    assert (done.code, done.stdout, done.timed_out) == (0, "started\n", False)
    assert time.monotonic() - began < 5


def test_more_than_the_limit_keeps_the_end_and_says_so():
    done = shell("yes 0123456789 | head -c 1000000; echo the end", limit_bytes=1000)
    assert len(done.stdout) == 1000
    assert done.stdout.endswith("the end\n")
    assert done.is_cut
    with pytest.raises(ValueError, match="more than the limit"):
        demand_success(done)


def test_a_program_that_is_not_there_is_told_apart_from_one_that_failed():
    done = run_process(["unhang-no-such-program"])
    assert (done.code, done.is_missing, done.timed_out) == (None, True, False)
    with pytest.raises(FileNotFoundError, match="no such program"):
        demand_success(done)


def test_a_working_folder_that_is_not_there_is_no_missing_program():
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        run_process(["true"], folder="/nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_a_program_that_the_other_root_lacks_is_missing_too(tmp_path):
    assert shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    done = run_process(["apt-get"], rootfs=str(tmp_path))
    assert (done.code, done.is_missing) == (None, True)


def test_a_failure_is_one_line_with_the_last_words():
    with pytest.raises(ProgramFailed) as failed:
        demand_success(shell("echo no; echo  disk >&2; exit 5"))
    assert str(failed.value) == "/bin/sh -c echo no; echo  disk >&2; exit 5: ended with 5: disk"
    with pytest.raises(ProgramFailed, match="ended with -15: it printed nothing"):
        demand_success(shell("kill -TERM $$"))
    with pytest.raises(TimeoutError, match="no answer within 1 s"):
        output_of(["sleep", "1000"], 1)


def test_bytes_that_are_no_text_are_replaced():
    assert shell("printf '\\377x'").stdout == "\ufffdx"


def test_a_program_that_is_started_apart_has_a_session_of_its_own_and_is_not_ended_by_us(tmp_path):
    done, shown = tmp_path / "done", tmp_path / "told"
    script = (
        f"ps -o sid= -p $$ > {shown}; echo $PATH:$LC_ALL:$MORE >> {shown}; while [ ! -e {done} ];"
        " do sleep 0.1; done"
    )
    ended = start_apart(["sh", "-c", script], {"MORE": "more"})
    until = time.monotonic() + PATIENT_S
    while (
        not shown.exists() or len(shown.read_text().splitlines()) < 2
    ) and time.monotonic() < until:
        time.sleep(0.05)
    assert not ended()
    session, environment = shown.read_text().splitlines()
    assert int(session) != os.getsid(0)
    assert environment == f"{FOLDERS}:C:more"
    done.touch()
    while not ended() and time.monotonic() < until:
        time.sleep(0.05)
    assert ended()
