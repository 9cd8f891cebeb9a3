"""A GPU that gives errors, a driver's library that dies and a call that never returns: what the
real collector reads through nvidia-ml-py and the fake library, and what the judge makes of it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from changed_nodes import catalogue, view
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X2, H200X8, collect_in_process, write_recording

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.node_rules import NodeView, finding_texts, judge_rule, node_world

RULE = "part-not-readable"
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
OPENS = ("nvmlDeviceGetHandleByIndex_v2",)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake-nvml")
    build_fake_nvml(str(folder))
    return folder


@pytest.fixture
def collected(library, tmp_path):
    """(recording, function that changes a line of its profile) -> the collector's document."""
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(DRIVER)

    def collect(recording, change=lambda line: line, silence_s="120"):
        profile = Path(write_profile(str(recording), str(tmp_path / "profile")))
        lines = profile.read_text().splitlines()
        profile.write_text("".join(f"{change(line)}\n" for line in lines))
        return collect_in_process(
            "--gather-subset", "!all,driver,gpus,interconnect", "--procfs", str(tmp_path / "proc"),
            "--silence-s", silence_s, "--deadline-s", "120",
            env={"LD_LIBRARY_PATH": str(library), "UNHANG_FAKE_NVML_PROFILE": str(profile)},
        )  # fmt: skip

    return collect


def answers(code, gpus=("7",), good=OPENS):
    """A change of a profile: these GPUs answer each call with this code, except the good ones."""

    def change(line):
        scope, name = line.split(" ")[:2]
        return f"{scope} {name} {code}" if scope in gpus and name not in good else line

    return change


def findings(document):
    """{rule: the places and texts of its findings} of the catalogue's node rules."""
    sections = to_fragment(document["sections"])
    world = node_world(NodeView("node1", (), {}, "ok", "", "", sections), view())
    found = {}
    for rule in catalogue().rules:
        for judged in judge_rule(rule, world) if rule.scope == "node" else ():
            if judged.verdict == "fail":
                items = {}
                if rule.for_each is not None:
                    listed = world.items(rule.for_each.evaluate(world))
                    items = {one.path: one for one in listed if hasattr(one, "path")}
                text = finding_texts(rule, world, judged, items)["found"]
                found.setdefault(rule.id, []).append((judged.severity, judged.item, text))
    return found


@pytest.mark.parametrize(
    ("code", "name"), [(999, "NVML_ERROR_UNKNOWN"), (10, "NVML_ERROR_TIMEOUT")]
)
def test_a_gpu_that_opens_and_gives_only_errors_is_a_finding_with_its_count_and_call(
    collected, tmp_path, code, name
):
    good = (*OPENS, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo")
    document = collected(write_recording(tmp_path), answers(code, good=good))
    gpu = document["sections"]["gpus"]["devices"][7]
    ((severity, item, text),) = findings(document)[RULE]
    assert (severity, item) == ("error", "gpus.devices[7]")
    unread, asked = text.partition(": ")[2].split(" fields")[0].split(" of ")
    assert int(asked) / 2 < int(unread) < int(asked)
    assert text.startswith(f"GPU 7 ({gpu['pci_address']}): ")
    assert text.endswith(f"not read, the first: {name} from nvmlDeviceGetCudaComputeCapability")


def test_gpus_that_fail_alike_are_one_finding_and_are_all_named(collected, tmp_path):
    document = collected(write_recording(tmp_path), answers(999, gpus=("2", "5")))
    ((_, _, text),) = findings(document)[RULE]
    assert text.startswith("GPU 2, GPU 5: ")


def test_the_first_screen_begins_with_the_gpu_and_not_with_what_can_wait(collected, tmp_path):
    document = tmp_path / "gpu001.json"
    document.write_text(json.dumps(collected(write_recording(tmp_path), answers(999))))
    screen = functools.reduce(
        lambda text, _: text.replace("  ", " "),
        range(8),
        subprocess.run(
            [str(Path(sys.executable).with_name("unhang")), "judge", str(document)],
            env={**os.environ, "UNHANG_RUNS": str(tmp_path / "runs")},
            capture_output=True, text=True, timeout=300, check=False,
        ).stdout.replace("\n", " "),
    )  # fmt: skip
    assert "can wait" not in screen
    assert "do GPU 7: " in screen
    assert "the first: NVML_ERROR_UNKNOWN from nvmlDeviceGetPciInfo" in screen


def narrow(recording_folder):
    """GPU 7 has half of its lanes, which is a fault wherever the GPU answers."""
    return write_recording(recording_folder, devices={"7": {"nvmlDeviceGetCurrPcieLinkWidth": 8}})


def test_no_rule_judges_the_little_that_such_a_gpu_answers(collected, tmp_path):
    lanes = ("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth")
    about = "gpus.devices[7]"
    alone = findings(collected(narrow(tmp_path)))
    assert {rule for rule, rows in alone.items() if any(about in str(row[1]) for row in rows)}
    found = findings(collected(narrow(tmp_path), answers(999, good=(*OPENS, *lanes))))
    assert [rule for rule, rows in found.items() if any(about in str(row[1]) for row in rows)] == [
        RULE
    ]


def test_a_library_that_dies_in_a_call_is_a_finding_with_the_call_and_its_gpu(collected, tmp_path):
    document = collected(write_recording(tmp_path, crash="nvmlDeviceGetMigMode(4)"))
    gpu = document["sections"]["gpus"]["devices"][4]
    assert findings(document)[RULE] == [
        (
            "error",
            "gpus",
            "gpus, interconnect: killed by SIGSEGV in nvmlDeviceGetMigMode"
            f"(GPU 4 {gpu['pci_address']})",
        )
    ]


def test_a_call_that_never_returns_is_reported_with_its_gpu(collected, tmp_path):
    recording = write_recording(tmp_path, H200X2, stall="nvmlDeviceGetMemoryInfo(1)")
    document = collected(recording, silence_s="5")
    address = document["sections"]["gpus"]["devices"][1]["pci_address"]
    ((_, _, text),) = findings(document)["driver-does-not-answer"]
    assert f"nvmlDeviceGetMemoryInfo(GPU 1 {address}) did not return" in text


@pytest.mark.parametrize("code", [3, 4, 13], ids=["not supported", "no permission", "not found"])
def test_what_a_card_a_user_or_an_old_driver_cannot_read_accuses_nobody(collected, tmp_path, code):
    """Even where it is nearly everything that there is to read."""
    document = collected(write_recording(tmp_path), answers(code, gpus=tuple("01234567")))
    assert RULE not in findings(document)


@pytest.mark.parametrize("recording", [H200X8, H200X2], ids=["eight H200", "two H200"])
def test_recorded_healthy_machines_have_no_such_part(collected, tmp_path, recording):
    assert RULE not in findings(collected(write_recording(tmp_path, recording)))
