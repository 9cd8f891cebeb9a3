"""The conclusions, without a false all-clear; the first failure is the cause and later ones are
echoes; advice names the hosts and devices of the log."""

from __future__ import annotations

import json

import pytest
from job_diagnosis import diagnose

from unhang import cli
from unhang.jobs.diagnose.rendering import render_table

WATCHDOG = (
    "[rank{0}]:[E105 10:3{1}:12.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=9, NumelOut=9,"
    " Timeout(ms)=600000) ran for 600079 milliseconds before timing out."
)
SEVEN = "\n".join(WATCHDOG.format(rank, 5) for rank in (0, 1, 2, 4, 5, 6, 7))
KEY_ERROR = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/job/train.py", line 10, in'
    " step\n[rank3]:     raise KeyError(name)\n[rank3]: KeyError: 'labels'"
)


def run(tmp_path, capsys, text, name="job.log"):
    """(exit code, document) of a log."""
    log = tmp_path / name
    log.write_text(text + "\n" if text else "")
    code = cli.main(["diagnose", "--format", "json", str(log)])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (KEY_ERROR, "KeyError: 'labels'"),
        (
            (
                "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -11)"
                " local_rank: 2 (pid: 311) of binary: /usr/bin/python3"
            ),
            "exitcode: -11",
        ),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "illegal memory access",
        ),
        (
            (
                "Root Cause (first observed failure):\n[0]:\n  host      : gpu007\n  rank      : 3"
                " (local_rank: 3)\n  exitcode  : 1 (pid: 99)"
            ),
            "Root Cause",
        ),
        ("step 5 | loss 2.0\nSegmentation fault (core dumped)", "Segmentation fault"),
        (
            (
                "step 5 | loss 2.0\n  Warning  BackOff    2m  kubelet  Back-off restarting failed"
                " container trainer in pod job-0"
            ),
            "BackOff",
        ),
        ("step 5 | loss 2.0\nFloating point exception (core dumped)", "Floating point exception"),
        ("RuntimeError: CUDA error: the launch timed out and was terminated", "launch timed out"),
        ("ValueError: Rank 3 is assigned to both stages", "Rank 3"),
        ("run.py: error: unrecognized arguments: --local-rank=3", "unrecognized arguments"),
    ],
)
def test_failure_of_the_program_is_reported_with_its_line_and_exit_code_3(
    tmp_path, capsys, text, line
):
    code, answer = run(tmp_path, capsys, text)
    assert (
        code == 3
        and answer["outcome"]["word"] == "failure"
        and line in answer["outcome"]["line"]["text"]
    )


def test_rank_that_torchrun_names_stands_in_the_answer(tmp_path, capsys):
    _code, answer = run(
        tmp_path,
        capsys,
        "Root Cause (first observed failure):\n  host      : gpu007\n  rank      : 3 (local_rank:"
        " 3)\n  exitcode  : 1 (pid: 9)",
    )
    assert "rank 3 on gpu007" in answer["outcome"]["why"]


@pytest.mark.parametrize(
    "text",
    [
        (
            "h:1:1 [0] proxy.cc:988 NCCL WARN [Proxy Service 3] Failed to execute operation Setup"
            " from rank 5, retcode 1"
        ),
        (
            "h:1:1 [0] register/register.cc:88 NCCL WARN rank 3 deregister NVLS buffer 0x7f10 dev 3"
            " ucsize 3 mcsize 3 failed"
        ),
    ],
)
def test_warning_of_nccl_that_no_row_knows_is_shown_as_what_went_wrong(tmp_path, capsys, text):
    code, answer = run(tmp_path, capsys, text)
    assert code == 3 and answer["outcome"]["line"]["text"] == text


@pytest.mark.parametrize(
    "text",
    [
        "step 1 | loss 3.0\nstep 2 | loss 2.9\nstep 3 | loss 2.8",
        "h:1:1 [0] NCCL INFO Bootstrap : Using eth0:198.51.100.4<0>",
    ],
)
def test_log_that_ends_without_a_word_is_not_called_healthy(tmp_path, capsys, text):
    code, answer = run(tmp_path, capsys, text)
    assert (
        code == 3
        and answer["outcome"]["word"] == "no_end"
        and answer["next"]["command"] == "unhang inspect"
    )


def test_an_empty_file_is_nothing_to_read(tmp_path, capsys):
    assert run(tmp_path, capsys, "") == (2, None)


