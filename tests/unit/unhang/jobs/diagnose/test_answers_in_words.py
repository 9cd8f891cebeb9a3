"""The words of an answer: nothing is reported twice, numbers agree with their nouns, and ranks are
named as ranks."""

from __future__ import annotations

import re

import pytest
from job_diagnosis import diagnose

from unhang.core.verdict.screen import path_shown
from unhang.jobs.diagnose.rendering import facts_in_words, render_table

PARTED = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
INSUFFICIENT = (
    "Warning  FailedScheduling  2m  default-scheduler  0/12 nodes are available: 12 Insufficient"
    " nvidia.com/gpu.\n"
)
ASSIGNED = (
    "Normal   Scheduled  1m  default-scheduler  Successfully assigned train/trainer-0 to gpu-a\n"
)


def watchdog(rank, numel=1, op="ALLREDUCE"):
    return (
        f"[rank{rank}]:[E1122 10:10:01.412 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum=31, OpType={op}, NumelIn={numel},"
        f" NumelOut={numel}, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
    )


@pytest.fixture
def answer(tmp_path):
    def answer(log, **files):
        """The diagnosis of a log and of other files by name; __ replaces a dot."""
        for name, text in {"job__log": log, **files}.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return diagnose([str(tmp_path / name.replace("__", ".")) for name in ("job__log", *files)])

    return answer


def one_line(text):
    return " ".join(text.split())


def test_reason_of_a_job_file_is_given_once_and_the_line_of_the_log_has_its_own(answer):
    shown = one_line(render_table(answer(watchdog(1), train__py=PARTED)))
    assert shown.count("only ranks with rank 0 reach this line") == 1
    assert "(the script explains this: a collective did not finish" in shown


def test_reason_of_several_lines_is_given_once(answer):
    differ = watchdog(0) + watchdog(1).replace("NumelIn=1,", "NumelIn=7,")
    cause = answer(differ)["causes"][0]
    reasons = [one["says"] for one in cause["evidence"] if one["line"]]
    assert len(reasons) == 2 and len(set(reasons)) == 1
    shown = one_line(render_table(answer(differ)))
    assert shown.count(f"({reasons[0]})") == 1 and " and: " in shown


TRUNCATED = (
    "vm:1518:1518 [0] bootstrap.cc:209 NCCL WARN Message truncated : received 12288 bytes instead"
    " of 1024\n"
)


@pytest.mark.parametrize(
    ("releases", "advised"),
    [
        ((), True),
        (("2.21.5",), True),
        (("2.26.2",), True),
        (("2.27.3",), False),
        (("2.28.9",), False),
        (("2.28.9", "2.19.3"), True),
    ],
    ids=["unknown", "older", "one with known faults", "the bound", "newer", "two"],
)
def test_a_lower_bound_that_the_job_meets_is_no_advice(answer, releases, advised):
    lines = "".join(f"vm:1518:1518 [0] NCCL INFO NCCL version {one}+cuda12.9\n" for one in releases)
    shown = answer(lines + TRUNCATED)
    (remedy,) = [one["remedy"] for one in shown["causes"] if one["cause"] == "nccl_bug"]
    assert (remedy.get("variables") == {"nccl": {"min": "2.27.3"}}) == ("role" in remedy) == advised
    assert remedy["person"].startswith("load one NCCL on all ranks")


def test_no_line_of_an_answer_is_wider_than_the_terminal(answer):
    shown = render_table(answer(TRUNCATED, **{"a" * 30 + "__log": watchdog(1)}), 50)
    assert [line for line in shown.splitlines() if len(line) > 50 and " " in line.strip()] == []


@pytest.mark.parametrize("means", ["a branch differs", "because of a branch the ranks differ"])
def test_the_reason_of_a_cause_has_one_because(answer, means):
    found = answer(TRUNCATED)
    found["causes"][0]["means"] = means
    assert re.findall(r"because:? .*", render_table(found)) == [
        f"{'' if 'because' in means else 'because: '}{means}"
    ]


