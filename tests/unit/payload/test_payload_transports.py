"""The transport of each pair of ranks: from NCCL's log and NVML's links to the label for people."""

from __future__ import annotations

from pathlib import Path

import pytest
import smoke_runs
from case_rows import case_rows

from unhang.smoke.bandwidth import group_of
from unhang.smoke.streams import Stream, stories
from unhang.smoke.transports import transport_rows

ROWS = case_rows(__file__)

CAPTURE = (
    Path(__file__).resolve().parents[2] / "fixtures" / "h200x8" / "torch-gpu-test-nccl-info.txt"
)
TWO_HOSTS = CAPTURE.parents[1] / "h200x1"
payload = smoke_runs.load_payload()


def log_of(*lines):
    """Lines as NCCL writes them."""
    return "".join(f"gpu1:31842:31905 [0] NCCL INFO {line}\n" for line in lines)


def rows_of(log, joined=None, world=2, backend="nccl"):
    """The result's rows, when every rank has this log. joined: pairs of ranks that NVML joins, None
    when it was not asked."""
    events = []
    for rank in range(world):
        device = {"index": rank, "uuid": f"GPU-{rank}", "model": "NVIDIA A100"}
        events += [
            {
                "e": "phase_end",
                "rank": rank,
                "phase": "environment",
                "status": "ok",
                "result": {"backend": backend},
            },
            {
                "e": "phase_end",
                "rank": rank,
                "phase": "binding",
                "status": "ok",
                "result": {"device": device},
            },
            {"e": "transports", "rank": rank, "warnings": [], **payload.transports_of(log)},
        ]
    if joined is not None:
        events.append(
            {
                "e": "nvlink",
                "pairs": [[f"GPU-{first}", f"GPU-{second}"] for first, second in joined],
            }
        )
    shown = stories([Stream("gpu1", tuple(range(world)), tuple(events))])
    rows = transport_rows(shown, events)
    return rows, group_of(shown, [event for event in events if event["e"] == "transports"], rows)


def test_a_real_log_of_eight_gpus_is_read():
    found = payload.transports_of(CAPTURE.read_text())
    assert found["pairs"]["0>1"] == {"via": ["P2P/CUMEM"], "channels": 24}
    assert len(found["pairs"]) >= 8
    assert found["nics"] == ["[0]eth0:192.0.2.2<0>"]
    assert found["devices"] == {"Socket": {"0": "eth0:192.0.2.2<0>"}}
    assert found["nvls"] is False, "0 nvls channels, whatever the GPUs could do"


def test_a_real_log_of_eight_gpus_is_labelled_nvlink_when_nvml_joins_all():
    joined = [(first, second) for first in range(8) for second in range(first)]
    rows, group = rows_of(CAPTURE.read_text(), joined, world=8)
    assert {row.label for row in rows} == {"NVLink (P2P/CUMEM)"}
    assert {row.kind for row in rows} == {"nvlink"}
    assert (group.transport, group.nvls) == ("nvlink", False)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_log_of_two_hosts_is_labelled_with_the_interface(rank):
    log = (TWO_HOSTS / f"nccl-two-hosts-rank{rank}.txt").read_text()
    assert payload.transports_of(log)["devices"] == {"Socket": {"0": "eth0:192.0.2.2<0>"}}
    rows, group = rows_of(log)
    assert {(row.sender, row.receiver, row.kind, row.label) for row in rows} == {
        (0, 1, "net", "NET Socket by eth0:192.0.2.2"),
        (1, 0, "net", "NET Socket by eth0:192.0.2.2"),
    }  # fmt: skip
    assert group.transport == "net"


def test_one_rank_is_no_group_whose_bandwidth_could_be_judged():
    rows, group = rows_of("", world=1)
    assert (rows, group) == ([], None)


@pytest.mark.parametrize(
    "lines, joined, kind, label",
    ROWS["test_each_way_has_its_kind_and_label"],
)
def test_each_way_has_its_kind_and_label(lines, joined, kind, label):
    [row], _ = rows_of(log_of(*lines), joined)
    assert (row.sender, row.receiver, row.kind, row.label) == (0, 1, kind, label)


def test_the_nic_of_a_pair_is_named():
    ways = [
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
        "Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1",
    ]
    lines = ["NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]", *ways]
    [row], group = rows_of(log_of(*lines))
    assert row.nics == ["mlx5_0:1/IB", "mlx5_1:1/IB"]
    assert group.transport == "net"


def test_each_end_of_a_network_numbers_its_own_devices():
    def told_by(rank, way, devices):
        log = log_of(
            f"NET/IB : Using {devices} [RO]; OOB eth0:10.0.0.1<0>",
            f"Channel 00/0 : 0[3] -> 1[0] [{way}] via NET/IB/1/GDRDMA",
        )
        return {"e": "transports", "rank": rank, **payload.transports_of(log)}

    events = [
        told_by(1, "receive", "[0]mlx5_6:1/IB [1]mlx5_7:1/IB"),
        told_by(0, "send", "[0]mlx5_0:1/IB [1]mlx5_1:1/IB"),
    ]
    [row] = transport_rows(stories([Stream("gpu1", (0, 1), tuple(events))]), events)
    assert row.nics == ["mlx5_1:1/IB", "mlx5_7:1/IB"]
    assert row.label == "NET IB by mlx5_1:1/IB with GPUDirect RDMA; received by mlx5_7:1/IB"


@pytest.mark.parametrize(
    "kinds, transport",
    [
        (["via P2P/IPC", "via SHM/direct/direct"], "shm"), (["via P2P/IPC"], "pcie"),
        (["via SHM/direct/direct", "[send] via NET/Socket/0"], "net"),
    ],
)  # fmt: skip
def test_the_groups_transport_is_the_slowest_in_use(kinds, transport):
    log = log_of(
        *[f"Channel 00 : 0[0] -> {target + 1}[1] {way}" for target, way in enumerate(kinds)]
    )
    assert rows_of(log, [], world=3)[1].transport == transport


@pytest.mark.parametrize(
    "line, nvls",
    [("24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels", True),
    ("24 coll channels, 24 collnet channels, 0 nvls channels", False),
     ("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)", True),
     ("NVLS multicast support is not available on dev 0", False)],
)  # fmt: skip
def test_whether_nvls_is_in_use_is_read_from_its_channels(line, nvls):
    assert payload.transports_of(log_of(line))["nvls"] is nvls


def test_what_a_node_says_of_transports_is_data():
    bad = {
        "e": "transports",
        "rank": 0,
        "pairs": {"0>1": {"via": [{"x": 1}], "channels": "many"}, "a>b": {}, "1>0": 5},
        "devices": ["x"],
        "graph": 7,
    }
    shown = stories([Stream("gpu1", (0, 1), (bad,))])
    [row] = transport_rows(shown, [bad, {"e": "nvlink", "pairs": [5, ["a"]]}])
    assert (row.sender, row.kind, row.channels) == (0, None, 0)
