"""What commands print is read: each output alone leads to its cause, a sound one to none, and each
cause has a command whose output is tried here."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml
from unhang.core.together import NOT_READ
from unhang.jobs.diagnose.matching.signatures import load_causes

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_outputs"
ROWS = [row for path in sorted(FOLDER.glob("*.yml")) for row in load_yaml(path)[0]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_output_of_a_command_leads_to_its_cause_or_to_none(tmp_path, row):
    for name, text in row.get("files", {"output.txt": row.get("text")}).items():
        (tmp_path / name).write_text(text)
    found = diagnose([str(tmp_path)])
    causes = found["causes"]
    assert row.get("outcome", "") in found["outcome"]["why"]
    if not row["cause"]:
        assert [one["cause"] for one in causes if one["severity"] != "info"] == []
    else:
        first = causes[0]
        assert all(row.get(name, value) == value for name, value in first.items())
        assert (first["severity"] == "info") == bool(row.get("info"))
        assert any(line["line"] or "recorder" in line["says"] for line in first["evidence"])


def test_each_cause_has_an_output_that_leads_to_it():
    assert set(load_causes()) <= {row["cause"] for row in ROWS}


def test_each_tool_has_a_planted_fault_and_a_sound_twin():
    kinds = {(row.get("tool"), not row["cause"]) for row in ROWS}
    assert {(tool, not is_sound) for tool, is_sound in kinds} == kinds


def test_each_kind_of_input_on_the_page_has_a_planted_fault():
    kinds = (FOLDER.parents[2] / "docs/diagnose.md").read_text()
    kinds = re.split("\n## What it reads|\nA line", kinds)[1]
    kinds = " ".join(re.sub(r"(?m)^(\|[^|]*\||- The output of these.*)", "", kinds).split())
    for one in sorted(
        {
            row.get("tool", row.get("output", "-"))
            for row in ROWS
            if row["cause"] or "outcome" in row
        },
        key=len,
        reverse=True,
    ):
        kinds = re.sub(rf"(?<!\w){re.escape(one)}(?!\w)", "", kinds)
    assert re.findall(r"\b(?!and\b|read\b)\w{2,}", kinds) == []


CAPABILITY = "\t\tCapabilities: [100 v2] Advanced Error Reporting of a port\n"
REPORT = """nvidia-bug-report.sh Version: 34275561
uname: Linux gpu001 5.15.0-113-generic #123-Ubuntu SMP x86_64 GNU/Linux
NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 03:22:07 UTC 2024

/usr/bin/lspci -nnDvvvxxxx
{before}
/usr/bin/nvidia-smi --query
==============NVSMI LOG==============

GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : {failed}

/usr/bin/lspci -t
{after}"""


def reported(folder, megabytes, failed, packed):
    """A nvidia-bug-report whose nvidia-smi is in its first quarter."""
    lines = int(megabytes * (1 << 20) / len(CAPABILITY))
    text = REPORT.format(
        before=CAPABILITY * (lines // 5), failed=failed, after=CAPABILITY * lines
    ).encode()
    report = folder / "nvidia-bug-report.log"
    report.write_bytes(gzip.compress(text) if packed else text)
    return diagnose([str(report)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("megabytes", [0.5, 1.5, 5])
def test_a_report_of_any_length_is_judged_whole(tmp_path, megabytes, packed):
    assert reported(tmp_path, megabytes, "No", packed)["outcome"]["word"] == "healthy"
    found = reported(tmp_path, megabytes, "Yes", packed)["causes"][0]
    assert found["where"] == ["GPU 0", "host gpu001"] and "remap failed" in found["means"]
    assert "Failure Occurred" in found["evidence"][0]["text"]


def test_a_report_that_is_too_long_says_what_was_not_read_and_is_not_healthy(tmp_path):
    found = reported(tmp_path, 28, "No", True)
    assert found["outcome"]["word"] == "no_end" and NOT_READ in found["inputs"][0]["notes"][0]


@pytest.mark.parametrize("megabytes", [0.5, 5])
def test_what_a_tool_printed_before_a_job_changes_nobody_who_is_waited_for(tmp_path, megabytes):
    steps = [f"[rank{rank}] step {at} loss 2.1" for at in range(20_000) for rank in range(8)]
    lines = [REPORT.format(before="", failed="No", after=""), *steps[: int(megabytes * 38_000)]]
    text = "\n".join([*lines, *(f"[rank{rank}] step 70000 loss 2.1" for rank in range(7))])
    (tmp_path / "job.log").write_text(text)
    outcome = diagnose([str(tmp_path / "job.log")])["outcome"]
    assert outcome["word"] == "no_end" and "rank 7 stopped first" in outcome["why"]