def test_one_of_a_thing_is_no_plural(answer):
    shown = "\n".join(facts_in_words(answer(watchdog(3))["facts"]))
    assert "1 element," in shown and "on rank 3 [" in shown
    assert re.findall(r"\b1 [a-z]+s\b", shown) == []
    assert "2,048 elements" in "\n".join(facts_in_words(answer(watchdog(3, 2048))["facts"]))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (watchdog(1), "ranks: at least 2; timed out: rank 1"),
        (
            "using world size: 4\n" + watchdog(0) + watchdog(2),
            "ranks: 4; timed out: ranks 0, 2; not heard of: ranks 1, 3",
        ),
        (
            "using world size: 4\n"
            + watchdog(0)
            + watchdog(2)
            + watchdog(1)
            + "[rank3]: KeyError: 'labels'\n",
            "ranks: 4; timed out: ranks 0-2; with other lines: rank 3",
        ),
        (watchdog(0) + watchdog(1) + "using world size: 2\n", "ranks: 2; timed out: ranks 0-1"),
    ],
)
def test_ranks_are_named_by_what_the_log_has_of_them(answer, log, words):
    assert words in facts_in_words(answer(log)["facts"])


def test_the_first_error_has_its_time(answer):
    wrapped = (
        "2026-11-22T03:10:00.000000000Z RuntimeError: CUDA out of memory. Tried to allocate 2.00"
        " GiB. GPU 0 has a total capacity of 79.11 GiB\n" * 6
    )
    first = answer(wrapped)["facts"]["first_error"]
    assert first["time"] == "2026-11-22T03:10:00.000000000Z"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("job.log", "job.log"),
        ("/scratch/" + "a" * 71, "/scratch/" + "a" * 71),
        (
            "/lustre/" + "a" * 60 + "/runs/17/" + "b" * 40 + "/rank3.log",
            ".../runs/17/" + "b" * 40 + "/rank3.log",
        ),
        ("c" * 100, "..." + "c" * 80),
        ("/lustre/" + "d" * 100 + "\x1b/rank3.log", ".../rank3.log"),
        ("/lustre/" + "d" * 100 + "/\x1brank3.log", ".../\\x1brank3.log"),
        ("/lustre/" + "e" * 100 + "/", "..." + "e" * 79 + "/"),
    ],
)
def test_path_that_is_too_long_keeps_the_name_of_its_file(path, shown):
    assert path_shown(path) == shown


def test_pod_without_a_free_gpu_waits_for_the_scheduler_and_has_lost_nothing(answer):
    found = answer(INSUFFICIENT)
    assert [
        (one["cause"], one["severity"]) for one in found["causes"] if one["severity"] != "info"
    ] == [("no_free_gpu", "error")]
    assert "device plugin" in found["causes"][0]["remedy"]["person"]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (INSUFFICIENT + ASSIGNED, None),
        (ASSIGNED + INSUFFICIENT, "no_free_gpu"),
        (INSUFFICIENT.replace("default-", "pod/trainer-3  default-") + ASSIGNED, "no_free_gpu"),
        (INSUFFICIENT.replace("default-", "pod/trainer-0  default-") + ASSIGNED, None),
    ],
)
def test_pod_that_got_a_node_later_is_no_finding(answer, log, cause):
    assert (
        next((one["cause"] for one in answer(log)["causes"] if one["severity"] != "info"), None)
        == cause
    )


def test_option_that_the_answer_does_not_show_is_not_pointed_to(answer):
    shown = render_table(answer(watchdog(1), train__py=PARTED))
    assert "longer timeout" not in shown and "below" not in shown


@pytest.mark.parametrize(
    "line",
    [
        (
            "run.sh: Zeile 4:  9120 Speicherzugriffsfehler  (Speicherabzug geschrieben) python"
            " train.py"
        ),
        "bash: ligne 3 : torchrun : commande introuvable",
        "bash: 行 3: torchrun: 未找到命令",
    ],
)
def test_shell_of_another_language_reports_a_failure(answer, line):
    found = answer(f"{line}\n")["outcome"]
    assert (found["word"], found["line"]["text"]) == ("failure", line)


