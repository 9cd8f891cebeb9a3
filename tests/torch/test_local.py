"""`unhang smoke --local` with real torch and gloo: a healthy run passes, each planned fault is
named with its rank, and no process is left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest
from descendant_processes import launched
from documented_command import as_typed
from smoke_runs import (
    DEADLINE_S,
    HANG,
    PATIENT,
    SMALL,
    command,
    environment,
    payload_processes,
    smoke,
    typed,
)

from unhang.core.schemas.check import check_schema

PHASES = (
    "environment", "binding", "rendezvous", "consistency", "init", "broadcast", "all_reduce",
    "all_gather", "reduce_scatter", "agreement", "shapes", "ddp", "fsdp", "pace", "bandwidth",
)  # fmt: skip


@pytest.fixture(scope="module")
def healthy():
    """The whole smoke test on two ranks, with the page's command."""
    return typed(
        [*as_typed("unhang smoke --local --nproc 2 --backend gloo --format json"), *PATIENT]
    )


def test_without_a_word_more_it_takes_what_the_machine_has_and_says_how_to_repeat_it():
    done = typed([*as_typed("unhang smoke --local"), *PATIENT])
    assert done.code == 0, done.stdout
    again = " ".join(["to repeat: unhang smoke --local", *PATIENT])
    assert done.stdout.splitlines()[-2:] == ["verdict: pass", again]


def test_a_healthy_machine_passes_all_phases(healthy):
    assert healthy.code == 0, healthy.stdout
    assert healthy.result["verdict"] == "pass"
    assert [row["name"] for row in healthy.result["phases"]] == list(PHASES)
    assert {row["status"] for row in healthy.result["phases"]} == {"ok"}
    assert healthy.suspects == []


def test_the_answer_is_one_json_object_that_keeps_its_schema(healthy):
    assert list(check_schema(healthy.result, "smoke-1")) == []
    assert healthy.result["schema"] == "unhang/smoke/1"
    assert healthy.result["command"].startswith("unhang smoke --local")


def test_each_operation_is_checked_in_both_types_and_measured(healthy):
    checked = {
        (row["op"], row["dtype"])
        for row in healthy.result["collectives"]
        if row["measures"] == "correctness" and row["wrong"] == 0
    }
    operations = ("broadcast", "all_reduce", "all_gather", "reduce_scatter")
    assert checked == {(name, dtype) for name in operations for dtype in ("float32", "bfloat16")}
    measured = [row for row in healthy.result["collectives"] if row["measures"] == "bandwidth"]
    assert {row["op"] for row in measured} == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
    }
    for row in measured:
        assert row["algbw_gb_s"] == pytest.approx(
            row["size_bytes"] / row["time_us"] / 1e3, abs=0.01
        )


def test_phases_are_announced_on_standard_error_before_they_start(healthy):
    assert [
        line.split()[-1]
        for line in healthy.stderr.splitlines()
        if line.startswith("unhang: phase ")
    ] == list(PHASES)