@pytest.mark.parametrize(
    "text",
    [
        "step 3 | loss 2.8\n{'train_runtime': 812.2}",
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 390.1",
    ],
)
def test_end_of_a_healthy_job_is_seen(tmp_path, capsys, text):
    code, answer = run(tmp_path, capsys, text)
    assert code == 0 and answer["outcome"]["word"] == "healthy"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("step 3 | loss 2.8\nfinished, loss 2.8", "healthy"),
        (
            "step 3 | loss 2.8\nrank 0 of 2: finished, loss 2.8\nrank 1 of 2: finished, loss 2.9",
            "healthy",
        ),
        ("rank 1: step 3 | loss 2.8\nrank 0: finished, loss 2.8", "no_end"),
        (
            "finished, loss 2.8\n" + "\n".join(f"step {step} | loss 2.8" for step in range(20)),
            "no_end",
        ),
        ("step 3 | loss 2.8\nepoch 3 finished: 2.8", "no_end"),
    ],
    ids=["last-line", "all-ranks", "one-rank-of-two", "not-at-the-end", "an-epoch"],
)
def test_end_in_the_programs_own_words_counts_at_the_end_and_for_all_ranks_that_speak(
    tmp_path, capsys, text, word
):
    assert run(tmp_path, capsys, text)[1]["outcome"]["word"] == word


@pytest.mark.parametrize(
    "order", [(KEY_ERROR, SEVEN), (SEVEN, KEY_ERROR)], ids=["raised-above", "raised-below"]
)
def test_rank_that_raised_is_the_cause_and_the_watchdogs_are_echoes(tmp_path, capsys, order):
    # Without a stamp on the traceback its place in the file decides; the rank that wrote no
    # watchdog line is the one that raised.
    _code, answer = run(tmp_path, capsys, "\n".join(order))
    assert answer["causes"][0]["cause"] == "rank_failed"
    assert "rank 3" in answer["causes"][0]["where"] and "KeyError" in answer["causes"][0]["where"]
    assert "watchdog_timeout_too_short" not in [one["cause"] for one in answer["causes"]]


def test_watchdogs_own_exception_is_no_failure_that_came_first(tmp_path, capsys):
    thrown = (
        "[rank3]: terminate called after throwing an instance of 'std::runtime_error'\n[rank3]:  "
        " what():  [Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog"
        " caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1,"
        " NumelOut=1, Timeout(ms)=1800000) ran for 1800511 milliseconds before timing out.\n"
    )
    _code, answer = run(tmp_path, capsys, thrown)
    assert answer["causes"] and "rank_failed" not in [one["cause"] for one in answer["causes"]]


def test_segmentation_fault_of_one_rank_is_the_cause_of_the_time_outs_after_it(tmp_path, capsys):
    _code, answer = run(
        tmp_path, capsys, f"[rank3]: Fatal Python error: Segmentation fault\n{SEVEN}"
    )
    assert answer["causes"][0]["cause"] == "rank_failed"


def test_killed_rank_is_no_matter_of_the_time_limit(tmp_path, capsys):
    text = (
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank:"
        f" 3 (pid: 311) of binary: /usr/bin/python3\n{SEVEN}"
    )
    _code, answer = run(tmp_path, capsys, text)
    assert answer["causes"][0]["cause"] == "oom"


def test_host_that_is_gone_is_the_cause_of_what_the_others_report(tmp_path, capsys):
    _code, answer = run(tmp_path, capsys, f"srun: error: Node failure on gpu07\n{SEVEN}")
    assert (
        answer["causes"][0]["cause"] == "rank_failed"
        and "host gpu07" in answer["causes"][0]["where"]
    )


def test_index_file_that_a_rank_does_not_find_is_the_cause_of_the_others_time_outs(
    tmp_path, capsys
):
    text = (
        "[rank3]: FileNotFoundError: [Errno 2] No such file or directory:"
        f" '/data/cache/doc_idx.npy'\n{SEVEN}"
    )
    _code, answer = run(tmp_path, capsys, text)
    assert answer["causes"][0]["cause"] == "rank_failed"


def test_progress_that_still_moves_when_the_others_give_up_outlasts_the_limit(tmp_path, capsys):
    bars = [
        f" {percent}%|####      | {percent}00/10000 [{minutes}:00<20:00,  8.1it/s]"
        for percent, minutes in ((38, "09"), (41, "10"), (44, "11"))
    ]
    _code, answer = run(tmp_path, capsys, "\n".join([*bars[:2], SEVEN, bars[2]]))
    assert (
        answer["causes"][0]["cause"] == "watchdog_timeout_too_short"
        and answer["causes"][0]["severity"] == "warning"
    )


