"""One machine as several hosts: the GPUs of each host, and NCCL's settings."""

from __future__ import annotations

import threading

import pytest

from unhang.core.errors import UserError
from unhang.smoke.local_hosts import SHARED_GPU_BYTES, one_host, run_hosts, several_hosts
from unhang.smoke.node_plans import Member, Request, plan_group
from unhang.smoke.streams import Stream

EIGHT = [str(number) for number in range(8)]


def test_eight_gpus_as_two_hosts_are_shared_out_and_numbered_anew_on_each():
    here = several_hosts("gpu1", 2, EIGHT, None, None)
    assert here.members == (Member("gpu1-0", 4), Member("gpu1-1", 4))
    request = here.request(Request())
    assert request.rank_environment["3"] == {
        "NCCL_HOSTID": "gpu1-0",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    }
    assert request.rank_environment["4"] == {
        "NCCL_HOSTID": "gpu1-1",
        "CUDA_VISIBLE_DEVICES": "4,5,6,7",
    }
    plans = plan_group(request, here.members, "127.0.0.1", 29500)
    assert [plan.ranks for plan in plans] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert request.max_bytes is None


def test_gpus_that_do_not_go_round_are_left_out():
    here = several_hosts("gpu1", 3, EIGHT, None, None)
    assert [member.nproc for member in here.members] == [2, 2, 2]
    assert {row["CUDA_VISIBLE_DEVICES"] for row in here.environment.values()} == {
        "0,1",
        "2,3",
        "4,5",
    }


def test_one_gpu_is_shared_and_its_messages_are_small():
    here = several_hosts("gpu1", 2, ["0"], None, None)
    assert here.environment == {"0": {"NCCL_HOSTID": "gpu1-0"}, "1": {"NCCL_HOSTID": "gpu1-1"}}
    assert here.request(Request()).max_bytes == SHARED_GPU_BYTES
    assert here.request(Request(max_bytes=1024)).max_bytes == 1024


def test_a_ranks_own_settings_stay_in_force():
    request = several_hosts("gpu1", 2, ["0", "1"], None, None).request(
        Request(rank_environment={"1": {"NCCL_HOSTID": "mine", "A": "1"}})
    )
    assert request.rank_environment["1"] == {
        "NCCL_HOSTID": "mine",
        "A": "1",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_a_machine_as_it_is_gets_no_settings():
    request = Request(max_bytes=5)
    assert one_host("gpu1", 8, None).request(request) == request


@pytest.mark.parametrize(
    "count, gpus, nproc, message",
    [
        (1, EIGHT, None, "at least 2 hosts"),
        (9, EIGHT, None, "8 GPUs"),
        (2, EIGHT, 5, "at most 4 ranks"),
    ],
)
def test_hosts_that_cannot_be_made_are_refused(count, gpus, nproc, message):
    with pytest.raises(UserError, match=message):
        several_hosts("gpu1", count, gpus, nproc, None)


def test_agents_run_at_the_same_time_and_streams_keep_their_order():
    together = threading.Barrier(2, timeout=20)

    def run(plan):
        together.wait()
        return Stream(plan.host, plan.ranks)

    plans = plan_group(Request(), [Member("a", 1), Member("b", 1)], "127.0.0.1", 1)
    assert [stream.host for stream in run_hosts(plans, run)] == ["a", "b"]