@pytest.mark.parametrize(
    "drill, options, phase, message",
    [
        ("1:stop:shapes", PATIENT, "shapes", "stopped (state T)"),
        ("2:exit:all_gather", PATIENT, "all_gather", "code 7"),
        ("0:crash:broadcast", PATIENT, "broadcast", "SIGSEGV"),
        ("1:corrupt", PATIENT, "broadcast", "its data arrived wrong at 3 of 3 ranks"),
        ("2:wrong_device", PATIENT, "binding", "ranks 0, 2 share one device"),
        ("2:slow", PATIENT, "pace", "median rank"),
    ],
    ids=lambda value: value.split(":")[1] if isinstance(value, str) and ":" in value else "",
)
def test_a_planned_fault_is_named_with_its_rank_and_phase(drill, options, phase, message):
    wanted = f"broadcast,all_reduce,all_gather,{'pace' if 'slow' in drill else 'shapes'}"
    ranks = 4 if "slow" in drill else 3  # with fewer than four, the slow rank cannot be identified
    done = smoke(
        "--nproc", ranks, *SMALL, *options, "--phases", wanted, "--drill", drill, "--no-experiments"
    )
    # where other programs keep the CPUs, a slow rank is named and not proved
    not_proved = "slow" in drill and "the machine is busy" in (done.result["not_proved"] or "")
    assert done.code == (3 if not_proved else 1), done.stdout
    assert [suspect["rank"] for suspect in done.suspects] == [int(drill[0])], done.suspects
    assert message in done.suspects[0]["why"]
    assert done.suspects[0]["host"] == os.uname().nodename
    assert done.suspects[0]["next"]
    # Rank 1 does not send in the broadcast, so its wrong data appears from the next operation on.
    assert done.suspects[0]["phase"] == ("all_reduce" if "corrupt" in drill else phase)
    assert list(check_schema(done.result, "smoke-1")) == []


def test_a_rank_that_never_enters_is_named_with_stacks_recordings_and_where_each_stood():
    done = smoke(*HANG, "--nproc", 3)
    [suspect] = done.suspects
    assert (suspect["rank"], suspect["phase"], done.code) == (1, "all_reduce", 1)
    assert "never entered collective" in suspect["why"]
    assert list(check_schema(done.result, "smoke-1")) == []
    evidence = {row["rank"]: row for row in done.result["evidence"]}
    assert "all_reduce" in evidence[0]["stack"]
    assert "drill" in evidence[1]["stack"]
    assert (evidence[0]["seq"], evidence[1]["seq"]) == (2, 1)
    assert evidence[0]["flight_recorder"]["last_enqueued"] == 2
    assert evidence[0]["flight_recorder"]["last_completed"] == 1
    assert evidence[0]["waited_s"] < 20
    [node] = done.result["nodes"]
    assert node["kernel_log"] is None or isinstance(node["kernel_log"], list)
    assert isinstance(node["counters"], dict)


def started(*arguments):
    """A running `unhang smoke` whose ranks are all in all_reduce: the first one there announces it,
    and the others may still be one phase earlier."""
    argv = command("--backend", "gloo", "--format", "json", *arguments)
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    for line in process.stderr:
        if line.strip() == "unhang: phase all_reduce":
            break
    until = time.monotonic() + DEADLINE_S
    while (
        time.monotonic() < until
        and process.poll() is None
        and not all(map(is_reducing, ranks_of(process).items()))
    ):
        time.sleep(0.05)
    return process


def is_reducing(rank_and_pid):
    """Whether a rank's page of memory shows that it is in all_reduce."""
    rank, pid = rank_and_pid
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError),
        open(f"/proc/{pid}/cmdline", "rb") as source,
    ):
        argv = source.read().split(b"\0")
        with open(
            os.path.join(argv[argv.index(b"--folder") + 1].decode(), f"board-{rank}"), "rb"
        ) as board:
            return b"\0all_reduce\n" in board.read()
    return False


def ranks_of(launcher):
    """{rank: pid} of the ranks below a launcher."""
    found = {}
    for pid in launched(launcher.pid):
        variables = {}
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/environ", "rb") as source,
        ):
            variables = dict(
                part.split(b"=", 1) for part in source.read().split(b"\0") if b"=" in part
            )
        if b"UNHANG_SMOKE_PLAN" in variables:
            found[int(variables[b"RANK"])] = pid
    return found


