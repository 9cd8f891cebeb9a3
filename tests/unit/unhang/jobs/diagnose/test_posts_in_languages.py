"""The five situations as people post them: the true cause comes first in every language of the table, and the evidence is shown as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.base.strict_yaml import load_yaml
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
    assert in_english(["设置NCCL_P2P_DISABLE=1后可以运行，驱动版本545.23.08".encode()])[0] == b"set NCCL_P2P_DISABLE=1 after works, driver version 545.23.08"
