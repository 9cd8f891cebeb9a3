"""What to run next where a report tells only circumstances: a table chooses by where the job stands, its size, its launcher and its accelerators."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core import catalogue
from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.circumstances import CRASHED_BY, LAUNCHERS_TOLD, MAKERS, PHASES, TOLD_BY
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.next_commands import MOST_COMMANDS, rows_for

ROOT = Path(__file__).resolve().parents[5]
REPORTS = [row for name in ("second", "third") for row in load_yaml(ROOT / f"tests/fixtures/diagnose_reports/{name}.yml")[0]["reports"]]
DERIVED = {
    "nodes",
    "machine",
    "nvidia",
    "p2p-tried",
    "settings",
    "nccl-error",
    "nccl-internal",
    "nccl-log-given",
    "ended",
    "no-torch",
    "missing",
    "failed",
    "whole-traceback",
    "only-exits",
    "only-told",
    "cut-traceback",
    "slow",
    "hangs",
    "silent",
    "other-accelerator",
}
OF_SEVERAL_NODES = ("each other node", "over the nodes", "HOST1,HOST2", "on two,")
OF_NVIDIA = ("nvidia-smi", "NCCL_", "nvrm", "all_reduce_perf", "/proc/driver/nvidia")


def asked(text):
    return diagnose_text(text)["collect_next"]


def test_table_names_only_circumstances_that_are_derived_and_each_row_can_be_chosen():
    known = {*TOLD_BY, *CRASHED_BY, *PHASES, *LAUNCHERS_TOLD.values(), *MAKERS.values(), *DERIVED}
    rows = list(catalogue.table("next_steps").values())
    for place, row in enumerate(rows):
        assert {*row["when"], *row["unless"]} <= known, row["id"]
        told = set(row["when"])
        for before in rows[:place]:  # an earlier row that asks for the same must be ruled out by something that does not rule out this one
            if before["asks"] == row["asks"] and set(before["when"]) <= told and not set(before["unless"]) & told:
                told |= set(sorted(set(before["unless"]) - set(row["unless"]))[:1])
        assert row in rows_for(told), row["id"]


def test_circumstances_are_told_by_facts_that_signatures_have():
    facts = {signature.fact for signature in load_signatures()}
    assert {fact for names in TOLD_BY.values() for fact in names} <= facts


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("Two GPUs of one machine hang at the first step, GPUs at 100 %.", ("py-spy", "NCCL_P2P_DISABLE=1", "newest release", "NCCL_DEBUG=INFO")),
        ("Two nodes with 8 GPUs hang in init_process_group, one node works.", ("environ", "nc -vz", "all_reduce_perf", "py-spy")),
        ("The job hangs at the end of the first epoch on 4 GPUs.", ("py-spy", "number of its batches")),
        ("On 8 GPUs it hangs after 300 steps, GPUs at 100 %.", ("py-spy", "another seed", "dmesg", "newest release")),
        ("It hangs while downloading the model, GPUs at 0 %.", ("py-spy", "'*.lock'", "df -h")),
        ("Training on two machines is very slow. One machine is fast.", ("data loader", "all_reduce_perf", "nvidia-smi dmon")),
        ("GRPO with verl on 8 GPUs hangs in the rollout.", ("every trainer rank", "pip list", "enforce_eager", "NCCL_P2P_DISABLE=1")),
        (
            "vllm serve with tensor_parallel_size=2 hangs at the start on one machine.",
            ("--enforce-eager", "newest release", "py-spy", "NCCL_P2P_DISABLE=1"),
        ),
        ("horovodrun -np 2 on two nodes, CPU only, prints nothing and hangs.", ("hostname", "RANK", "nc -vz", "GLOO_SOCKET_IFNAME")),
        (
            "The same code on two servers: on A it works, on B it hangs at the first step.",
            ("on both machines", "py-spy", "NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES"),
        ),
        ("On 8 MI300X with ROCm the job hangs at the first step.", ("py-spy", "CUDA_VISIBLE_DEVICES", "iommu=pt", "newest release")),
        ("单机 8 张显卡，卡在第一步，显卡利用率都是 100%", ("py-spy", "NCCL_P2P_DISABLE=1", "newest release", "NCCL_DEBUG=INFO")),
        ("多机训练在初始化时卡住，单机正常运行", ("environ", "nc -vz", "all_reduce_perf", "py-spy")),
    ],
)
def test_commands_fit_where_the_job_stands(text, commands):
    shown = asked(text)
    assert len(shown) == len(commands) and all(any(command in one for one in shown) for command in commands), shown


def test_experiment_that_was_made_is_not_asked_for_again():
    told = "Two GPUs hang at the first step, GPUs at 100 %. NCCL_P2P_DISABLE=1 did not help."
    assert asked(told) and not any("NCCL_P2P_DISABLE" in one for one in asked(told))


@pytest.mark.parametrize("told", ["NCCL_P2P_DISABLE=1 did not help", "I tried NCCL_P2P_DISABLE=1, it does not work", "NCCL_IB_DISABLE=1 doesn't help"])
def test_attempt_that_did_not_help_is_no_proof_that_it_does(told):
    assert [one for one in diagnose_text(f"Two GPUs hang.\n{told}\n")["causes"] if one["severity"] != "info"] == []


@pytest.mark.parametrize("report", REPORTS, ids=lambda row: row["id"])
def test_no_report_gets_many_commands_or_those_of_another_size(report):
    found = diagnose_text(report["text"])
    assert len(found["collect_next"]) <= MOST_COMMANDS
    assert not (found["outcome"]["word"] in ("no_end", "failure") and not found["decided"] and not found["collect_next"])


@pytest.mark.parametrize("maker", ["8 MI300X with ROCm", "8 Ascend 910B with torch_npu", "CPU only, gloo backend, 4 processes"])
@pytest.mark.parametrize("where", ["hangs at the first step", "hangs after 300 steps", "hangs at the end of the epoch", "is very slow"])
def test_no_tool_of_nvidia_is_asked_for_where_there_is_none(maker, where):
    shown = " ".join(one.partition(": ")[0] for one in asked(f"The job on one machine, {maker}, {where}."))
    allowed = ("NCCL_P2P_DISABLE=1",) if "ROCm" in maker else ()  # RCCL reads it
    for one in allowed:
        shown = shown.replace(one, "")
    assert shown and not [word for word in OF_NVIDIA if word in shown]


def test_one_machine_gets_no_command_between_machines():
    for where in ("hangs at the first step", "hangs after 300 steps", "hangs in validation", "is very slow"):
        assert not [one for one in asked(f"8 GPUs of one machine, the job {where}.") for word in OF_SEVERAL_NODES if word in one]


def test_error_in_a_picture_is_asked_for_as_text_where_the_text_has_none():
    picture = "It said:\n![error](https://pictures.example/a.png)\nI ran horovodrun -np 4 -H localhost:4 python a.py\n"
    assert diagnose_text(picture)["collect_next"][0].startswith("the text of the picture")
    assert not any("picture" in one for one in diagnose_text(f"{picture}plugin: error: manifest unknown\n")["collect_next"])


@pytest.mark.parametrize(("share", "is_asked"), [("0.97", True), ("1.0", True), ("0.9", False), ("0.8", False)])
def test_server_that_takes_nearly_all_memory_is_tried_with_less(share, is_asked):
    found = diagnose_text(f"lmdeploy serve api_server /m --cache-max-entry-count {share} --tp 2\nIt hangs at the start for half an hour.\n")
    assert any("at 0.8" in one for one in found["collect_next"]) is is_asked


@pytest.mark.parametrize("model", ["# Wav2vec2 does not work with DDP", "FSDP hangs with encoder_layerdrop: 0.05"])
def test_models_that_leave_out_layers_are_tried_without(model):
    assert diagnose_text(f"{model}\ntorchrun --nproc_per_node=2 train.py\n")["collect_next"][0].startswith("the same with layer drop off")
    assert not any("layer drop" in one for one in diagnose_text("It hangs with dropout: 0.1\n")["collect_next"])


def test_what_worked_until_yesterday_was_changed():
    assert "release before" in diagnose_text("Until yesterday morning this worked fine, now it fails:\nplugin: error: none\n")["collect_next"][0]
