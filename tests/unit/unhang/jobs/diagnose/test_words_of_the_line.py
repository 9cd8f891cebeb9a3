"""An answer fits the line that it is given for: its title, check and remedy are those of what the line shows, not of its cause in general."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.fitting_remedies import first_cuda, own_words

EFA = "ncclInternalError: Internal check failed. | NET/OFI Unable to insert remote address into address vector for device 1"
REFUSED = (
    "(gcs_server) gcs_health_check_manager.cc:203: Health check failed for node 3, status 14, status message failed to connect to all addresses; last error: "
    "UNKNOWN: ipv4:xx.xx.xx.xx:39926: Failed to connect to remote host: Connection refused, status details"
)
CASES = {  # line -> (words of the answer, words of the cause that do not fit the line)
    EFA: ("security group", "subnet manager"),
    "RuntimeError: CUDA error: invalid device ordinal": ("no more processes", "init_process_group"),
    "RuntimeError: CUDA error: peer mapping resources exhausted": ("at most eight", "consumer cards"),
    REFUSED: (
        "whether the process at that address runs",
        "ip_local_port_range",
    ),
}


def shown(found):
    first = found["causes"][0]
    return " ".join([first["title"], first["means"], *first["collect"][:1], first["remedy"]["person"]])


@pytest.mark.parametrize(("line", "words"), CASES.items(), ids=range(len(CASES)))
def test_answer_has_the_words_of_the_line(line, words):
    wanted, unfit = words
    answer = shown(diagnose_text(f"{line}\n"))
    assert wanted in answer
    assert unfit not in answer


def test_words_are_those_of_the_strongest_evidence_and_of_its_own_cause():
    known = Evidence("unsupported_p2p_geforce", 1.0, "", (), "cuda-too-many-peers")
    assert own_words("unsupported_p2p_geforce", [known])["id"] == "cuda-too-many-peers"
    assert own_words("unsupported_p2p_geforce", [known, Evidence("unsupported_p2p_geforce", 2.0, "", (), "stronger-without-words")]) == {}
    assert own_words("acs_iommu", [known]) == {}


def test_role_stays_where_the_words_keep_it_and_goes_where_the_line_shows_something_else():
    kept = diagnose_text("# reporter: since the driver update to 545.23.08 two GPUs hang, with 535 it works\nDriver Version: 545.23.08\n")
    remedy = next(one["remedy"] for one in kept["causes"] if one["cause"] == "driver_p2p_bug")
    assert remedy["role"] == "gpu_driver" and remedy["variables"]["driver"]["version"] == "535.154.05"
    assert "role" not in diagnose_text("RuntimeError: CUDA error: peer mapping resources exhausted\n")["causes"][0]["remedy"]


def test_line_that_speaks_for_several_causes_leaves_each_its_own_words():
    """Situation 2 as people tell it: the driver comes first, with its own title and the release that cured it."""
    found = diagnose_text("2x RTX 3090, training stuck at 100% GPU since driver 545.23.08. Downgrading to 535 makes it work. NCCL_P2P_DISABLE=1 also works.\n")
    first = found["causes"][0]
    assert first["title"] == "Peer-to-peer between GPUs does not work with this driver"
    assert first["remedy"]["variables"]["driver"]["version"] == "535.154.05"
    assert len({one["title"] for one in found["causes"]}) == len(found["causes"])


def test_memory_that_runs_out_where_all_processes_are_is_no_cause_beside_that():
    """Situation 5 as people tell it."""
    found = diagnose_text("All my 8 processes run on GPU 0, nvidia-smi shows 8 python processes on GPU 0, and then CUDA out of memory.\n")
    assert [one["cause"] for one in found["causes"] if one["severity"] != "info"] == ["rank_device_mapping"]
    assert found["causes"][0]["title"] == "Several ranks use the same GPU"
    assert diagnose_text("CUDA out of memory on my one GPU.\n")["causes"][0]["cause"] == "oom"


@pytest.mark.parametrize(
    ("gpu", "cuda", "is_older"),
    [
        ("gpu rtx 3090", "cuda 10.2", True),
        ("gpu rtx 3090", "cuda 11.3", False),
        ("RTX 5090", "torch 2.5.1+cu121", True),
        ("RTX 4090", "torch 2.0.1+cu117", False),
        ("RTX 3090", "torch 2.1.0+cu118, cuda toolkit 10.2", False),
    ],
)
def test_build_that_is_older_than_the_gpu_is_a_cause_where_a_cuda_call_failed(gpu, cuda, is_older):
    failed = "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:47, unhandled cuda error, NCCL version 2.10.3\n"
    causes = [one["cause"] for one in diagnose_text(f"{failed}my {cuda}, {gpu}\n")["causes"] if one["severity"] != "info"]
    assert ("gpu_not_in_build" in causes) == is_older
    assert not diagnose_text(f"my {cuda}, {gpu}\n")["found"]


def test_builds_run_on_gpus_with_the_same_first_number_of_the_compute_capability():
    assert first_cuda("NVIDIA GeForce RTX 4090") == first_cuda("A100") == "11.0" and first_cuda("an unknown card") is None


def test_memory_that_runs_out_within_torch_load_is_that_of_the_checkpoint():
    frame = '  File "/v/torch/serialization.py", line 99, in _cuda_deserialize\n    return storage_type(obj.size())\n'
    failed = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity)\n"
    assert "map_location" in shown(diagnose_text(f"Traceback (most recent call last):\n{frame}{failed}"))
    assert "map_location" not in shown(diagnose_text(failed))


def asked(text):
    return " ".join(diagnose_text(text)["collect_next"])


def test_peer_to_peer_is_not_switched_off_where_no_channel_uses_it():
    log = "h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via {}\nh:1:1 [0] NCCL INFO Connected all rings\nProcessed prompts: 0%| | 0/16\nIt hangs here.\n"
    assert "NCCL_P2P_DISABLE" not in asked(log.format("SHM/direct/direct"))
    assert "NCCL_P2P_DISABLE" in asked("It hangs with two GPUs at the first step.\n")


def test_job_on_tpus_is_not_asked_for_paths_between_gpus():
    text = "JAX stalls on TPU Pods when jax.device_count() is called.\nimport jax\n"
    assert "NCCL_P2P_DISABLE" not in asked(text) and "NCCL_P2P_DISABLE" in asked(text.replace("TPU Pods", "two GPUs"))


def test_failure_on_amd_gpus_is_looked_for_in_the_log_of_their_driver():
    text = "RCCL version 2.17.1+hip5.7\nRuntimeError: invalid device pointer\n"
    assert "amdgpu" in asked(text) and "NVRM" not in asked(text)


@pytest.mark.parametrize("program", ["rccl-perf alltoallv", "llama-server with RPC", "osu_latency"])
def test_compiled_program_is_asked_for_its_own_stacks_and_releases(program):
    found = asked(f"{program} hangs with 4 GPUs, and nothing is printed.\n")
    assert "gdb -p PID" in found and "release of the program" in found and "py-spy" not in found and "losses" not in found


@pytest.mark.parametrize(
    "heading", ["# Perf test failing with NCCL error", "Failed to start the engine on two GPUs", "The server doesn't run, multiprocessing errors"]
)
def test_heading_that_names_a_failure_makes_it_one(heading):
    found = diagnose_text(f"{heading}\n\nI start it with python3 serve.py --tp 2.\n")
    assert found["outcome"]["word"] == "failure" and "py-spy" not in " ".join(found["collect_next"])


@pytest.mark.parametrize("heading", ["Training hangs after an NCCL error", "Does it fail with two GPUs?", "It never fails", "No errors, but slow"])
def test_heading_of_a_hang_or_a_question_makes_no_failure(heading):
    assert diagnose_text(f"{heading}\n\nI start it with python3 serve.py --tp 2.\n")["outcome"]["word"] != "failure"


def test_output_that_was_expected_is_no_evidence():
    log = "```\ncn41:1:1 [5] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n```\n"
    assert diagnose_text(f"The job fails.\n\nExpected output:\n\n{log}")["facts"]["transports"] == []
    assert diagnose_text(f"The job fails.\n\nExpected output:\n\n{log.removesuffix('```' + chr(10))}")["facts"]["transports"]  # never closed
    assert diagnose_text(f"The job fails.\n\nActual output:\n\n{log}")["facts"]["transports"]


def test_last_traceback_that_is_cut_is_no_nameless_failure_where_one_before_it_is_whole():
    cut = 'Traceback (most recent call last):\n  File "train.py", line 174, in <module>\n    main()\n'
    found = diagnose_text(f"{cut}RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:388, invalid argument\n{cut}")
    assert "not in the log" not in found["outcome"]["why"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing it.", "leaves no GPU memory"),
        (
            "ValueError: at least one request needs 10.00 GiB KV cache is needed, which is larger than the available KV cache memory (6.11 GiB).",
            "smaller than one",
        ),
    ],
)
def test_cache_that_is_too_small_is_not_a_cache_without_memory(line, title):
    assert title in diagnose_text(line)["causes"][0]["title"]
