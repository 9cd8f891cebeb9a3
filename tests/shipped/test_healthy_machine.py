"""A healthy machine ends with 0 by default, though it has findings of `info`, which are shown."""

from __future__ import annotations

import json

import pytest
from healthy_platforms import h200_infiniband
from healthy_sections import setting
from judge_cases import node, write_run

from unhang.cli import main


@pytest.mark.parametrize(("fail_on", "code"), [([], 0), (["--fail-on", "info"], 1)])
def test_eight_healthy_h200_end_with_0_and_their_info_findings_are_shown(
    fail_on, code, tmp_path, capsys
):
    sections = h200_infiniband()["sections"]
    sections["nccl"]["settings"].append(setting("NCCL_DEBUG", "INFO"))
    run = write_run(tmp_path / "run", node("gpu001", sections))
    assert main(["judge", str(run), *fail_on]) == code
    shown = capsys.readouterr().out
    found = [
        (one["severity"], one["rule"])
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["verdict"] == "fail"
    ]
    assert found
    assert {severity for severity, _ in found} == {"info"}
    usual = {"software-release-has-fault"}  # half of the healthy machines have it: behind -v
    assert {rule for _, rule in found if rule not in shown} <= usual
