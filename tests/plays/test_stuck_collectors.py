"""A stuck driver call or file in the whole collector; waits for its real deadlines."""

from __future__ import annotations

import os
import time

from fakes.nvml_runs import H200X2, schema_faults, write_recording

from unhang_node.facts.collect import collect


def test_a_stuck_driver_call_costs_its_sections_and_one_deadline(tmp_path):
    recording = write_recording(tmp_path, H200X2, stall="nvmlDeviceGetMemoryInfo(1)")
    started = time.monotonic()
    document = collect({"nvml_recording": str(recording)}, load_pynvml=None)
    assert time.monotonic() - started < 60
    sections = document["sections"]
    assert schema_faults(document) == []
    assert {
        name for name, section in sections.items() if section["probe"]["status"] == "timeout"
    } == {"gpus", "interconnect"}
    assert (
        "nvmlDeviceGetMemoryInfo(GPU 1 0000:00:07.0) did not return within 4 s"
        in sections["gpus"]["probe"]["error"]
    )
    assert sections["node"]["probe"]["status"] == "ok"


def test_a_file_that_blocks_costs_its_source_alone(tmp_path):
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    os.mkfifo(tmp_path / "kernel.log")
    options = {
        "nvml_recording": str(H200X2),
        "kernel_log": str(tmp_path / "kernel.log"),
        "silence_s": 3.0,
        "gather_subset": ["faults", "gpus"],
    }
    sections = collect(options, load_pynvml=None)["sections"]
    assert sections["faults"]["probe"]["status"] in ("timeout", "error")
    assert "kernel.log" in sections["faults"]["probe"]["error"]
    assert sections["gpus"]["probe"]["status"] == "ok"