def gone(pids):
    """Whether all have ended; waits for at most DEADLINE_S."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if not set(pids) & set(payload_processes()):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def busy():
    """Three ranks whose all_reduce does not end by itself; the planned absence of rank 0 keeps the
    others inside it."""
    process = started(
        "--nproc",
        3,
        "--max-size",
        "64K",
        *PATIENT,
        "--phases",
        "all_reduce",
        "--drill",
        "0:absent:all_reduce",
        "--no-experiments",
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


def test_a_rank_stopped_from_outside_in_the_middle_of_a_collective_is_named_in_time(busy):
    ranks = ranks_of(busy)
    os.kill(ranks[2], signal.SIGSTOP)
    began = time.monotonic()
    output, _ = busy.communicate(timeout=DEADLINE_S)
    took_s = time.monotonic() - began
    [suspect] = json.loads(output)["suspects"]
    assert (suspect["rank"], suspect["phase"]) == (2, "all_reduce")
    assert "stopped" in suspect["why"]
    assert took_s < 30
    assert gone(ranks.values())


def test_a_rank_killed_from_outside_is_named_with_the_signal(busy):
    ranks = ranks_of(busy)
    os.kill(ranks[1], signal.SIGKILL)
    output, _ = busy.communicate(timeout=DEADLINE_S)
    [suspect] = json.loads(output)["suspects"]
    assert suspect["rank"] == 1
    assert "SIGKILL" in suspect["why"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_when_the_launcher_is_ended(busy, number):
    ranks = ranks_of(busy)
    assert sorted(ranks) == [0, 1, 2]
    os.kill(ranks[1], signal.SIGSTOP)  # a rank that reacts only to SIGKILL
    busy.send_signal(number)
    busy.wait(timeout=DEADLINE_S)
    assert gone(ranks.values())


def test_no_process_is_left_when_the_agent_is_killed(busy):
    ranks = ranks_of(busy)
    [agent] = [
        pid
        for pid, argv in payload_processes().items()
        if pid in launched(busy.pid) and " node " in argv
    ]
    os.kill(agent, signal.SIGKILL)
    output, _ = busy.communicate(timeout=DEADLINE_S)
    assert gone(ranks.values())
    assert "the agent ended with code -9" in json.loads(output)["suspects"][0]["why"]


def test_ranks_that_differ_are_reported_before_the_first_collective():
    done = smoke(
        "--nproc", 3, *SMALL, *PATIENT, "--phases", "all_reduce", "--rank-env", "2:NCCL_ALGO=Tree"
    )
    assert done.code == 1
    [suspect] = done.suspects
    assert (suspect["rank"], suspect["phase"]) == (2, "consistency")
    assert "NCCL_ALGO is Tree here, most have not set" in suspect["why"]
    assert "init" not in [row["name"] for row in done.result["phases"]]
    assert done.result["experiments"] == []


def test_another_torch_on_one_rank_is_reported_before_the_first_collective(tmp_path):
    import torch

    real = os.path.dirname(torch.__file__)
    overlay = tmp_path / "torch"
    overlay.mkdir()
    for name in os.listdir(real):
        if name != "version.py":
            (overlay / name).symlink_to(os.path.join(real, name))
    with open(os.path.join(real, "version.py"), encoding="utf-8") as source:
        (overlay / "version.py").write_text(
            source.read().replace(torch.__version__, "2.12.9+other")
        )
    done = smoke(
        "--nproc",
        3,
        *SMALL,
        *PATIENT,
        "--phases",
        "all_reduce",
        "--rank-env",
        f"1:PYTHONPATH={tmp_path}",
    )
    [suspect] = done.suspects
    assert suspect["rank"] == 1
    assert suspect["why"].startswith("torch is 2.12.9+other here")


def test_one_rank_alone_passes_and_the_table_ends_with_the_verdict_and_the_command_to_repeat_it(
    tmp_path,
):
    done = smoke(
        "--nproc",
        1,
        *SMALL,
        *PATIENT,
        "--phases",
        "all_reduce,bandwidth",
        "--out",
        tmp_path / "result.json",
        form="table",
    )
    assert (done.code, json.loads((tmp_path / "result.json").read_text())["world_size"]) == (0, 1)
    lines = done.stdout.splitlines()
    assert lines[-2] == "verdict: pass"
    assert lines[-1].startswith("to repeat: unhang smoke --local --backend gloo")
    assert any("busbw  (GB/s)" in line for line in lines)


def test_a_port_in_use_is_reported_with_the_port_and_what_to_do():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = smoke("--nproc", 2, *SMALL, *PATIENT, "--phases", "all_reduce", "--port", port)
    assert done.code == 2
    assert done.suspects[0]["why"].startswith(f"port {port} is in use")
    assert "--port" in done.suspects[0]["next"]


@pytest.mark.parametrize(
    "python, message",
    [
        ("/usr/bin/python3", "torch is not installed in /usr/bin/python3"),
        ("/nowhere/python3", "/nowhere/python3: No such file or directory"),
    ],
)
def test_a_python_without_torch_or_none_at_all_is_reported_in_a_line(python, message):
    done = smoke("--nproc", 2, "--python", python)
    assert done.code == 2
    assert message in done.suspects[0]["why"]
    assert "--python" in done.suspects[0]["next"]


def test_an_interface_setting_that_names_nothing_is_reported_with_the_variable():
    done = smoke("--nproc", 2, "--env", "NCCL_SOCKET_IFNAME=nosuch0", "--phases", "all_reduce")
    assert done.code == 1
    assert {suspect["phase"] for suspect in done.suspects} == {"environment"}
    assert all(
        "NCCL_SOCKET_IFNAME=nosuch0" in suspect["why"] and "NCCL_SOCKET_IFNAME" in suspect["next"]
        for suspect in done.suspects
    )


def test_experiments_tell_what_cures_and_junit_names_the_failed_phase_and_the_rank(tmp_path):
    options = (
        "--phases",
        "all_reduce",
        "--drill",
        "1:exit:all_reduce",
        "--out",
        tmp_path / "result.json",
    )
    done = smoke("--nproc", 2, *SMALL, *PATIENT, *options, form="junit")
    rows = {
        row["name"]: row
        for row in json.loads((tmp_path / "result.json").read_text())["experiments"]
    }
    assert rows["the same again"]["cured"] is False
    assert rows["one rank alone"]["cured"] is True
    assert "no fix" in rows["one rank alone"]["note"]
    suite = ElementTree.fromstring(done.stdout)
    assert suite.get("failures") == "1"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["all_reduce"]
    assert "rank 1" in suite.find("testcase/failure").get("message")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--nproc", "0"), "--nproc takes a number above 0, not 0"),
        (("--phases", "al_reduce"), "not 'al_reduce'"),
        (("--drill", "1:stopp"), "--drill takes RANK:FAULT[:PHASE], or HOST, HOST+HOST or *NODES"),
        (("--hosts", "gpu[1-"), "is not a node set such as gpu[001-016]"),
        (("--hosts", "gpu*"), "takes host names or node sets"),
        (("--env", "NCCL_ALGO"), "takes NAME=VALUE, not 'NCCL_ALGO'"),
        (("--max-size", "lots"), "is not a size such as 64K"),
        (("--port", "70000"), "--port takes a port up to 65535"),
    ],
)
def test_wrong_use_is_reported_in_one_line(arguments, message):
    done = smoke(*arguments, local="--hosts" not in arguments)
    assert done.code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_machine_without_a_cpu_to_spare_accuses_nobody():
    """Many processes on each CPU, and steps that may take half a second."""
    count = 8 * (os.cpu_count() or 1)
    spinning = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        done = smoke(
            "--nproc", 4, "--step-timeout", 0.5, "--phases", "rendezvous,init,all_reduce,ddp"
        )
    finally:
        for one in spinning:
            one.kill()
            one.wait()
    assert done.result["verdict"] in ("pass", "error"), (done.suspects, done.result["evidence"])
    if done.result["verdict"] == "error":
        assert "tasks for" in done.result["not_proved"]
        assert done.result["experiments"] == []
    assert not any("hangs" in suspect["why"] for suspect in done.suspects)
