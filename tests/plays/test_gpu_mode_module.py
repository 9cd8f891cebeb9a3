"""The module gpu_mode with the real nvidia-ml-py and Ansible, and the fake libnvidia-ml.so.1 with
the answers of eight H200."""

from __future__ import annotations

import json
import os
import sys

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X8, write_recording
from fakes.role_play import PROJECT, answer_of, environment

from unhang.core.ansible.packed_pynvml import link_pynvml

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may set a GPU's mode, and the fake driver knows it"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Folder of the fake driver's library."""
    link_pynvml(PROJECT)
    folder = tmp_path_factory.mktemp("fake-nvml")
    build_fake_nvml(str(folder))
    return folder


@pytest.fixture
def gpus(library, tmp_path):
    """Runs the module, on eight GPUs or on a variant of their recording."""
    profile = tmp_path / "profile"

    def run(*arguments, **options):
        if not profile.exists():
            write_profile(str(H200X8), str(profile))
        known = {
            **environment(tmp_path),
            "LD_LIBRARY_PATH": str(library),
            "UNHANG_FAKE_NVML_PROFILE": str(profile),
        }
        command = [
            "ansible",
            "localhost",
            "-o",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-e",
            f"ansible_python_interpreter={sys.executable}",
        ]
        more = ["-m", "gpu_mode", "-a", json.dumps(options), *arguments]
        done = answer_of([*command, *more], known)
        return {**json.loads(done.stdout.partition("=> ")[2]), "failed": "FAILED" in done.stdout}

    def derive(**differences):
        write_profile(str(write_recording(tmp_path, H200X8, **differences)), str(profile))

    run.derive, run.profile = derive, profile
    return run


EXCLUSIVE = {
    "devices": {"3": {"nvmlDeviceGetComputeMode": 3}, "5": {"nvmlDeviceGetComputeMode": 2}}
}


def test_modes_that_shut_processes_out_are_set_back_and_the_second_run_changes_nothing(gpus):
    gpus.derive(**EXCLUSIVE)
    foretold = gpus("--check", compute_mode="default")
    assert not gpus.profile.with_name("profile.set").exists()
    done = gpus(compute_mode="default")
    assert done["changed"]
    assert {
        name.split(" (")[0]: (old, done["after"][name]) for name, old in done["before"].items()
    } == {
        "compute_mode of GPU 3": ("exclusive_process", "default"),
        "compute_mode of GPU 5": ("prohibited", "default"),
    }
    assert {name: done[name] for name in ("before", "after", "changed")} == {
        name: foretold[name] for name in ("before", "after", "changed")
    }
    assert not gpus(compute_mode="default")["changed"]


def test_a_gpu_in_use_keeps_its_compute_mode_and_so_do_the_others(gpus):
    job = [
        {"pid": 4711, "usedGpuMemory": 1048576, "gpuInstanceId": None, "computeInstanceId": None}
    ]
    gpus.derive(
        devices={
            **EXCLUSIVE["devices"],
            "3": {
                "nvmlDeviceGetComputeMode": 3,
                "nvmlDeviceGetComputeRunningProcesses_v3": {"v": job},
            },
        }
    )
    for arguments in (["--check"], []):
        refused = gpus(*arguments, compute_mode="default")
        assert refused["failed"]
        assert "GPU 3 (GPU-" in refused["msg"]
        assert "is in use by pid 4711" in refused["msg"]
    assert not gpus.profile.with_name("profile.set").exists()


def test_persistence_is_set_also_while_a_gpu_is_in_use(gpus):
    job = [
        {"pid": 4711, "usedGpuMemory": 1048576, "gpuInstanceId": None, "computeInstanceId": None}
    ]
    gpus.derive(
        devices={
            "2": {
                "nvmlDeviceGetPersistenceMode": 0,
                "nvmlDeviceGetComputeRunningProcesses_v3": {"v": job},
            }
        }
    )
    done = gpus(persistence=True)
    assert list(done["after"].values()) == [True]
    assert not gpus(persistence=True)["changed"]


def test_a_mode_that_a_gpu_does_not_have_is_left(gpus):
    gpus.derive(
        all_devices={"nvmlDeviceGetComputeMode": {"v": {"nvml_error": 3, "text": "Not Supported"}}}
    )
    assert not gpus(compute_mode="default")["changed"]


def test_a_driver_that_does_not_answer_is_reported_and_is_no_failure(gpus):
    gpus.profile.write_text("system nvmlInitWithFlags 9\n")
    answer = gpus(compute_mode="default")
    assert not answer["changed"]
    assert "the driver does not answer" in answer["needs_manual_action"][0]["why"]
