"""NVLink values from NVML, read from a libnvidia-ml.so.1 with the answers of two real H200, or that
hangs or crashes; and counters in a hang's evidence."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from smoke_runs import DEADLINE_S, HANG, PAYLOAD, SMALL, command, environment, load_payload, smoke

from unhang.smoke.streams import Stream, stories
from unhang.smoke.transports import transport_rows

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
payload = load_payload()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Folder of the fake library."""
    folder = tmp_path_factory.mktemp("nvml")
    build_fake_nvml(str(folder))
    return folder


@pytest.fixture
def driver(library, tmp_path, monkeypatch):
    """Sets the driver's answers from now on; the lines are added to the answers of two H200."""

    def answers(*lines):
        path = tmp_path / "profile"
        write_profile(str(FIXTURES / "h200x2" / "nvml.json"), str(tmp_path / "healthy"))
        beside = tmp_path / "beside"
        beside.write_text(
            (tmp_path / "healthy").read_text() + "".join(line + "\n" for line in lines)
        )
        beside.rename(path)
        return {"LD_LIBRARY_PATH": str(library), "UNHANG_FAKE_NVML_PROFILE": str(path)}

    for name, value in answers().items():
        monkeypatch.setenv(name, value)
    return answers


def asked():
    """The child's answer."""
    done = subprocess.run(
        [sys.executable, str(PAYLOAD), "nvml"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return json.loads(done.stdout)


def test_nvlink_pairs_and_counters_of_two_real_gpus_are_read(driver):
    driver("0 field:138:3 0 3 123456", "1 field:139:0 0 3 77", "1 field:161:17 0 3 5")
    found = asked()
    assert found["problem"] is None
    assert [len(pair) for pair in found["pairs"]] == [2]
    assert all(name.startswith("GPU-") for pair in found["pairs"] for name in pair)
    assert found["counters"]["GPU 0 link 3 data sent (KiB)"] == 123456
    assert found["counters"]["GPU 1 link 0 data received (KiB)"] == 77
    assert found["counters"]["GPU 1 link 17 replay errors"] == 5
    assert found["counters"]["GPU 0 link 17 recovery errors"] == 0


def test_what_eight_real_gpus_logged_and_answered_is_labelled_nvlink_for_each_pair(
    driver, tmp_path
):
    """NCCL's log and NVML's answers from the same machine; only the ranks that connect the two are
    made up."""
    write_profile(str(FIXTURES / "h200x8" / "nvml.json"), str(tmp_path / "profile"))
    uuids = sorted({uuid for pair in asked()["pairs"] for uuid in pair})
    assert len(uuids) == 8
    log = payload.transports_of((FIXTURES / "h200x8" / "torch-gpu-test-nccl-info.txt").read_text())
    events = [{"e": "nvlink", "pairs": asked()["pairs"]}]
    for rank, uuid in enumerate(uuids):
        device = {"index": rank, "uuid": uuid, "model": "NVIDIA H200"}
        events += [
            {
                "e": "phase_end",
                "rank": rank,
                "phase": "binding",
                "status": "ok",
                "result": {"device": device},
            },
            {"e": "transports", "rank": rank, **log},
        ]
    rows = transport_rows(stories([Stream("gpu1", tuple(range(8)), tuple(events))]), events)
    assert {(row.label, row.kind) for row in rows} == {("NVLink (P2P/CUMEM)", "nvlink")}
    ring = {(rank, (rank + 1) % 8) for rank in range(8)}
    assert {(row.sender, row.receiver) for row in rows} >= ring


def test_gpus_without_nvlink_are_told_apart(driver):
    driver("0-1 nvmlDeviceGetP2PStatus:2 0 5")
    assert asked()["pairs"] == []


def test_what_carries_a_gpus_data_is_reported(driver):
    links = asked()["links"]
    assert len(links) == 2
    assert next(iter(links.values())) == {
        "nvlinks": 18,
        "nvlink_mb_s": 26562,
        "pcie_generation": 5,
        "pcie_width": 16,
    }


def test_an_older_driver_without_field_values_tells_its_error_counters(driver, tmp_path):
    healthy = (tmp_path / "healthy").read_text().splitlines()
    lines = [line for line in healthy if "FieldValues" not in line and " field:" not in line]
    (tmp_path / "profile").write_text(
        "\n".join(
            [
                *lines,
                "0 nvmlDeviceGetNvLinkErrorCounter:2:0 0 9",
                "0 nvmlDeviceGetNvLinkErrorCounter:17:2 0 4",
            ]
        )
        + "\n"
    )
    counters = asked()["counters"]
    assert counters["GPU 0 link 2 replay errors"] == 9
    assert counters["GPU 0 link 17 CRC errors"] == 4


def test_hopper_is_asked_for_what_nvidia_smi_shows_of_its_links_and_not_for_counters_that_rise_in_health(
    driver, tmp_path
):
    """The recording of eight healthy H200 has 8 to 55 in counters 3 and 4 of every link, and 0 in
    the counters of `nvidia-smi nvlink -e`."""
    write_profile(str(FIXTURES / "h200x8" / "nvml.json"), str(tmp_path / "profile"))
    errors = {
        name: count
        for name, count in asked()["counters"].items()
        if " link " in name and "KiB" not in name
    }
    assert {re.sub(r"GPU \d+ link \d+ ", "", name) for name in errors} == {
        "replay errors",
        "recovery errors",
        "CRC errors",
    }
    assert len(errors) == 8 * 18 * 3
    assert set(errors.values()) == {0}


def test_blackwell_is_asked_for_the_errors_of_nvlink_5(driver, tmp_path):
    """Made up from the documentation: the three fields of Hopper are answered with "not supported",
    those of NVLink 5 count."""
    healthy = (tmp_path / "healthy").read_text().splitlines()
    lines = [
        line
        for line in healthy
        if not re.search(r" field:16[123][: ]| nvmlDeviceGetNvLinkErrorCounter", line)
    ]
    own = [
        f"{gpu} field:{field}:{link} 0 3 {field}"
        for gpu in (0, 1)
        for field in (206, 207, 208, 211, 215, 221)
        for link in range(18)
    ]
    (tmp_path / "profile").write_text("\n".join([*lines, *own]) + "\n")
    counters = asked()["counters"]
    assert counters["GPU 1 link 4 link recovery events"] == 215
    assert counters["GPU 0 link 17 symbol errors"] == 221
    assert not [name for name in counters if "replay errors" in name or "CRC" in name]


def test_a_gpu_is_asked_for_what_it_counts_of_itself(driver):
    driver(
        "1 nvmlDeviceGetPcieReplayCounter 0 12",
        "0 nvmlDeviceGetTotalEccErrors:0:0 0 7",
        "0 nvmlDeviceGetTotalEccErrors:1:0 0 2",
    )
    counters = asked()["counters"]
    assert (
        counters["GPU 1 PCIe replays"],
        counters["GPU 0 corrected memory errors"],
        counters["GPU 0 uncorrected memory errors"],
    ) == (12, 7, 2)


@pytest.mark.parametrize(
    "line, message",
    [
        ("crash nvmlDeviceGetNvLinkState 1", "NVML ended its caller with code -11"),
        ("system nvmlInitWithFlags 9", "nvmlInit answered 9"),
    ],
)
def test_a_driver_in_trouble_is_an_answer(driver, line, message):
    driver(line)
    answer = payload.NvmlQuestion().answer(DEADLINE_S)
    assert answer == {"pairs": None, "counters": {}, "links": {}, "problem": message}


def test_a_driver_that_was_asked_and_does_not_answer_hangs(driver):
    driver("stall nvmlDeviceGetNvLinkState *")
    question = payload.NvmlQuestion()
    while b"asked" not in os.pread(question.mark.fileno(), 100, 0):
        assert question.process.poll() is None
        time.sleep(0.02)
    problem = question.answer(0.1)["problem"]
    assert problem == "NVML did not answer within 0 s: the driver hangs"


def test_a_reader_that_has_not_asked_yet_accuses_no_driver(driver):
    question = payload.NvmlQuestion()
    question.process.send_signal(signal.SIGSTOP)  # as on a machine without a CPU for it
    problem = question.answer(0.1)["problem"]
    assert problem == "the program that reads NVML did not start within 0 s"


def test_without_a_driver_there_is_nothing_to_say(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert asked() == {"pairs": None, "counters": {}, "links": {}, "problem": None}


def counters_at(root, **values):
    """A machine's files below root: one interface, one RDMA device with two ports."""
    places = {
        "rx_errors": "sys/class/net/eth9/statistics/rx_errors",
        "retries": "sys/class/infiniband/mlx5_0/ports/2/hw_counters/packet_seq_err",
    }
    for name, value in values.items():
        path = root / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    (root / "sys/class/infiniband/mlx5_0/ports/1/counters").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error").write_text("0\n")


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def started(*options, **more):
    """A running smoke test whose ranks are about to enter a reduction."""
    argv = command("--backend", "gloo", "--format", "json", *options)
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**more)
    )
    for line in process.stderr:
        if line.strip() == "unhang: phase all_reduce":
            break
    return process


def test_a_hang_is_reported_with_what_the_kernel_said_and_what_moved_in_nic_and_nvlink_counters(
    driver, tmp_path
):
    root = tmp_path / "root"
    counters_at(root, rx_errors=4, retries=100)
    (root / "dev").mkdir()
    (root / "dev" / "kmsg").write_text("4,811,11,-;NVRM: Xid (PCI:0000:99:00): 31, of last week\n")
    driver("0 field:138:3 0 3 1000", "1 field:163:5 0 3 1")
    process = started(*HANG, UNHANG_SMOKE_ROOT=str(root))
    with process:
        counters_at(root, rx_errors=9, retries=160)
        with (root / "dev" / "kmsg").open("a") as log:
            log.write(
                f"4,812,99123456,-;{XID}\n SUBSYSTEM=pci\n"
                " DEVICE=+pci:0000:3b:00.0\n6,813,99123460,-;eth0: link becomes ready\n"
            )
        driver("0 field:138:3 0 3 1500", "1 field:163:5 0 3 8")
        output, _ = process.communicate(timeout=DEADLINE_S)
    result = json.loads(output)
    [node] = result["nodes"]
    assert node["kernel_log"] == [XID, "eth0: link becomes ready"]
    assert (
        "never entered collective 2 (all_reduce float32), in which 1 rank waits; its last is"
        f" 1; likely: its kernel log says {XID!r}" in (result["suspects"][0]["why"])
    )
    assert node["counters"] == {"eth9 rx_errors": 5, "mlx5_0 port 2 packet_seq_err": 60}
    assert node["nvlink"] == {"GPU 0 link 3 data sent (KiB)": 500, "GPU 1 link 5 CRC errors": 7}
    assert node["peers"] == {
        "rx_errors": 1,
        "packet_seq_err": 1,
        "data sent (KiB)": 36,
        "CRC errors": 36,
    }
    assert 5 < node["counted_s"] < DEADLINE_S
    assert node["nvml"] is None


def test_a_driver_that_hangs_while_ranks_do_is_reported_and_costs_no_other_evidence(driver):
    process = started(*HANG)
    with process:
        driver("stall nvmlDeviceGetNvLinkState *")
        output, _ = process.communicate(timeout=DEADLINE_S)
    result = json.loads(output)
    # the second on a machine that is too busy to start the reader in time
    assert re.search("the driver hangs|did not start within", result["nodes"][0]["nvml"])
    assert all(row["stack"] for row in result["evidence"])
    assert [suspect["rank"] for suspect in result["suspects"]] == [1]


def gpus_at(root, *models):
    """The driver's own files for these GPUs."""
    for place, model in enumerate(models):
        path = (
            root / "proc" / "driver" / "nvidia" / "gpus" / f"0000:{place:02x}:00.0" / "information"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Model: \t\t {model}\nGPU UUID: \t GPU-{place}\n")
    return root


@pytest.mark.parametrize(
    "models, message",
    [
        (
            ("NVIDIA H200",) * 7,
            "GPUs of the node is 7 x NVIDIA H200 here, most have 8 x NVIDIA H200",
        ),
        (("NVIDIA A100-SXM4-80GB",) * 8, "8 x NVIDIA A100-SXM4-80GB here"),
    ],
    ids=["one GPU fell off", "another model"],
)
def test_a_node_with_other_gpus_than_its_peers_is_reported_before_the_first_collective(
    tmp_path, models, message
):
    usual, other = (
        gpus_at(tmp_path / "usual", *["NVIDIA H200"] * 8),
        gpus_at(tmp_path / "other", *models),
    )
    settings = [
        f"--rank-env={rank}:UNHANG_SMOKE_ROOT={other if rank == 2 else usual}" for rank in range(3)
    ]
    done = smoke("--nproc", 3, *SMALL, "--step-timeout", 60, "--phases", "all_reduce", *settings)
    assert done.code == 1
    [suspect] = done.suspects
    assert (suspect["rank"], suspect["phase"]) == (2, "consistency")
    assert message in suspect["why"]
    assert "init" not in [row["name"] for row in done.result["phases"]]


def test_models_and_architectures_that_torch_sees_must_agree_too():
    def facts(**device):
        usual = {"model": "NVIDIA H200", "architecture": "sm_90"}
        return {
            "backend": "nccl",
            "torch": "2",
            "cuda": "13",
            "world": 3,
            "variables": {},
            "device": {**usual, **device},
        }

    rows = payload.differences([facts(), facts(), facts(architecture="sm_80", model="NVIDIA A100")])
    assert {row["name"]: sorted(row["values"].values()) for row in rows} == {
        "GPU model": [[0, 1], [2]],
        "GPU architecture": [[0, 1], [2]],
    }


def test_the_survey_tells_the_gpus_from_the_drivers_own_files(tmp_path):
    root = gpus_at(tmp_path, "NVIDIA H200", "NVIDIA H200")
    variables = environment(UNHANG_SMOKE_ROOT=str(root))
    done = subprocess.run(
        [sys.executable, str(PAYLOAD), "survey"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
        env=variables,
    )
    found = json.loads(done.stdout)
    assert found["hostname"] == os.uname().nodename
    assert [row["model"] for row in found["gpus"]] == ["NVIDIA H200", "NVIDIA H200"]
