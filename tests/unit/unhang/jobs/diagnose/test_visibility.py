"""What a process lets itself see of the GPUs, and who holds them although nvidia-smi lists nobody."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

LISTED = "GPU 0: NVIDIA H200 (UUID: GPU-f062d15a-4f4e-f27e-9589-c6948f6d30c0)\n"
NO_DEVICE = "RuntimeError: operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE\n"
FULL = "| 27%   34C    P8     9W / 250W |   {used}MiB / 10989MiB |      0%      Default |\n"
NOBODY = "|  No running processes found                                                 |\n"
OPENED = "/dev/nvidia0:        lee       20533 F...m python\n"
PERSISTENCED = "/dev/nvidia0:        root      911 F.... nvidia-persiste\n"
FAILED_START = (
    "tensorflow.python.framework.errors_impl.InternalError: cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version\n"
)


def _causes(folder, text):
    log = folder / "job.log"
    log.write_text(text, encoding="utf-8")
    return [(cause["cause"], cause["severity"]) for cause in diagnose([str(log)])["causes"]]


@pytest.mark.parametrize(
    ("value", "listed", "first"),
    [
        ("-1", "", "env_var_misconfig"),
        ("1", LISTED, "env_var_misconfig"),
        ("0", LISTED, "container_gpu_access"),
        ("1", "", "container_gpu_access"),  # nothing says how many GPUs there are
    ],
)
def test_list_that_begins_with_no_gpu_hides_all(tmp_path, value, listed, first):
    assert _causes(tmp_path, f'os.environ["CUDA_VISIBLE_DEVICES"] = "{value}"\n{listed}{NO_DEVICE}')[0][0] == first


@pytest.mark.parametrize(("used", "opened", "shown"), [(9823, OPENED, True), (9823, "", False), (9823, PERSISTENCED, False), (300, OPENED, False)])
def test_process_that_only_fuser_shows_holds_the_memory(tmp_path, used, opened, shown):
    causes = _causes(tmp_path, FULL.format(used=used) + NOBODY + "$ fuser -v /dev/nvidia*\n" + opened)
    assert (causes[:1] == [("orphan_processes_hold_gpu", "warning")]) == shown


@pytest.mark.parametrize(("command", "first"), [("singularity run", "container_gpu_access"), ("apptainer run --nv", "cuda_driver_too_old")])
def test_image_started_without_the_hosts_gpus(tmp_path, command, first):
    assert _causes(tmp_path, f"$ {command} train.sif\n{FAILED_START}")[0][0] == first


@pytest.mark.parametrize(
    ("bar", "alarmed"), [("Epoch 3:  41%|####1     | 212/517 [02:31<03:37,  1.40it/s]\n", False), ("Epoch 0:   0%|          | 0/517 [00:00<?, ?it/s]\n", True)]
)
def test_rank_whose_epochs_go_on_does_not_wait_for_others(tmp_path, bar, alarmed):
    text = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n" + bar
    assert (("launch_mismatch", "warning") in _causes(tmp_path, text)) == alarmed
