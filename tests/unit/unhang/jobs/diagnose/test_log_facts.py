"""What happened, as facts with lines: collectives, ranks, first error, versions, network, settings,
and what several facts mean together."""

from __future__ import annotations

import json
import pickle

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.logs.flight_dumps import read_dumps


def diagnosis(tmp_path, *texts):
    names = []
    for number, text in enumerate(texts):
        log = tmp_path / f"{number}.log"
        log.write_text(text)
        names.append(str(log))
    return diagnose(names)


def watchdog(rank, seq=7, op="ALLREDUCE", numel=1, stamp="E105 10:31:12.100000000"):
    return (
        f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective"
        f" operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel},"
        f" NumelOut={numel}, Timeout(ms)=600000) ran for 600079 milliseconds before timing out.\n"
    )


def test_collective_sequence_number_size_limit_and_ranks_are_reported_with_their_lines(tmp_path):
    answer = diagnosis(
        tmp_path,
        "using world size: 4\n"
        + watchdog(0, 12, "_ALLGATHER_BASE", 1024)
        + watchdog(2, 12, "_ALLGATHER_BASE", 1024),
    )
    one = answer["facts"]["collectives"][0]
    assert (
        one["op"],
        one["seq"],
        one["numel"],
        one["timeout_ms"],
        one["ran_ms"],
        one["ranks"],
    ) == ("_ALLGATHER_BASE", 12, 1024, 600000, 600079, [0, 2])
    assert [line["line"] for line in one["lines"]] == [2, 3]
    assert answer["facts"]["ranks"] == {
        "world_size": 4,
        "at_least": False,
        "arrived": [0, 2],
        "not_arrived": [1, 3],
        "silent": [1, 3],
    }


def test_first_error_is_the_earliest_and_not_the_loudest(tmp_path):
    loud = "".join(
        f"2026-01-05 10:00:{second:02d} n1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress:"
        " Connection closed by remote peer n2<4>\n"
        for second in range(10, 59)
    )
    quiet = "2026-01-05 10:00:03 RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    answer = diagnosis(tmp_path, loud, quiet)
    assert (
        "ECC" in answer["facts"]["first_error"]["text"]
        and answer["facts"]["first_error"]["time"] == "2026-01-05 10:00:03"
    )
    assert answer["causes"][0]["cause"] == "xid_hardware"


def test_error_without_a_stamp_before_the_first_stamped_one_is_the_first(tmp_path):
    answer = diagnosis(
        tmp_path,
        "RuntimeError: CUDA error: invalid device ordinal\n2026-01-05 10:00:03 RuntimeError: CUDA"
        " out of memory. Tried\n",
    )
    assert "ordinal" in answer["facts"]["first_error"]["text"]


def test_first_error_is_the_earliest_of_one_clock_and_of_several_the_first_in_the_files(tmp_path):
    answer = diagnosis(
        tmp_path,
        "[2026-01-05 10:00:09,100] RuntimeError: CUDA out of memory. Tried\n",
        "2026-01-05 10:00:05,500 NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the"
        " bus.\n",
        "[Mon Jan  5 10:00:01 2026] Out of memory: Killed process 1 (python)\n",
    )
    assert "Xid" in answer["facts"]["first_error"]["text"]


