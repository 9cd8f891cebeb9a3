"""What reports of people taught, in general: progress rules the first transfers out, a run is not a success, and what somebody saw of the ranks is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.matching.statements import effect_of

ROOT = Path(__file__).resolve().parents[5]
REPORTS = {row["id"]: row for row in load_yaml(ROOT / "tests/fixtures/diagnose_reports/second.yml")[0]["reports"]}
NAMED_SINCE = 15  # of the 27: those whose ending is the first cause above a remark today


def loud(found):
    return [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_no_report_gets_a_loud_cause_other_than_its_ending(name):
    found = diagnose_text(REPORTS[name]["text"])
    also = {"slow_rank_or_io": {"watchdog_timeout_too_short"}, "wrong_interface": {"firewall_ports"}}.get(REPORTS[name]["cause"], set())
    assert set(loud(found)) <= {REPORTS[name]["cause"], *also}
    assert found["outcome"]["word"] != "healthy"


def test_endings_that_are_named_today_stay_named():
    named = [name for name, row in REPORTS.items() if loud(diagnose_text(row["text"]))[:1] == [row["cause"]]]
    assert len(named) >= NAMED_SINCE, named
    assert {row["cause"] for row in REPORTS.values()} - set(load_causes()) == {"cuda_kernel_fault"}


@pytest.mark.parametrize("told", ["hangs before the first step", "hangs after a few epochs", "hangs in epoch 27, every time", "hangs after 1200 steps"])
def test_that_one_gpu_works_does_not_name_acs(told):
    assert "acs_iommu" not in [cause["cause"] for cause in diagnose_text(f"DDP on 4 GPUs {told}, with one GPU it works\n")["causes"]]


def test_experiment_decides_where_one_gpu_works_and_several_hang():
    assert any("NCCL_P2P_DISABLE=1" in one for one in diagnose_text("DDP on 4 GPUs hangs before the first step, with one GPU it works\n")["collect_next"])


@pytest.mark.parametrize(
    "text",
    ["our CI runs a DataParallel example with driver 525.105.17", "started with torchrun, all steps run and then it hangs", "it works until step 1200"],
)
def test_to_run_something_or_for_a_while_is_no_success(text):
    assert effect_of(text, 0, 2) != "works"


def test_success_of_all_ranks_is_read_as_before():
    assert effect_of("with srun in front all ranks start and it works", 5, 9) == "works"


@pytest.mark.parametrize(
    "text",
    [
        "py-spy: rank 0 is in send_weights, ranks 1-15 are in full_tensor",
        "rank 3 is in compute_loss\nall others are in loss.backward()",
        "seven ranks wait in the backward, rank 5 is already in the optimizer",
    ],
)
def test_ranks_that_somebody_saw_in_different_calls_are_the_finding(text):
    assert loud(diagnose_text(f"the job hangs.\n{text}\n")) == ["rank_desync_app"]
    assert "rank_desync_app" not in loud(diagnose_text("the job hangs.\nrank 0 is in all_gather_base, rank 1 is in all_gather_base\n"))


def test_another_cluster_that_is_faster_is_no_slow_rank_and_sockets_beside_an_rdma_network_are_named():
    slow = "Cross-node all_reduce is 5 times slower than on our other cluster"
    sockets = "w01:5120:5188 [0] NCCL INFO NET/Socket : Using [0]bond0:10.8.184.2<0>\nw01:5120:5188 [0] NCCL INFO Using network Socket\n"
    assert loud(diagnose_text(f"{slow}, the nodes have mlx5_bond_0 and RoCE\n{sockets}")) == ["ib_misconfig"]
    assert "ib_misconfig" not in loud(diagnose_text(f"{slow}\n{sockets}"))


def test_loopback_is_no_interface_of_two_machines_and_right_on_one():
    lines = "export NCCL_SOCKET_IFNAME=lo\nConnection reset by peer\n"
    assert loud(diagnose_text(f"# reporter: on two machines\n{lines}")) == ["wrong_interface"] and "wrong_interface" not in loud(diagnose_text(lines))


def test_test_of_collectives_without_a_result_is_not_healthy():
    header = "# Using devices\n#   Rank  0 on      gpu01 device  0 [0x04] Tesla P100-PCIE-16GB\n"
    assert diagnose_text(header)["outcome"]["word"] == "no_end"
    row = "     1048576        262144     float     sum      -1    48.51   21.61   37.83      0    47.52   22.07   38.61      0\n"
    assert diagnose_text(header + row)["outcome"]["word"] != "no_end"


def test_xid_of_a_program_does_not_ask_for_another_card():
    found = diagnose_text("[1.5] NVRM: Xid (PCI:0000:1a:00): 13, Graphics Exception: ESR 0x57e7b0=0x81e0017\n")
    assert "xid_hardware" not in [cause["cause"] for cause in found["causes"]]
