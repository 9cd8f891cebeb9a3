"""The five situations as people post them: the true cause comes first in every language of the table, and the evidence is shown as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.logs.languages import in_english

ROWS = load_yaml(Path(__file__).parents[4] / "fixtures" / "diagnose_posts" / "situations.yml")[0]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_cause_of_a_post_comes_first_in_any_language(tmp_path, row):
    post = tmp_path / "post.txt"
    post.write_text(row["text"] + "\n", encoding="utf-8")
    found = diagnose([str(post)])
    loud = [cause for cause in found["causes"] if cause["severity"] != "info"]
    if row["cause"] is None:
        assert loud == [] and (row["id"].startswith("healthy") or len(found["collect_next"]) >= 3)
    else:
        assert loud[0]["cause"] == row["cause"]
        assert all(line["text"] in row["text"] for line in loud[0]["evidence"])


def test_messages_of_programs_are_read_as_they_are():
    lines = [
        b"[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Map:  41%|████▏     | 812000/1980000".encode(),
        b"step 1 loss 2",
    ]
    assert in_english(lines) == {}


def test_settings_and_versions_stay_within_foreign_words():
    english = in_english(["设置NCCL_P2P_DISABLE=1后可以运行，驱动版本545.23.08".encode()])[0]
    assert english == b"after setting NCCL_P2P_DISABLE=1 works, driver version 545.23.08"


HANG = "升级驱动到545.23.08之后，2x RTX 3090 DDP训练卡住，GPU利用率100%。\n"


@pytest.mark.parametrize("tried", ["设置 NCCL_P2P_DISABLE=1 之后可以正常训练了。", "我设置了NCCL_P2P_DISABLE=1，就恢复正常了。"])
def test_an_experiment_of_the_writer_speaks_for_the_cause(tmp_path, tried):
    post = tmp_path / "post.txt"
    post.write_text(HANG + tried + "\n", encoding="utf-8")
    first = diagnose([str(post)])["causes"][0]
    assert first["cause"] == "driver_p2p_bug"
    assert tried in [line["text"] for line in first["evidence"]]


@pytest.mark.parametrize("advice", ["请设置 NCCL_P2P_DISABLE=1 后再运行", "建议设置 NCCL_P2P_DISABLE=1", "установите NCCL_P2P_DISABLE=1"])
def test_advice_is_no_setting_of_the_job(tmp_path, advice):
    post = tmp_path / "post.txt"
    post.write_text(f"训练卡住了\n{advice}\n", encoding="utf-8")
    assert diagnose([str(post)])["facts"]["settings"] == []