def test_versions_hosts_transports_network_and_settings_are_reported(tmp_path):
    answer = diagnosis(
        tmp_path,
        "$ NCCL_DEBUG=INFO NCCL_IB_TIMEOUT=22 torchrun --nnodes=2 --nproc_per_node=8 a.py\n"
        "gpu001:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to =ens3\n"
        "gpu001:1:1 [0] NCCL INFO Bootstrap : Using ens3:198.51.100.1<0>\n"
        "gpu002:1:1 [0] NCCL INFO Bootstrap : Using ens3:198.51.100.2<0>\n"
        "gpu001:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ens3:198.51.100.1<0>\n"
        "gpu001:1:1 [0] NCCL INFO Using network IB\n"
        "gpu001:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "gpu001:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "gpu001:1:1 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3/GDRDMA\n"
        "[pip3] torch==2.4.1\n| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |\n5.15.0-105-generic\n",
    )
    facts = answer["facts"]
    assert facts["hosts"] == ["gpu001", "gpu002"] and facts["ranks"]["world_size"] == 16
    assert {name: rows[0]["value"] for name, rows in facts["versions"].items()} == {
        "driver": "550.54.15", "cuda": "12.4", "nccl": "2.21.5", "torch": "2.4.1",
        "kernel": "5.15.0-105-generic",
    }  # fmt: skip
    assert [one["value"] for one in facts["transports"]] == ["P2P/CUMEM", "NET/IB/GDRDMA"]
    assert (
        facts["network"]["chosen"][0]["value"] == "IB"
        and facts["network"]["gpudirect_rdma"] == "on"
    )
    assert {(one["name"], one["value"]) for one in facts["settings"]} >= {
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_SOCKET_IFNAME", "=ens3"),
    }
    assert all(one["line"] > 0 for one in facts["settings"])


def test_scontrol_ibstat_and_nccl_tests_are_read(tmp_path):
    answer = diagnosis(
        tmp_path,
        "NodeName=gpu012 Arch=x86_64\n   State=IDLE+DRAIN ThreadsPerCore=1\n   Reason=link flaps"
        " [root@2026-01-05T10:00:01]\n",
        "  1073741824     268435456     float     sum      -1   8101.0  132.55  231.96      0  "
        " 8100.0  132.56  231.99      0\n# Avg bus bandwidth    : 231.9\n",
    )
    assert [one["cause"] for one in answer["causes"]] == ["node_not_ready"]
    assert answer["facts"]["bandwidth"]["best_busbw_gb_s"] == 231.96


def test_ranks_in_different_collectives_are_a_fault_of_the_program(tmp_path):
    answer = diagnosis(tmp_path, watchdog(0, 7, "ALLREDUCE") + watchdog(1, 7, "BROADCAST"))
    assert answer["causes"][0]["cause"] == "rank_desync_app" and answer["decided"]


def test_many_collectives_queued_on_one_rank_are_no_difference_between_ranks(tmp_path):
    answer = diagnosis(
        tmp_path, watchdog(0, 7) + watchdog(0, 8, "BROADCAST") + watchdog(0, 9) + watchdog(1, 7)
    )
    said = [
        line["file"]
        for one in answer["causes"]
        if one["cause"] == "rank_desync_app"
        for line in one["evidence"]
    ]
    # no line and no rule says so; words alone are a remark
    assert set(said) <= {"resembles"} and not answer["found"]


def test_fabric_manager_that_has_nothing_to_do_is_harmless(tmp_path):
    answer = diagnosis(
        tmp_path,
        "Dec 12 08:30:13 b nv-fabricmanager[2]: request to query NVSwitch device information failed"
        " with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\nDec 12 08:30:13 b systemd[1]:"
        " nvidia-fabricmanager.service: Failed with result 'exit-code'.\n",
    )
    assert not answer["found"] and answer["remarks"][0]["kind"] == "harmless"


@pytest.mark.parametrize(
    "name", ["torch", "lightning", "accelerate", "deepspeed", "megatron", "transformers"]
)
def test_way_to_raise_a_timeout_is_reported_for_the_framework_of_the_log(tmp_path, name):
    answer = diagnosis(
        tmp_path, f'  File "/venv/site-packages/{name}/x.py", line 3\n' + watchdog(0) + watchdog(1)
    )
    remedy = next(
        one["remedy"] for one in answer["causes"] if one["cause"] == "watchdog_timeout_too_short"
    )
    assert name in remedy["how"] and "imeout" in remedy["how"][name]


def entry(seq, name="nccl:all_reduce", state="completed", sizes=((4,),)):
    return {
        "collective_seq_id": seq, "profiling_name": name, "state": state,
        "input_sizes": [list(one) for one in sizes], "process_group": ["0", "default_pg"],
        "timeout_ms": 600000, "frames": [{"name": "f", "line": 1}],
    }  # fmt: skip


