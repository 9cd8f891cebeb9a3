"""Logs of our own in the formats of the programs: the cause comes first, and a healthy log stays
without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis_scores import render_score, score_folder, summary
from job_diagnosis import diagnose
from read_again import fits

from unhang.core.redact import redacted
from unhang.jobs.diagnose.diagnosing import render_json
from unhang.jobs.diagnose.rendering import render_table

FIXTURES = Path(__file__).parents[1] / "fixtures" / "diagnose"
LOGS = sorted(FIXTURES.glob("*/*.log"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_cause_of_the_log_comes_first_or_nothing_is_found_in_a_healthy_one(log):
    answer = diagnose([str(log)])
    if log.parent.name == "healthy":
        assert [
            (one["cause"], one["severity"]) for one in answer["causes"] if one["severity"] != "info"
        ] == []
        assert not answer["found"]
    else:
        assert answer["causes"][0]["cause"] == log.parent.name
        assert answer["causes"][0]["severity"] != "info"
        assert any(one["line"] > 0 for one in answer["causes"][0]["evidence"])


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_document_keeps_its_schema_and_every_view_of_it_can_be_made(log):
    answer = diagnose([str(log)])
    fits(answer, "diagnosis-1")
    fits(redacted(answer), "diagnosis-1")
    assert render_table(answer) and render_json(answer)


def test_every_cause_with_a_folder_has_a_log():
    assert LOGS
    assert [
        folder.name
        for folder in FIXTURES.iterdir()
        if folder.is_dir() and not any(folder.glob("*.log"))
    ] == []


def test_kernel_warning_alone_stays_a_remark(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0; this can"
        " cause the process to hang.\n"
    )
    answer = diagnose([str(log)])
    assert not answer["found"] and [one["severity"] for one in answer["causes"]] == ["info"]


def test_kernel_warning_beside_a_fault_that_names_itself_stays_behind_it(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0; this can"
        " cause the process to hang.\n# reporter: the job hangs\n[1.0] NVRM: Xid (PCI:0000:3b:00):"
        " 79, pid=1, GPU has fallen off the bus.\n"
    )
    assert diagnose([str(log)])["causes"][0]["cause"] == "xid_hardware"


def test_log_that_cannot_decide_says_what_to_collect_next(tmp_path):
    lines = [
        f"[rank{rank}]:[E424 01:11:21.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught"
        " collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112,"
        " NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
        for rank in range(2)
    ]
    (tmp_path / "job.log").write_text("".join(lines))
    answer = diagnose([str(tmp_path / "job.log")])
    assert not answer["decided"] and answer["next"]["command"] == "unhang inspect"


def test_score_counts_hits_misses_and_false_alarms(tmp_path):
    for name, truth, negative, log in (
        ("a", "oom", False, OUT_OF_MEMORY),
        ("b", "shm_too_small", False, "nothing of interest\n"),
        ("c", "healthy", True, "step 1 | loss 2.0\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.txt").write_text(log)
        (tmp_path / name / "label.yaml").write_text(
            f"cause_class: {truth}\nnegative: {str(negative).lower()}\nanswerable_from_log: 'yes'\n"
        )
    numbers = summary(score_folder(tmp_path))
    assert numbers["answerable"]["top1"] == 1 and numbers["answerable"]["cases"] == 2
    assert numbers["healthy"] == {"cases": 1, "false_alarms": 0}
    assert numbers["confusion"] == [{"truth": "shm_too_small", "found": "nothing", "cases": 1}]
    assert "shm_too_small -> nothing: 1" in render_score(numbers)


def test_score_that_leaves_one_out_does_not_use_what_was_written_from_the_case_s_own_thread(
    tmp_path,
):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log.txt").write_text(
        "t1:9:9 [0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856\n"
    )
    (tmp_path / "a" / "label.yaml").write_text(
        "cause_class: nccl_bug\nurl: https://github.com/NVIDIA/nccl/issues/1637\n"
    )
    assert summary(score_folder(tmp_path))["answerable"]["top1"] == 1
    assert summary(score_folder(tmp_path, leave_one_out=True))["answerable"]["top1"] == 0


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total"
    " capacity of 79.10 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process"
    " has 77.80 GiB memory in use.\n"
)


def test_folder_of_batches_is_scored_as_their_cases_together(tmp_path):
    for batch, truth in (("1", "oom"), ("2", "disk_full")):
        (tmp_path / batch / "a").mkdir(parents=True)
        (tmp_path / batch / "a" / "log.txt").write_text(OUT_OF_MEMORY)
        (tmp_path / batch / "a" / "label.yaml").write_text(
            f"cause_class: {truth}\nanswerable_from_log: 'yes'\n"
        )
    cases = score_folder(tmp_path)
    assert [(one.name, one.top1) for one in cases] == [("1/a", True), ("2/a", False)]
    assert summary(cases)["answerable"]["top1"] == 1