def test_lines_of_docker_compose_are_read_although_the_last_one_has_no_bar(answer):
    found = answer(
        "trainer-1  | bash: line 3: torchrun: command not found\ntrainer-1 exited with code 127\n"
    )
    assert [(one["line"], one["text"]) for one in found["causes"][0]["evidence"]] == [
        (1, "bash: line 3: torchrun: command not found")
    ]


def test_hint_to_a_variable_is_no_setting(answer):
    hint = (
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details),"
        " NCCL version 2.21.5\n"
    )
    assert answer(hint)["facts"]["settings"] == []
    assert [
        one["name"]
        for one in answer("run with NCCL_DEBUG=INFO torchrun train.py\n" + hint)["facts"][
            "settings"
        ]
    ] == ["NCCL_DEBUG"]


def test_process_that_was_killed_is_named_with_its_number(answer):
    killed = (
        "E1122 03:05:12.000 4021 torch/distributed/elastic/multiprocessing/api.py:869] failed"
        " (exitcode: -9) local_rank: 2 (pid: 4022) of binary: python3\n"
    )
    assert answer(killed)["causes"][0]["where"] == ["local rank 2", "pid 4022"]
    launched = "+ torchrun --nnodes=2 --node_rank=1 --nproc_per_node=4 train.py\n"
    assert answer(launched + killed)["causes"][0]["where"] == ["rank 6", "pid 4022"]
    report = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-22_03:12:40\n  host     "
        " : node-b.cluster\n  rank      : 13 (local_rank: 5)\n"
    )
    block = (
        f"{report}  exitcode  : -9 (pid: 9123)\n  error_file: <N/A>\n  traceback : Signal 9"
        " (SIGKILL) received by PID 9123\n"
    )
    assert answer(block)["causes"][0]["where"] == ["rank 13", "host node-b.cluster", "pid 9123"]


def test_document_has_the_last_line_of_each_log(answer):
    assert [
        (one["line"], one["text"])
        for one in answer("step 1 loss 2.0\nstep 2 loss 1.9\n\n")["facts"]["last"]
    ] == [(2, "step 2 loss 1.9")]


KUBECTL = "".join(
    f"[pod/train-worker-{number % 2}/pytorch] 2026-11-22T03:00:{number:02d}.000000000Z {line}\n"
    for number, line in enumerate(
        [
            *["step 1 | loss 2.0"] * 20,
            "[rank3]: KeyError: 'input_ids'",
            *(watchdog(rank).strip() for rank in (0, 1, 2, 4, 5, 6, 7)),
        ]
    )
)


def test_pod_and_time_of_the_wrapper_are_named_beside_the_rank(answer):
    found = answer(KUBECTL)
    assert found["causes"][0]["where"] == ["KeyError", "host train-worker-0", "rank 3"]
    assert found["facts"]["first_error"]["time"] == "2026-11-22T03:00:20.000000000Z"
    assert facts_in_words(found["facts"])[0].endswith("job.log:21]")


def test_exception_behind_a_frame_without_source_is_no_source(answer):
    found = answer(
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nRuntimeError:'
        " CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    assert found["facts"]["first_error"]["line"] == 3
    quoted = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise'
        ' RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")\n'
    )
    assert answer(quoted)["facts"]["first_error"] is None


def test_peer_of_an_adapter_is_named_with_its_host(answer):
    log = (
        "".join(
            f"gpu0{host}:{host}:{host} [0] NCCL INFO Bootstrap : Using ib0:10.1.0.{host}<0>\n"
            for host in (1, 2)
        )
        + "gpu02:2:2 [0] transport/net_ib.cc:2023 NCCL WARN NET/IB: Got completion from peer"
        " 10.1.0.1<44211> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_3\n"
    )
    where = answer(log)["causes"][0]["where"]
    assert "peer 10.1.0.1<44211> (gpu01)" in where and "host gpu02" in where


