"""What commands print is read: each output alone leads to its cause, a sound one to none, and each
cause has a command whose output is tried here."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.matching.signatures import load_causes

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_outputs"
ROWS = [row for path in sorted(FOLDER.glob("*.yml")) for row in load_yaml(path)[0]]
# Whose commands are other logs, experiments, or what only a person can tell.
WITHOUT_OUTPUT = {
    "foreign_connections", "nccl_bug", "watchdog_timeout_too_short", "env_var_misconfig",
    "stale_store", "shm_leftovers",
    "cuda_driver_too_old", "driver_p2p_bug", "rank_device_mapping",
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_output_of_a_command_leads_to_its_cause_or_to_none(tmp_path, row):
    log = tmp_path / "output.txt"
    log.write_text(row["text"], encoding="utf-8")
    found = diagnose([str(log)])
    causes = found["causes"]
    assert row.get("outcome", "") in found["outcome"]["why"]
    assert "where" not in row or causes[0]["where"] == row["where"]
    if row["cause"] is None:
        assert [
            (one["cause"], one["severity"]) for one in causes if one["severity"] != "info"
        ] == []
    else:
        assert causes[0]["cause"] == row["cause"] and (causes[0]["severity"] == "info") == bool(
            row.get("info")
        )
        assert any(line["line"] > 0 for line in causes[0]["evidence"])


def test_each_cause_has_an_output_that_leads_to_it():
    assert set(load_causes()) - {row["cause"] for row in ROWS} == WITHOUT_OUTPUT


@pytest.mark.parametrize("lines", [500, 6400])
@pytest.mark.parametrize("gpu", [0, 7])
def test_each_gpu_of_a_whole_machine_is_looked_at(tmp_path, gpu, lines):
    """Eight GPUs are more than the start of a file that tells what kind it is, and may be a little
    more than what is read at once."""
    text = "==============NVSMI LOG==============\n" + "".join(
        f"GPU 000000{at}0:00.0\n    Product Name : NVIDIA H200\n    Utilization\n"
        + "        Memory : 0 %\n" * lines
        + f"    GPU Power Readings\n        Current Power Limit : {500 if at == gpu else 700}.00 W\n"
        "        Default Power Limit : 700.00 W\n"
        for at in range(8)
    )
    (tmp_path / "q.txt").write_text(text)
    assert diagnose([str(tmp_path / "q.txt")])["causes"][0]["where"] == [f"GPU {gpu}"]


def test_output_beside_the_log_that_did_not_decide_decides_it(tmp_path):
    """As a person works: first the log, then the log together with the output of a tool."""
    hang = "".join(
        f"[rank{rank}]:[E418 11:41:09.4 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught"
        " collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1048576,"
        " NumelOut=1048576, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n"
        for rank in range(8)
    )
    (tmp_path / "job.log").write_text(hang)
    first = diagnose([str(tmp_path / "job.log")])
    assert not first["decided"]
    (tmp_path / "lspci.txt").write_text(
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl-"
        " DirectTrans-\n"
    )
    second = diagnose([str(tmp_path / "job.log"), str(tmp_path / "lspci.txt")])
    assert second["decided"] and second["causes"][0]["cause"] == "acs_iommu"
