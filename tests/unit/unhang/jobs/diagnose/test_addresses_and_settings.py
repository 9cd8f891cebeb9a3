"""Rules over addresses of launch and hosts, over settings that switch something off, and over what
a person tried: each with near misses."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

SIZE = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=14022,"
    " OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600037"
    " milliseconds before timing out.\n"
)
HANGS = "# reporter: it hangs after some hundred steps\n"


@pytest.fixture
def answer(tmp_path):
    """text -> {cause: its standing} of the diagnosis, in the order of its ranks."""

    def of(text):
        log = tmp_path / "job.log"
        log.write_text(text, encoding="utf-8")
        return {cause["cause"]: cause for cause in diagnose([str(log)])["causes"]}

    return of


def _first(causes):
    return next(iter(causes), None)


@pytest.mark.parametrize(("sizes", "desync"), [((1, 500, 500), True), ((500, 500, 500), False)])
def test_rank_that_saved_and_waits_in_another_call_than_the_others_is_no_longer_at_work(
    answer, sizes, desync
):
    text = "Saving model checkpoint to /ckpt/500\n" + "".join(
        SIZE.format(rank=rank, size=size) for rank, size in enumerate(sizes)
    )
    causes = answer(text)
    loud = [name for name, one in causes.items() if one["severity"] != "info"]
    assert loud == ["rank_desync_app"] * desync


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False)])
def test_launches_that_wait_for_their_kernel_inside_of_nccl_are_a_matter_of_the_setting(
    answer, value, shown
):
    causes = answer(
        f"CUDA_LAUNCH_BLOCKING={value}\n{HANGS}#4  0x00007f1ef0b2d118 in ncclLaunchKernel () at"
        " enqueue.cc:1104\n"
    )
    assert (_first(causes) == "env_var_misconfig") == shown


def test_host_with_its_slots_is_no_host_that_does_not_resolve(answer):
    slots = next(
        iter(
            answer(
                "ssh: Could not resolve hostname node-1:8: Temporary failure in name resolution\n"
            )
        )
    )
    assert slots == "launch_mismatch"
    assert (
        next(
            iter(
                answer(
                    "ssh: Could not resolve hostname node-1: Temporary failure in name resolution\n"
                )
            )
        )
        == "dns_hostname"
    )


@pytest.mark.parametrize(
    ("name", "cause"),
    [("eth0", "wrong_interface"), ("bond0.120", "wrong_interface"), ("node-7.lab", "dns_hostname")],
)
def test_gloo_looks_for_an_interface_or_for_the_name_of_a_host(answer, name, cause):
    line = (
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:127] rp !="
        " nullptr. Unable to find address for: "
    )
    assert next(iter(answer(f"{line}{name}\n"))) == cause
