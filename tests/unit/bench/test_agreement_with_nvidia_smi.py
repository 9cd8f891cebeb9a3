"""The facts of the real 8xH200 node agree with nvidia-smi's output on that node, and the comparison
finds differences."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import pytest

from unhang_node.facts.collect import collect

TESTS = Path(__file__).parents[2]
CAPTURE = TESTS / "fixtures" / "h200x8"
# The capture's recording was made without the calls behind these; the live run on other H200 nodes
# has them (docs/benchmarks.md).
NOT_IN_THE_RECORDING = (
    "ecc.sram_threshold_exceeded",
    "memory_reserved_mib",
    "fabric.state",
    "fabric.clique",
)


@pytest.fixture(scope="module")
def agreement():
    spec = importlib.util.spec_from_file_location("agreement", TESTS / "bench" / "agreement.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def facts():
    return collect({"nvml_recording": str(CAPTURE / "nvml.json"), "gather_subset": ["gpus"]}, None)


@pytest.fixture(scope="module")
def xml():
    return (CAPTURE / "nvidia-smi-q.xml").read_text(encoding="utf-8")


def test_facts_of_the_capture_say_what_nvidia_smi_says(agreement, facts, xml):
    lines, compared = agreement.disagreements(facts, xml)
    assert compared >= 8 * 30
    assert [
        line
        for line in lines
        if not any(f" {field}: facts None" in line for field in NOT_IN_THE_RECORDING)
    ] == []


def test_what_a_gpu_by_itself_answered_live_is_what_nvidia_smi_said_of_it(agreement):
    folder = TESTS / "fixtures" / "h200x1"
    lines, compared = agreement.disagreements(
        json.loads((folder / "node.json").read_text()), (folder / "nvidia-smi-q.xml").read_text()
    )
    # the collector of that day did not ask for it
    default = "GPU 0000:00:06.0 clocks.sm_default_mhz: facts None, nvidia-smi '1980 MHz'"
    assert (lines, compared) == ([default], 35)


@pytest.mark.parametrize(
    "field, wrong",
    [
        ("model", "NVIDIA H100"),
        ("memory_total_mib", 81920.0),
        ("persistence", False),
        ("power_limit_w", None),
    ],
)
def test_a_fact_that_differs_is_named_with_its_gpu(agreement, facts, xml, field, wrong):
    altered = copy.deepcopy(facts)
    altered["sections"]["gpus"]["devices"][3][field] = wrong
    lines, _ = agreement.disagreements(altered, xml)
    assert [line for line in lines if line.startswith(f"GPU 0000:00:09.0 {field}: facts {wrong!r}")]


def test_a_gpu_that_only_one_of_the_two_sees_is_an_error(agreement, facts, xml):
    altered = copy.deepcopy(facts)
    del altered["sections"]["gpus"]["devices"][7]
    with pytest.raises(ValueError, match=r"0000:00:0d\.0"):
        agreement.disagreements(altered, xml)