def test_line_with_which_a_log_without_an_end_stops_is_shown(answer):
    silent = answer("step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert silent["outcome"]["word"] == "no_end"
    assert "step 2 loss 1.9" in render_table(silent)
    assert "last line" not in render_table(answer(watchdog(1)))


def test_hints_are_not_shown(answer):
    found = answer(watchdog(0) + watchdog(1).replace("NumelIn=1,", "NumelIn=7,"))
    cause = found["causes"][0]
    remark = {**cause, "severity": "info", "title": "A remark"}
    shown = render_table({**found, "causes": [cause, remark]})
    assert cause["title"] in shown and "A remark" not in shown


def test_root_cause_of_torchrun_is_the_first_error_and_not_what_followed_from_it(answer):
    def block(rank, code):
        return (
            f"  time      : 2026-11-22_03:12:4{rank}\n  host      : node-b\n  rank      : {rank}"
            f" (local_rank: {rank})\n  exitcode  : {code} (pid: 912{rank})\n"
        )

    found = answer(
        f"Failures:\n[1]:\n{block(1, -6)}Root Cause (first observed failure):\n[0]:\n{block(5, -9)}"
    )
    assert found["facts"]["first_error"]["text"] == "exitcode  : -9 (pid: 9125)"


def test_line_of_the_killed_process_is_chosen_and_not_the_first_of_the_same_report(answer):
    found = answer(
        "[Sun Nov 22 02:59:10 2026] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL),"
        " order=0, oom_score_adj=0\n[Sun Nov 22 02:59:10 2026] Memory cgroup out of memory: Killed"
        " process 31337 (python3) total-vm:912kB, anon-rss:201kB, file-rss:12kB\n"
    )["causes"][0]
    assert found["evidence"][0]["line"] == 2 and "pid 31337" in found["where"]


def test_host_before_each_line_of_pdsh_is_named_for_a_port_that_is_down(answer):
    ports = "".join(
        f"gpu{host:02d}: {line}\n"
        for host in range(4)
        for line in (
            "CA 'mlx5_0'",
            "\tPort 1:",
            f"\t\tState: {'Down' if host == 2 else 'Active'}",
            "\t\tRate: 400",
        )
    )
    found = answer(ports)
    assert (found["causes"][0]["cause"], found["causes"][0]["where"]) == (
        "ib_misconfig",
        ["host gpu02", "adapter mlx5_0"],
    )
    assert [one for one in found["collect_next"] if one.startswith("ibstat")] == []


def test_address_that_several_hosts_have_names_none_of_them(answer):
    log = "".join(
        f"gpu0{host}:{host}:{host} [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
        for host in (1, 2, 3)
    )
    log += (
        "gpu03:2:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to"
        " 172.17.0.1<51893> failed : Connection refused\n"
    )
    assert [one for one in answer(log)["causes"][0]["where"] if "172.17.0.1 (" in one] == []


FAILED = (
    "".join(f"step {step} | loss 2.0 | lr 1.0e-04\n" for step in range(30))
    + "[rank3]: KeyError: 'input_ids'\n"
    + "".join(map(watchdog, range(3)))
)


def padded(text, width):
    """As a terminal's screen is copied: lines cut at its width, and filled with blanks up to it."""
    return "".join(
        line[at : at + width].ljust(width) + "\n"
        for line in text.splitlines()
        for at in range(0, len(line), width)
    )


def with_hosts_page(text, between):
    return "\n".join(
        f"2026-11-22T02:55:{number % 60:02d}.055Z{between}{line}"
        for number, line in enumerate(text.splitlines())
    )


@pytest.mark.parametrize(
    "log",
    [
        padded(FAILED, 117),
        FAILED.replace(" ", "\u00a0"),
        FAILED.replace("KeyError", "\u200bKeyError"),
        f"[pod/train-0/pytorch] {FAILED}".replace("\n", "\n[pod/train-0/pytorch] ").replace(
            " ", "\u00a0"
        ),
        with_hosts_page(FAILED, "\n"),
        "-- | --\n" + with_hosts_page(FAILED, " | "),
        "".join(f"[36m(RayWorkerWrapper pid=40)[0m {line}\n" for line in FAILED.splitlines()),
        "".join(
            f"slurm-55.out:{number}:{line}\n" for number, line in enumerate(FAILED.splitlines(), 1)
        ),
        "".join(f"{number:5d}\t{line}\n" for number, line in enumerate(FAILED.splitlines(), 1)),
        "\n".join(reversed(with_hosts_page(FAILED, " ").splitlines())) + "\n",
    ],
    ids=[
        "filled-screen",
        "no-break-spaces",
        "spaces-without-width",
        "pods",
        "times-on-their-own-lines",
        "table",
        "colours-cut",
        "grep",
        "numbered",
        "newest-first",
    ],
)
def test_form_in_which_a_log_was_copied_does_not_change_its_answer(answer, log):
    found = answer(log)
    assert (found["causes"][0]["cause"], found["causes"][0]["severity"]) == ("rank_failed", "error")
    assert "rank 3" in found["causes"][0]["where"] and found["facts"]["ranks"]["arrived"] == [
        0,
        1,
        2,
    ]
    assert "KeyError" in found["facts"]["first_error"]["text"]


def test_exception_is_named_with_the_innermost_frame_of_its_own_rank(answer):
    log = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/workspace/train.py", line 412, in main\n[rank3]:     step(batch)\n'
        '[rank3]:   File "/workspace/data.py", line 88, in collate\n[rank3]:     ids = batch["ids"]\n[rank3]:           ~~~~~^^^^^^^\n'
    )
    raised = "[rank3]: KeyError: 'ids'\n"
    found = answer(log + raised + watchdog(0) + watchdog(1))
    assert found["causes"][0]["where"][:2] == ["KeyError", "raised in /workspace/data.py:88"]
    assert found["causes"][0]["where"][2] == "rank 3"
    mixed = (
        log.replace('[rank3]:   File "/workspace/data.py"', '[rank2]:   File "/workspace/data.py"')
        + raised
        + watchdog(0)
        + watchdog(1)
    )
    assert "raised in /workspace/data.py:88" not in answer(mixed)["causes"][0]["where"]


