"""The payload's pure functions: mapped libraries, values that must agree, transports from NCCL's
log, interfaces that a setting allows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from smoke_runs import load_payload

from unhang.smoke import node_plans as planning

payload = load_payload()


def rank_facts(rank, machine="m", index=None, local_rank=None, **more):
    """Facts of one rank in the form in which ranks exchange them."""
    local_rank = rank if local_rank is None else local_rank
    index = local_rank if index is None else index
    device = {
        "index": index,
        "uuid": f"GPU-{machine}-{index}",
        "model": "NVIDIA H200",
        "local_rank": local_rank,
        "local_rank_set": True,
    }
    nccl = [{"path": "/x/libnccl.so.2", "version": "2.28.9", "build_id": "ab" * 20}]
    return {
        "backend": "nccl",
        "torch": "2.11.0",
        "cuda": "13.0",
        "world": 4,
        "nccl": nccl,
        "variables": {},
        "machine": machine,
        "device": device,
        **more,
    }


def test_equal_ranks_have_no_differences():
    assert payload.differences([rank_facts(rank) for rank in range(4)]) == []


@pytest.mark.parametrize(
    "more, name",
    [
        ({"torch": "2.10.0"}, "torch"),
        ({"nccl": [{"path": "/y", "version": "2.27.3", "build_id": "cd" * 20}]}, "NCCL"),
        ({"nccl": [{"path": "/y", "version": "2.28.9", "build_id": "cd" * 20}]}, "NCCL"),
        ({"net_plugins": ["/opt/amazon/libnccl-net.so"]}, "net plugin"),
        ({"variables": {"NCCL_PROTO": "LL"}}, "NCCL_PROTO"),
        ({"variables": {"NCCL_P2P_DISABLE": "1"}}, "NCCL_P2P_DISABLE"),
        ({"nccl_conf": [["/etc/nccl.conf", "NCCL_IB_DISABLE=1"]]}, "NCCL_IB_DISABLE"),
        ({"world": 8}, "world size"),
    ],
)
def test_a_rank_that_differs_is_reported_with_both_values(more, name):
    rows = payload.differences([rank_facts(0), rank_facts(1), rank_facts(2, **more)])
    assert [row["name"] for row in rows] == [name]
    assert sorted(rows[0]["values"].values()) == [[0, 1], [2]]


def test_settings_of_the_node_itself_may_differ():
    facts = [
        rank_facts(0, variables={"NCCL_SOCKET_IFNAME": "eth0"}),
        rank_facts(1, variables={"NCCL_SOCKET_IFNAME": "ib0", "NCCL_HOSTID": "b"}),
    ]
    assert payload.differences(facts) == []


@pytest.mark.parametrize(
    "everyone, blamed, message",
    [
        ([rank_facts(0), rank_facts(1, index=0)], [1], "the program chose the device"),
        (
            [
                rank_facts(0, local_rank=0),
                rank_facts(1, index=0, local_rank=1, variables={"CUDA_VISIBLE_DEVICES": "0"}),
            ],
            [1],
            "CUDA_VISIBLE_DEVICES=0",
        ),
        (
            [rank_facts(rank, index=0) for rank in range(4)],
            [1, 2, 3],
            "the program chose the device",
        ),
    ],
    ids=["one on another's", "by the variable", "all on GPU 0"],
)
def test_a_rank_on_anothers_gpu_is_named_with_what_caused_it(everyone, blamed, message):
    [fault] = payload.binding_faults(everyone)
    assert fault["blamed"] == blamed
    assert message in fault["variable"]


def test_a_missing_local_rank_is_the_cause_that_is_named():
    everyone = [rank_facts(rank, index=0, local_rank=0) for rank in range(2)]
    for facts in everyone:
        facts["device"]["local_rank_set"] = False
    [fault] = payload.binding_faults(everyone)
    assert fault["variable"] == "LOCAL_RANK is not set"


def test_the_same_index_on_two_machines_is_no_fault():
    assert (
        payload.binding_faults(
            [rank_facts(0, machine="a"), rank_facts(1, machine="b", local_rank=0)]
        )
        == []
    )


@pytest.mark.parametrize(
    "variable, value, holds",
    [
        ("NCCL_SOCKET_IFNAME", "eth", True), ("NCCL_SOCKET_IFNAME", "=eth", False),
        ("NCCL_SOCKET_IFNAME", "=eth0", True), ("NCCL_SOCKET_IFNAME", "ib", False),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", True), ("NCCL_SOCKET_IFNAME", "^lo,docker,eth", False),
        ("NCCL_SOCKET_IFNAME", "ib,eth", True),
        ("NCCL_SOCKET_IFNAME", "", True), ("GLOO_SOCKET_IFNAME", "eth", False),
        ("GLOO_SOCKET_IFNAME", "eth0", True),
    ],
)  # fmt: skip
def test_a_setting_names_interfaces_as_nccl_and_gloo_read_it(variable, value, holds):
    assert payload.names_interface(variable, value, ["lo", "eth0", "docker0"]) is holds


@pytest.mark.parametrize(
    "number, text", [(22809, "2.28.9"), (2708, "2.7.8"), (21805, "2.18.5"), (0, None)]
)
def test_versions_of_nccl_are_read_in_both_ways_of_counting(number, text):
    assert payload.nccl_version(number) == text


def test_the_build_id_of_a_real_library_is_what_the_collector_reads():
    from unhang_node.facts.parse.elf import find_build_id, read_sections

    path = os.path.realpath(sys.executable)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert payload.build_id(path) == find_build_id(descriptor, read_sections(descriptor))
    finally:
        os.close(descriptor)
    assert payload.build_id("/etc/hostname") is None
    assert payload.build_id("/nowhere") is None


def test_mapped_libraries_are_told_from_the_map(tmp_path):
    maps = tmp_path / "maps"
    library = "/opt/a b/libnccl.so.2.28.9"
    lines = [
        f"7f0 r-xp 0 08:01 1    {library}",
        f"7f1 r--p 0 08:01 1    {library}",
        "7f2 rw-p 0 00:00 0",
        "7f3 r-xp 0 08:01 2 /usr/lib/libc.so.6",
    ]
    maps.write_text("\n".join(lines) + "\n")
    assert payload.mapped_libraries("libnccl.so", str(maps)) == [library]


def test_ranks_take_their_place_from_torchrun_and_from_srun():
    assert payload.rank_place(
        {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    ) == (3, 8, 1, 2)
    assert payload.rank_place(
        {
            "SLURM_PROCID": "5",
            "SLURM_NTASKS": "16",
            "SLURM_LOCALID": "1",
            "SLURM_NTASKS_PER_NODE": "8(x2)",
        }
    ) == (5, 16, 1, 8)
    with pytest.raises(payload.Failed, match="RANK and WORLD_SIZE are not set"):
        payload.rank_place({})


def test_the_status_board_can_be_read_by_another_process_at_any_moment(tmp_path):
    board = payload.Board(str(tmp_path / "board"), create=True)
    board.begin("all_reduce", "all_reduce float32", 10.0, 99.0)
    board.enter()
    seen = payload.Board(str(tmp_path / "board")).read()
    assert (seen["phase"], seen["step"], seen["seq"], seen["done"], seen["phase_until"]) == (
        "all_reduce",
        "all_reduce float32",
        1,
        0,
        99.0,
    )
    board.leave()
    assert payload.Board(str(tmp_path / "board")).read()["done"] == 1


def test_what_only_the_controller_knows_of_phases_agrees_with_the_payload():
    assert tuple(payload.PHASES) == planning.PHASES


@pytest.mark.parametrize("world", [1, 2, 8, 300])
def test_test_data_is_exact_in_bfloat16_and_differs_between_ranks(world):
    torch = pytest.importorskip("torch")

    class Place:
        device = torch.device("cpu")

    run = Place()
    run.world = world
    total = payload.reduced_pattern(torch, run, 4096, 5, torch.int64)
    assert int(total.abs().max()) <= 256
    assert torch.equal(total.to(torch.bfloat16).to(torch.int64), total)
    assert not torch.equal(
        payload.pattern(torch, run.device, 4096, 0, 5, 256, torch.float32),
        payload.pattern(torch, run.device, 4096, 1, 5, 256, torch.float32),
    )
    whole = payload.pattern(torch, run.device, 4096, 3, 5, 256, torch.float32)
    assert torch.equal(
        whole[1000:1100],
        payload.pattern(torch, run.device, 100, 3, 5, 256, torch.float32, start=1000),
    )


def test_a_rank_that_is_asked_for_stacks_before_it_can_answer_lives_on():
    waiting = "import sys, time\nprint('here', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=payload.begin_rank,  # noqa: PLW1509
    ) as rank:
        rank.stdout.readline()
        rank.send_signal(signal.SIGUSR1)
        rank.stdin.close()
        assert rank.wait() == 0


def test_the_way_to_the_meeting_may_be_given_less_time():
    assert payload.phase_limit_s(
        {"world_size": 2, "rendezvous_timeout_s": 25}, "rendezvous"
    ) == pytest.approx(25.1)
    assert payload.phase_limit_s({"world_size": 2}, "rendezvous") == pytest.approx(60.1)
    assert payload.phase_limit_s(
        {"world_size": 2, "rendezvous_timeout_s": 25}, "init"
    ) == pytest.approx(60.1)
