"""Reports whose log cannot decide ask for what decides them, and for nothing that leads elsewhere; what a report shows by itself has a remedy of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.rendering import render_table

FOLDER = Path(__file__).resolve().parents[5] / "tests/fixtures/diagnose_reports"
REPORTS = {row["id"]: row for name in ("ninth", "tenth", "eleventh", "twelfth") for row in load_yaml(FOLDER / f"{name}.yml")[0]["reports"]}
# report -> (what has to be among the next commands or what their outcome tells, what must not)
ASKED = {
    "accelerate-2107": ("172.17.0.2", "iostat"),
    "anemoi-core-1330": ("TORCH_LOGS=recompiles", "nc -vz"),
    "awsome-distributed-ai-312": ("kubectl describe pod", "ibstat"),
    "cosyvoice-627": ("number of its batches", "NCCL_P2P"),
    "detectron2-3319": ("NCCL_P2P_DISABLE=1", "MASTER_PORT"),
    "guided-diffusion-108": ("NCCL_P2P_DISABLE=1", "iostat"),
    "megatron-lm-fl-138": ("without device_id=", "nc -vz"),
    "mmselfsup-6": ("release notes of PyTorch and NCCL", "iostat"),
    "nccl-447": ("all_reduce_perf", ".lock"),
    "nccl-tests-229": ("-H HOST1,HOST2", "ibstat"),
    "nemo-6715": ("ls -l of that file on every node", "cache"),
    "online-rlhf-11": ("ss -tlnp | grep MASTER_PORT", "the step at which each stands"),
    "open-llama-47": ("of the ranks that did not come", "scontrol"),
    "openrlhf-292": ("ray job list", "dmesg"),
    "pytorch-132950": ("--rdzv-backend=c10d", "data on that rank"),
    "star-2": ("number of its batches", "NCCL_P2P"),
    "verl-6365": ("name, shape and dtype", "--enforce-eager"),
    "vllm-1566": ("ray list placement-groups", "NCCL_P2P"),
    "wenet-812": ("the backend that the process group gets", "nc -vz"),
}
# report -> (what the remedy of its first cause says, what it must not say)
REMEDIES = {
    "accelerate-3709": ("outside of main_process_first", "timeout"),
    "kubedl-180": ("minAvailable", "Slurm"),
    "direct-preference-optimization-85": ("synced_gpus=True", "pad shards"),
    "lightning-5961": ("ddp_notebook", "Slurm"),
    "llamafactory-1998": ("set_z3_leaf_modules", "pad shards"),
    "llamafactory-6015": ("NODE_RANK instead of RANK", "Slurm"),
    "llamafactory-3715": ("MASTER_ADDR=127.0.0.1", "firewall"),
    "qwen-vl-179": ("dummy image", "pad shards"),
    "fairseq-708": ("smaller batch", "processes that nvidia-smi"),
}
SHAPE = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.91 GiB total capacity; {own} GiB already allocated; 0.29 GiB free; {last})\n"


@pytest.mark.parametrize("name", sorted(ASKED))
def test_what_decides_is_asked_for(answer, name):
    asked = " ".join(answer(REPORTS[name]["text"])["collect_next"])
    wanted, elsewhere = ASKED[name]
    assert wanted in asked
    assert elsewhere not in asked


@pytest.mark.parametrize("name", sorted(REMEDIES))
def test_remedy_is_that_of_what_the_report_shows(answer, name):
    first = answer(REPORTS[name]["text"])["causes"][0]
    wanted, elsewhere = REMEDIES[name]
    assert first["severity"] != "info" and wanted in first["remedy"]["person"]
    assert elsewhere not in first["remedy"]["person"]


def test_old_releases_of_pytorch_call_cached_what_is_not_allocated(answer):
    """9.3 GiB allocated and 0.8 cached are 10.1 of this process; the same numbers as "reserved in total" would leave 8 GiB to others."""
    assert answer(SHAPE.format(own="9.33", last="0.80 GiB cached"))["causes"][0]["cause"] == "oom"
    assert answer(SHAPE.format(own="0.33", last="0.80 GiB reserved in total by PyTorch"))["causes"][0]["cause"] == "orphan_processes_hold_gpu"


def test_ranks_that_had_met_once_are_not_missed_by_the_launcher(answer):
    waits = (
        "Waiting in store based barrier to initialize process group for rank: 2, key: store_based_barrier_key:{} "
        "(world_size=8, worker_count=7, timeout=0:30:00)\n"
    )
    first, second = ([cause["cause"] for cause in answer(waits.format(group))["causes"]] for group in (1, 2))
    assert "launch_mismatch" in first
    assert "launch_mismatch" not in second and second[:1] == ["slow_rank_or_io"]


def test_what_only_people_tell_is_possible_and_comes_with_what_decides(answer):
    told = answer(REPORTS["pytorch-130414"]["text"])
    assert (told["causes"][0]["certainty"], told["decided"]) == ("possible", False) and told["collect_next"]


def test_a_line_of_information_is_no_first_error(answer):
    text = answer(REPORTS["open-llama-47"]["text"])
    assert "first error" not in render_table(text)


def test_a_timeout_on_several_lines_after_the_last_step_is_no_healthy_end(answer):
    assert answer(REPORTS["autocast-381"]["text"])["outcome"]["word"] == "failure"


def test_what_is_said_not_to_be_is_no_circumstance(answer):
    told = answer('trainer.fit() is stuck with accelerator="ddp", started from the command line, not from a notebook.\n')
    assert not any("notebook" in line["says"] for cause in told["causes"] for line in cause["for"])


def test_a_call_of_one_rank_in_the_code_of_a_report_is_its_cause(answer):
    first = answer(REPORTS["accelerate-2000"]["text"])["causes"][0]
    assert (first["cause"], first["severity"]) == ("rank_desync_app", "warning")