RAY_KILLED = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
)
TORCH_IN_RAY = (
    "ray.exceptions.RayTaskError(OutOfMemoryError): ray::train()\ntorch.OutOfMemoryError: CUDA out"
    " of memory. Tried to allocate 2.00 GiB."
)


@pytest.mark.parametrize(
    ("log", "reason", "other"),
    [
        (RAY_KILLED, "the host had no memory left", "a GPU ran out of memory"),
        (TORCH_IN_RAY, "a GPU ran out of memory", "the host had no memory left"),
    ],
)
def test_memory_of_the_host_that_ray_watches_is_not_called_the_gpus(answer, log, reason, other):
    says = " ".join(row["says"] for row in answer(log)["causes"][0]["evidence"])
    assert reason in says
    assert other not in says


def test_gpu_whose_line_names_no_host_is_not_put_on_the_host_of_another_line(tmp_path):
    xid = (
        "[Sun Mar  2 03:30:12 2025] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>',"
        " name=<unknown>, GPU has fallen off the bus.\n"
    )
    job = (
        "gpu-a11:21010:21322 [0] NCCL INFO comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId"
        " 1b000 commId 0x8d - Init COMPLETE\n"
    )
    (tmp_path / "dmesg-a12.txt").write_text(xid)
    (tmp_path / "a11.out").write_text(job)
    [gpu, host] = diagnose([str(tmp_path)])["causes"][0]["where"]
    assert (
        "9b:00" in gpu
        and host.startswith("a host that the line does not name")
        and "dmesg-a12.txt" in host
    )
    (tmp_path / "a11.out").unlink()
    assert len(diagnose([str(tmp_path)])["causes"][0]["where"]) == 1


def test_rank_is_read_from_the_folders_of_torchrun(tmp_path):
    for rank in range(3):
        (tmp_path / f"none_ab/attempt_0/{rank}").mkdir(parents=True)
        text = (
            watchdog(rank).partition("]:")[2]
            if rank != 1
            else "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        )
        (tmp_path / f"none_ab/attempt_0/{rank}/stderr.log").write_text(text)
    found = diagnose([str(tmp_path)])
    assert found["causes"][0]["where"] == ["an illegal memory access was encountered", "rank 1"]
    assert "for: 1/stderr.log:1: RuntimeError" in render_table(found)