def dump(*entries):
    return pickle.dumps({"version": "2.5", "pg_config": {}, "entries": list(entries)})


def test_recorder_dumps_name_the_ranks_that_called_another_collective(tmp_path):
    (tmp_path / "nccl_trace_rank_0").write_bytes(dump(entry(1), entry(2)))
    (tmp_path / "nccl_trace_rank_1").write_bytes(
        dump(entry(1), entry(2, "nccl:broadcast", "started"))
    )
    answer = diagnose([str(tmp_path)])
    assert [one["kind"] for one in answer["inputs"]] == ["dump", "dump"]
    (wait,) = answer["facts"]["flight_recorder"]["waited_for"]["waits"]
    assert wait["seq"] == 2 and [one["ranks"] for one in wait["calls"]] == ["0", "1"]
    assert answer["causes"][0]["cause"] == "rank_desync_app"


@pytest.mark.parametrize("gave_up", [False, True])
def test_dumps_between_which_ranks_went_on_accuse_nobody_but_after_a_timeout(tmp_path, gave_up):
    for seq in (1, 50):
        for rank, state in enumerate(("scheduled", "scheduled", "completed")):
            call = entry(seq - (rank == 2), state=state)
            status = {"last_enqueued_collective": seq, "last_completed_collective": seq - 1}
            content = {"rank": rank, "pg_status": {"0": status}, "entries": [call]}
            (tmp_path / f"{seq:02}{rank}.json").write_text(json.dumps(content))
    (tmp_path / "log").write_text(watchdog(0, 50) if gave_up else "step 50 loss 2.1\n")
    answer = diagnose([str(tmp_path)])
    assert [one["where"] for one in answer["causes"][:1]] == [["rank 2"]] * gave_up
    assert ("went on while these" in answer["outcome"]["why"]) != gave_up


class Planted:
    """A pickle that would write a file when it is loaded by the usual means."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_planted_pickle_runs_nothing_and_is_reported(tmp_path, protocol):
    target = tmp_path / "planted"
    trace = tmp_path / "nccl_trace_rank_0"
    trace.write_bytes(pickle.dumps({"entries": [Planted(str(target))]}, protocol))
    (tmp_path / "job.log").write_text("step 1 | loss 2\n")
    answer = diagnose([str(tmp_path)])
    assert not target.exists()
    shown = next(one for one in answer["inputs"] if one["file"].endswith("rank_0"))
    assert shown["kind"] == "unread" and "not plain data" in shown["notes"][0]


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04",
        b"\x80\x05.",
        dump(entry(1))[:40],
        b"\x80\x04K\x01.",
        pickle.dumps([1, 2]),
        b'{"entries": 3, "pg_config": 1}',
    ],
)
def test_damaged_dump_is_reported_in_one_line(data):
    with pytest.raises(ValueError) as problem:
        read_dumps(data, "rank_0")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (
            "You are using an old version of the checkpointing format that is deprecated",
            "harmless",
            "nothing to do with a hang",
        ),
        ("export NCCL_TIMEOUT=1200000", "folklore", "init_process_group"),
        ("export NCCL_BLOCKING_WAIT=1", "folklore", "TORCH_NCCL_"),
        ("sudo apt-get install linux-generic-5.5", "folklore", "hwe"),
        ("export NCCL_SOCKET_IFNAME=eth0", "folklore", "exact name"),
        ("export NCCL_IB_DISABLE=1", "folklore", "leave it out"),
        ("NCCL_P2P_DISABLE=1 python train.py", "folklore", "ACS"),
        ("export NCCL_ALGO=Tree", "folklore", "unset"),
    ],
)
def test_setting_of_the_write_ups_is_known_with_its_replacement(tmp_path, line, kind, message):
    remarks = diagnosis(tmp_path, line + "\n")["remarks"]
    assert any(
        one["kind"] == kind and message in f"{one['says']} {one['instead']}" for one in remarks
    )
