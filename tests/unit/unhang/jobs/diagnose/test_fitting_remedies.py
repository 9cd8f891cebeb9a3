"""A remedy fits the facts of the log: GPUs, versions, experiments that were made, accelerators of
other makers, one machine or a fleet."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.rendering import remedy_in_words, render_table

BAD_DRIVER = "2x NVIDIA {gpu}, training hangs\nDriver Version: 570.172.08\n"


@pytest.mark.parametrize(
    ("gpu", "driver", "is_proven"),
    [
        ("GeForce RTX 3090", "545.23.08", True),
        ("GeForce RTX 5090", "545.23.08", False),
        ("B200", "545.23.08", False),
        ("GeForce RTX 3090", "570.172.08", False),
        ("GeForce RTX 3090", "545.29.06", False),
    ],
)
def test_release_that_cured_the_driver_of_the_log_is_the_advice_where_it_serves_the_gpu_else_a_live_branch(
    answer, gpu, driver, is_proven
):
    remedy = answer(
        f"2x NVIDIA {gpu}, training hangs\nDriver Version: {driver}\nNCCL_P2P_DISABLE=1 makes it"
        " work\n"
    )["causes"]
    remedy = next(one["remedy"] for one in remedy if one["cause"] == "driver_p2p_bug")
    wanted = {"version": "535.154.05"} if is_proven else {"min": "580.65.06"}
    assert remedy["variables"]["driver"] == {**wanted, "held": True}
    assert ("535.154.05" in remedy["person"]) is is_proven


def test_reason_and_advice_are_those_of_the_xids_that_were_seen(answer):
    seen = "NVRM: Xid (PCI:0000:4e:00): {}, pid=77, name=python"
    first = answer(
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        f"{seen.format('94')}, Contained: SM (0x1).\n{seen.format('63')}, Row Remapper: New row\n"
    )["causes"][0]
    assert first["means"].startswith("Xid 94: contained memory error; Xid 63: a row remap")
    assert "reset the GPU" in first["remedy"]["person"]
    asks = "Xid (PCI:0000:4e:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Reboot)"
    assert answer(f"NVRM: {asks}\n")["causes"][0]["remedy"]["person"] == "Xid 154: Reboot"


def test_drivers_of_nvidia_are_no_advice_for_the_accelerators_of_others(answer):
    found = answer(
        "import torch_npu 2.1.0, 8x Ascend 910B\nthe driver version is too old, training hangs\n"
    )
    assert found["causes"] == [] and found["remarks"][0]["says"].startswith(
        "the accelerators are Huawei's"
    )
    assert "not covered" in render_table(found)
    assert (
        answer("CUDA driver version is insufficient for CUDA runtime version\n")["causes"][0][
            "cause"
        ]
        == "cuda_driver_too_old"
    )


def test_person_reads_the_command_first_and_the_role_second(answer):
    found = answer(BAD_DRIVER.format(gpu="GeForce RTX 3090"))
    shown = remedy_in_words(found["causes"][0]["remedy"])
    assert shown.index("sudo apt install nvidia-driver-580") < shown.index(
        "on a fleet: apply role gpu_driver"
    )


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (
            (
                "[E] you can either increase the timeout or disable the monitor"
                " (TORCH_NCCL_ENABLE_MONITORING=0)."
            ),
            [],
        ),
        ("Last error: please rerun with NCCL_DEBUG=INFO to see more", []),
        ("可以设置NCCL_DEBUG=INFO环境变量，查看日志", []),
        ("export NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO")]),
        (
            "NCCL_SOCKET_IFNAME=^lo,docker0 NCCL_IB_DISABLE=1: same",
            [("NCCL_SOCKET_IFNAME", "^lo,docker0"), ("NCCL_IB_DISABLE", "1")],
        ),
        ("MASTER_ADDR=$(hostname) torchrun train.py", [("MASTER_ADDR", "$(hostname")]),
    ],
)
def test_settings_are_those_of_the_job_and_not_of_advice(answer, line, settings):
    assert [
        (one["name"], one["value"]) for one in answer(line + "\n")["facts"]["settings"]
    ] == settings