def test_first_error_is_never_a_line_of_source_code(tmp_path, capsys):
    text = (
        '  File "/venv/x.py", line 4, in f\n    with'
        " self.main_process_first(local=False):\nRuntimeError: CUDA error: uncorrectable ECC error"
        " encountered"
    )
    _code, answer = run(tmp_path, capsys, text)
    assert answer["facts"]["first_error"]["line"] == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            (
                "w0:7:9 [0] transport/net_ib.cc:2001 NCCL WARN NET/IB : Got completion from peer"
                " 198.51.100.8<41820> with status=12 opcode=129 len=0 vendor err 129 (Send)"
                " localGid fe80::1 remoteGids fe80::2 hca mlx5_3"
            ),
            ["peer 198.51.100.8<41820>", "adapter mlx5_3"],
        ),
        (
            (
                "[1.0] NVRM: GPU Board Serial Number: 1650522003820\n[1.1] NVRM: Xid"
                " (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
            ),
            ["GPU or device at PCI 0000:3b:00", "serial number 1650522003820"],
        ),
        (
            (
                "[ 7001.1] Out of memory: Killed process 4432 (python) total-vm:90000kB,"
                " anon-rss:80000kB, file-rss:0kB"
            ),
            ["process python", "pid 4432", "its memory 80000kB"],
        ),
    ],
)
def test_advice_names_what_the_log_names(tmp_path, capsys, text, named):
    _code, answer = run(tmp_path, capsys, text)
    assert set(named) <= set(answer["causes"][0]["where"])
    assert named[0] in render_table(diagnose([str(tmp_path / "job.log")]), 400)


def timed_out(seq, numel, ranks=(0, 1)):
    head = "[E ProcessGroupNCCL.cpp:616]"
    return "\n".join(
        f"[rank{rank}]:{head} [Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={numel}, NumelOut={numel},"
        f" Timeout(ms)=600000) ran for 60000{rank} milliseconds before timing out."
        for rank in ranks
    )


def test_large_collective_after_many_steps_is_no_matter_of_the_limit(tmp_path, capsys):
    _code, answer = run(tmp_path, capsys, f"step 900/2000 | loss 2.1\n{timed_out(4100, 98304)}")
    assert "watchdog_timeout_too_short" not in [one["cause"] for one in answer["causes"]]


def test_first_barrier_in_which_ranks_wait_is_a_matter_of_the_limit(tmp_path, capsys):
    _code, answer = run(tmp_path, capsys, timed_out(2, 1, ranks=(1, 2, 3)))
    assert answer["causes"][0]["cause"] == "watchdog_timeout_too_short"


def test_work_that_outlasts_the_limit_names_both_readings_and_is_no_error(tmp_path, capsys):
    _code, answer = run(
        tmp_path,
        capsys,
        "Map:  41%|####      | 812000/1980000 [09:41<14:02, 1386.10"
        f" examples/s]\n{timed_out(2, 1, ranks=(1,))}",
    )
    assert [one["cause"] for one in answer["causes"][:2]] == [
        "watchdog_timeout_too_short",
        "slow_rank_or_io",
    ]
    assert answer["causes"][0]["severity"] == "warning"


def test_part_of_a_program_that_failed_is_a_remark_until_a_line_says_what_failed(tmp_path, capsys):
    part = "w1:3:8 [2] NCCL INFO transport/net_ib.cc:512 -> 2"
    _code, alone = run(tmp_path, capsys, part)
    assert [(one["cause"], one["severity"]) for one in alone["causes"]] == [
        ("ib_misconfig", "info")
    ]
    _code, named = run(
        tmp_path,
        capsys,
        f"{part}\nw1:3:8 [2] misc/ibvwrap.cc:201 NCCL WARN Call to ibv_reg_mr failed with error Bad"
        " address",
    )
    assert [one["cause"] for one in named["causes"]] == ["gdr_peermem_missing"]


def test_failed_kernel_beside_a_kernel_log_that_names_the_hardware_is_no_fault_of_the_rank(
    tmp_path, capsys
):
    crash = "[rank5]: torch.AcceleratorError: CUDA error: unspecified launch failure"
    xid = (
        "[ 9123.1] NVRM: Xid (PCI:0000:ab:00): 94, pid=991, name=python, Contained: SM (0x1). RST:"
        " No, D-RST: No"
    )
    _code, answer = run(tmp_path, capsys, f"{crash}\n{xid}\n{timed_out(311, 812345, ranks=(0,))}")
    assert answer["causes"][0]["cause"] == "xid_hardware"
    _code, alone = run(tmp_path, capsys, f"{crash}\n{timed_out(311, 812345, ranks=(0,))}")
    assert alone["causes"][0]["cause"] == "rank_failed"


def test_stacks_in_different_collectives_of_a_hung_job_are_ranks_that_differ(tmp_path, capsys):
    stacks = [
        f"rank {rank}:\n    {call} (torch/distributed/distributed_c10d.py:3170)\n"
        for rank, call in enumerate(("_all_gather_base", "all_reduce", "all_gather"))
    ]
    _code, hung = run(tmp_path, capsys, f"{stacks[0]}{stacks[1]}{WATCHDOG.format(0, 5)}")
    assert hung["causes"][0]["cause"] == "rank_desync_app"
    _code, alike = run(tmp_path, capsys, f"{stacks[0]}{stacks[2]}{WATCHDOG.format(0, 5)}")
    assert "rank_desync_app" not in [one["cause"] for one in alike["causes"][:1]]
