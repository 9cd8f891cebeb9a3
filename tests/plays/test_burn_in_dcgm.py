"""The burn-in runs dcgmi, where installed, before the load: a dcgmi that answers, hangs, ignores SIGTERM, prints other text too, or is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from smoke_runs import DEADLINE_S, PROJECT

from unhang.smoke.burn_in.events import parse_burn_in
from unhang.smoke.burn_in.verdict import judge_burn_in

PAYLOAD = PROJECT / "roles" / "smoke_test" / "files" / "unhang_burn_in.py"
ANSWERS = PROJECT / "tests" / "fixtures" / "dcgm"


@pytest.fixture(scope="module")
def payload():
    spec = importlib.util.spec_from_file_location("unhang_burn_in_for_dcgm", PAYLOAD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def dcgmi(tmp_path, monkeypatch):
    """dcgmi(text of a shell script): installs the script as dcgmi on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def install(text):
        (tmp_path / "dcgmi").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "dcgmi").chmod(0o755)

    return install


def never():
    return False


def test_without_dcgmi_nothing_is_reported(payload, dcgmi):
    assert payload.run_dcgm(1, DEADLINE_S, never) is None


def test_its_json_leaves_whole_with_the_suite_that_was_asked_for(payload, dcgmi, tmp_path):
    dcgmi(f'echo "$@" > {tmp_path}/words; echo "a line before"; cat {ANSWERS}/4-pcie-fails.json; exit 226')
    shown = payload.run_dcgm(2, DEADLINE_S, never)
    assert (tmp_path / "words").read_text().split() == ["diag", "-r", "2", "-j"]
    assert (shown["level"], shown["code"]) == (2, 226)
    assert shown["answer"] == json.loads((ANSWERS / "4-pcie-fails.json").read_text())
    assert [payload.dcgm_level(seconds) for seconds in (90.0, 600.0)] == [1, 2]


def test_words_that_are_no_json_and_an_answer_without_end_are_cut(payload, dcgmi):
    dcgmi('echo "Error: unable to establish a connection to the specified host: localhost" >&2; exit 255')
    assert payload.run_dcgm(1, DEADLINE_S, never)["answer"] == "Error: unable to establish a connection to the specified host: localhost"
    dcgmi("""python3 -c 'print("{\\"x\\": \\"" + "y" * 9000000 + "\\"}")'""")
    assert len(payload.run_dcgm(1, DEADLINE_S, never)["answer"]) <= 2000


def test_one_that_hangs_is_ended_politely_first_and_with_all_that_it_started(payload, dcgmi, tmp_path):
    dcgmi(f"trap 'touch {tmp_path}/asked; exit 3' TERM; while :; do sleep 0.1; done")
    assert payload.run_dcgm(1, 0.5, never)["code"] is None
    assert (tmp_path / "asked").exists()
    dcgmi(f"trap '' TERM; sleep 3000 & echo $! > {tmp_path}/child; wait; sleep 3000")
    assert payload.run_dcgm(1, 0.5, never)["code"] is None
    child, until = Path("/proc", (tmp_path / "child").read_text().strip()), time.monotonic() + DEADLINE_S
    while child.exists() and " Z " not in (child / "stat").read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert not child.exists() or " Z " in (child / "stat").read_text()


def test_a_wish_to_stop_ends_it(payload, dcgmi):
    dcgmi("exec sleep 3000")
    assert payload.run_dcgm(1, DEADLINE_S, lambda: True)["code"] is None


def test_a_gpu_that_dcgm_fails_fails_in_the_burn_in(dcgmi, tmp_path):
    dcgmi(f"cat {ANSWERS}/4-pcie-fails.json; exit 226")
    build_fake_nvml(str(tmp_path))
    write_profile(str(PROJECT / "tests" / "fixtures" / "h200x2" / "nvml.json"), str(tmp_path / "profile"))
    variables = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "UNHANG_FAKE_NVML_PROFILE": str(tmp_path / "profile")}
    plan = {"device": "cuda", "duration_s": 1.0, "python": "/bin/false"}
    argv = [sys.executable, str(PAYLOAD), "node", "--plan", json.dumps(plan)]
    done = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S, env=variables, stdin=subprocess.DEVNULL, check=False)
    events = parse_burn_in(done.stdout.split(b"\n"))
    assert [event["e"] for event in events][:2] == ["burn_begin", "dcgm"], done
    document = judge_burn_in(events, "gpu001", {}, plan)
    assert document["verdict"] == "fail"
    assert "dcgmi diag: pcie on GPU 1: GPU 1 runs at PCIe link width 8" in document["failures"][0]["why"]
