"""What misled readers of forty reports: a told fault beside a healthy table, an effect taken for
the cause, claims that lines contradict."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.rendering import render_table

WATCHDOG = (
    "[2026-06-03 09:46:19 TP{}] Scheduler watchdog timeout (self.watchdog_timeout=300,"
    " self.soft=False)\n"
)
QUIT = (
    "[2026-06-03 09:46:24] SIGQUIT received. signum=None, frame=None. It usually means one child"
    " failed.\n"
)
ENDED = "srun: error: n1: task 0: Exited with exit code 1\n"
PULL = (
    "slurmstepd: error: pyxis:     [ERROR] URL"
    " https://registry-1.docker.io/v2/team/image/manifests/latest returned error code: 401"
    " Unauthorized\n"
)


def loud(found):
    return [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]


def remedy_of(found):
    return found["causes"][0]["remedy"]["person"]


def test_no_error_is_not_said_of_a_hang_that_a_program_reports(answer):
    found = answer("[TRT-LLM] [RANK 0] [E] Hang detected after 300 seconds.\n")
    assert found["outcome"]["word"] == "no_end" and "first error: [TRT-LLM]" in render_table(found)


@pytest.mark.parametrize("before", [WATCHDOG.format(0), QUIT])
def test_process_that_a_server_killed_itself_ran_out_of_no_memory(answer, before):
    assert "oom" not in [cause["cause"] for cause in answer(f"{before}Killed\n")["causes"]]
    assert "oom" in [cause["cause"] for cause in answer(f"Killed\n{before}")["causes"]]


def test_image_that_was_refused_comes_before_the_exit_of_its_task(answer):
    found = answer(f"{PULL}slurmstepd: error: pyxis: couldn't start container\n{ENDED}")
    assert (
        "registry refused" in found["outcome"]["why"]
        and "the same pull by hand" in found["collect_next"][0]
    )
    assert not any("--log-dir" in one or "srun --mpi" in one for one in found["collect_next"])


def test_output_of_a_process_is_not_missed_where_an_earlier_line_reports_an_error(answer):
    assert "its own output is not in the log" in answer(ENDED)["outcome"]["why"]
    found = answer(f"mytool: error: cannot read the list of hosts\n{ENDED}")
    assert "own output" not in found["outcome"]["why"] and found["outcome"]["line"]["line"] == 1


OUT = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB. GPU {gpu}"
    " has a total capacity of 79.15 GiB of which 141.25 MiB is free. Process 2109115 has {held} GiB"
    " memory in use. {more}Of the allocated memory {own} GiB is allocated by PyTorch{rest}\n"
)


@pytest.mark.parametrize(
    ("numbers", "first"),
    [
        (
            {
                "held": 78.99,
                "own": 77.21,
                "rest": ", and 283.51 MiB is reserved by PyTorch but unallocated.",
            },
            "oom",
        ),
        (
            {
                "held": 78.99,
                "own": 70.21,
                "rest": (
                    ", with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), and 6.61 GiB"
                    " is reserved by PyTorch"
                ),
            },
            "oom",
        ),
        ({"held": 78.99, "own": 1.21, "rest": ""}, "orphan_processes_hold_gpu"),
        (
            {
                "held": 39.4,
                "more": "Process 2109116 has 39.5 GiB memory in use. ",
                "own": 37.9,
                "rest": "",
            },
            "rank_device_mapping",
        ),
    ],
)
@pytest.mark.parametrize("gpu", ["", "3"])
def test_processes_named_by_a_full_gpu_are_compared_with_what_this_one_allocated(
    answer, gpu, numbers, first
):
    """In a container a process does not know its own number on the host, so PyTorch names it as if
    it were another one."""
    found = answer(OUT.format(**{"gpu": gpu, "more": "", **numbers}))
    assert loud(found)[:1] == [first]
    assert first != "oom" or loud(found) == ["oom"]


def test_no_line_speaks_for_a_cause_and_against_it(answer):
    found = answer(OUT.format(gpu=0, held=78.99, more="", own=1.21, rest=""))
    for cause in found["causes"]:
        assert not {one["line"] for one in cause["evidence"]} & {
            one["line"] for one in cause["against"]
        }


CLOSED = (
    "n1:70918:70927 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote"
    " peer {}<56086>\nn1:70918:70927 [0] NCCL INFO misc/socket.cc:752 -> 6\n"
)
BOOTSTRAP = "n1:{0}:{0} [0] NCCL INFO Bootstrap : Using {1}<0>\n"


def test_setting_of_a_second_run_is_an_experiment_and_not_the_cause(answer):
    lo = BOOTSTRAP.format(70918, "lo:127.0.0.1") + CLOSED.format("n2")
    assert "wrong_interface" in loud(answer(f"it hangs\n{lo}"))
    assert "wrong_interface" not in loud(
        answer(
            f"it hangs\n{BOOTSTRAP.format(69438, 'enp3s0f0:10.50.56.33')}with lo it hangs too\n{lo}"
        )
    )


def test_machine_that_loses_connections_to_itself_is_asked_what_intercepts_them(answer):
    found = answer(
        "the test hangs, with -g 1"
        f" too\n{BOOTSTRAP.format(70918, 'lo:127.0.0.1')}{CLOSED.format('localhost')}"
    )
    assert (
        not loud(found)
        and "nc -v 127.0.0.1" in found["collect_next"][0]
        and "security agent" in found["collect_next"][0]
    )


def test_collective_of_gloo_that_ran_out_asks_when_each_rank_came(answer):
    found = answer(
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out"
        " waiting 1800000ms for recv operation to complete\n"
    )
    assert (
        "limit 1800 s" in found["outcome"]["why"]
        and "the time before that call" in found["collect_next"][0]
    )


MEMBER = "initializing ddp: GLOBAL_RANK: {}, MEMBER: {}/4\n"
NO_GDR = (
    "w0:214:402 [3] nccl_ofi_gin_init:71 NCCL WARN NET/OFI Failed to initialize GDRCopy: Failed to"
    " open gdr handle\n"
)
NO_DEVICE = (
    "INTERNAL: Failed call to cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal\n"
)
FORKED = (
    "As a result, the libfabric EFA provider is operating in\na condition that could result in"
    " memory corruption or\n"
)


@pytest.mark.parametrize(
    ("ranks", "title"),
    [
        ((1, 1, 0, 0), "Each node counts its ranks from 0"),
        ((0, 1), "The launcher starts other ranks"),
    ],
)
def test_ranks_that_start_twice_are_not_missed(answer, ranks, title):
    first = answer(
        "Training hangs on two nodes\n" + "".join(MEMBER.format(rank, rank + 1) for rank in ranks)
    )["causes"][0]
    assert first["cause"] == "launch_mismatch" and first["title"].startswith(title)
    assert any("print nothing" in one["says"] for one in first["evidence"]) is (len(ranks) == 2)


def test_device_of_gdrcopy_is_asked_for_and_no_plugin_that_was_loaded(answer):
    found = answer(
        f"RuntimeError: NCCL GIN is unavailable\n{NO_GDR}w0:214:402 [3] NCCL INFO Using network"
        " Libfabric\n"
    )
    assert not loud(found) and "/dev/gdrdrv" in found["next"]["command"]


def test_plugin_that_failed_before_the_network_was_taken_did_no_harm(answer):
    failed = "w0:1:1 [0] NCCL WARN NET/OFI Failed to initialize CUDA\n"
    assert "net_plugin_not_loaded" in loud(answer(failed))
    assert "net_plugin_not_loaded" not in loud(
        answer(f"{failed}w0:1:1 [0] NCCL INFO Using network AWS Libfabric\n")
    )


@pytest.mark.parametrize(
    ("program", "words", "others"),
    [
        (
            "XlaRuntimeError: INTERNAL: no supported devices found for platform CUDA\n",
            "local_device_ids",
            ("hvd.", "torchrun"),
        ),
        (
            (
                "E0129 03:12:52.118000 118 torch/distributed/elastic/multiprocessing/api.py:874]"
                " failed (exitcode: 1) local_rank: 0 (pid: 185)\n"
            ),
            "LOCAL_RANK",
            ("hvd.", "local_device_ids"),
        ),
    ],
)
def test_title_and_remedy_are_those_of_the_line_and_the_framework(answer, program, words, others):
    found = answer(NO_DEVICE + program)
    assert found["causes"][0][
        "title"
    ] == "A GPU number is asked for that the process cannot see" and words in remedy_of(found)
    assert not [
        word for word in others if word in remedy_of(found)
    ] and "container_gpu_access" not in loud(found)


def test_one_gpu_for_each_process_is_no_shared_gpu(answer):
    assert not answer(
        "I run a small multi-process JAX job, two processes on one node, one GPU for each, and it"
        " hangs.\n"
    )["causes"]


def test_message_with_its_own_remedy_has_that_remedy(answer):
    found = answer(FORKED)
    assert remedy_of(found).startswith("export FI_EFA_FORK_SAFE=1") and not found["collect_next"]
    assert (
        "switches off" not in found["causes"][0]["title"]
        and "still set" not in found["causes"][0]["means"]
    )


def test_exception_of_the_program_gets_no_remark_about_collectives(answer):
    found = answer(
        "It dies at the first validation, training itself runs.\nFileNotFoundError: [Errno 2] No"
        " such file or directory: 'work/part_2.pkl'\n"
    )
    assert found["outcome"]["word"] == "failure" and not found["causes"]


def test_tasks_that_srun_starts_are_counted_by_what_it_starts(answer):
    found = answer("srun: error: Asked for 8 tasks but placed 4\n")
    person = next(
        one["remedy"]["person"] for one in found["causes"] if one["cause"] == "launch_mismatch"
    )
    assert "--ntasks-per-node" in person and "srun starts the program itself" in person


def test_last_lines_of_a_report_with_a_script_in_it_are_kept(answer):
    script = "job.sh\n#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n\n"
    found = answer(f"With two nodes it hangs:\n{script}{MEMBER.format(0, 1)}{MEMBER.format(1, 2)}")
    assert found["facts"]["last"][0]["text"].startswith("initializing ddp")
