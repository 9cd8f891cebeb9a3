"""Fabrics that wait and adapters that do not belong together: each with a log in which the rule must be silent."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

NOTHING = (
    "nv-fabricmanager[2210]: request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do "
    "[NV_WARN_NOTHING_TO_DO]\n"
    "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
)
FABRIC = "    Fabric\n        State                             : {state}\n        Status                            : N/A\n"
USING = "gpu-a:8:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]{last} [RO]; OOB eth0:198.51.100.3<0>\n"
SLOW = "# all_reduce_perf: low busbw between the nodes\n"


def _causes(tmp_path, text):
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return [cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"]


@pytest.mark.parametrize(("state", "waits"), [("In Progress", True), ("N/A", False), ("Completed", False)])
def test_gpu_that_waits_for_its_fabric_shows_that_the_manager_had_something_to_do(tmp_path, state, waits):
    assert ("fabric_manager_down" in _causes(tmp_path, NOTHING + FABRIC.format(state=state))[:1]) is waits


@pytest.mark.parametrize(
    ("last", "told", "mixed"),
    [("mlx5_bond_0:1/RoCE", SLOW, True), ("mlx5_bond_0:1/RoCE", "", False), ("mlx5_2:1/IB", SLOW, False)],
    ids=["slow", "not slow", "InfiniBand alone"],
)
def test_ethernet_adapter_beside_infiniband_counts_only_if_the_job_is_slow(tmp_path, last, told, mixed):
    assert ("wrong_interface" in _causes(tmp_path, USING.format(last=last) + told)[:1]) is mixed
