"""A counter that rises on healthy machines is no evidence; one that rises above the normal rate and
above its peers is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from smoke_runs import stalled

from unhang.smoke.counter_rates import counter_kind, median_without, outstanding
from unhang.smoke.expectations import read_expectations

RATES = read_expectations().counter_rates
RECORDED = json.loads(
    (
        Path(__file__).resolve().parents[3] / "fixtures" / "h200x8" / "nvlink-errors-healthy.json"
    ).read_text()
)
HEALTHY = [
    pytest.param(rises, float(re.search(r"\((\d+) s\)", name)[1]), id=name) for name,
    rises in RECORDED.items() if isinstance(rises, dict)
]  # fmt: skip
LINKS = {
    "replay errors": 144,
    "recovery errors": 144,
    "CRC errors": 144,
    "CRC data errors": 144,
    "symbol errors": 144,
}
PORTS = dict.fromkeys(
    (
        "symbol_error",
        "link_downed",
        "port_xmit_discards",
        "packet_seq_err",
        "local_ack_timeout_err",
        "out_of_sequence",
    ),
    8,
)
GPUS = {"PCIe replays": 8, "corrected memory errors": 8, "uncorrected memory errors": 8}


def node(host="gpu001", seconds=44.0, **rises):
    """Evidence of one node with 8 GPUs, 144 links and 8 ports. rises: `nvlink`, `counters`."""
    return {
        "host": host,
        "kernel_log": [],
        "nvml": None,
        "nccl_warnings": [],
        "peers": {**LINKS, **PORTS, **GPUS},
        "counted_s": seconds,
        **rises,
    }


def named(*nodes):
    return [(rise.host, rise.name) for rise in outstanding(nodes, RATES)]


@pytest.mark.parametrize("rises, seconds", HEALTHY)
def test_what_a_healthy_machine_counted_accuses_nobody_and_stays_in_the_evidence(rises, seconds):
    assert len(rises) > 100
    result = stalled(node(nvlink=rises, seconds=seconds))
    assert [
        suspect["why"]
        for suspect in result["suspects"]
        if "likely" in suspect["why"] or "rose" in suspect["why"]
    ] == []
    assert result["nodes"][0]["nvlink"] == rises


@pytest.mark.parametrize("rises, seconds", HEALTHY)
@pytest.mark.parametrize(
    "kind, times",
    [("CRC errors", 1), ("CRC errors", 2000), ("replay errors", 1), ("symbol errors", 1)],
)
def test_links_that_all_count_alike_name_none_of_them_however_much_they_count(
    rises, seconds, kind, times
):
    assert (
        named(
            node(
                nvlink={
                    name.replace("CRC data errors", kind): count * times
                    for name, count in rises.items()
                },
                seconds=seconds,
            )
        )
        == []
    )


@pytest.mark.parametrize("rises, seconds", HEALTHY)
@pytest.mark.parametrize(
    "kind, count", [("CRC errors", 200_000), ("replay errors", 400), ("recovery errors", 300)]
)
def test_a_link_that_is_bad_is_named_among_what_healthy_ones_count(rises, seconds, kind, count):
    bad = {"GPU 3 link 7 " + kind: count}
    assert named(node(nvlink=rises | bad, seconds=seconds)) == [("gpu001", "GPU 3 link 7 " + kind)]
    noisy = {name.replace("CRC data errors", kind): number for name, number in rises.items()}
    assert named(node(nvlink=noisy | bad, seconds=seconds)) == [("gpu001", "GPU 3 link 7 " + kind)]


def test_what_is_said_of_a_bad_link_names_what_is_normal_and_what_its_peers_counted():
    [suspect] = stalled(
        node(nvlink={"GPU 3 link 7 CRC errors": 200_000, "GPU 3 link 8 CRC errors": 9})
    )["suspects"]
    assert suspect["why"].endswith(
        "likely: gpu001: GPU 3 link 7 CRC errors rose by 200000, normal are up to 6000 and none on"
        " its peers"
    )


@pytest.mark.parametrize(
    "rises",
    [
        {"nvlink": {"GPU 0 link 3 CRC errors": 900}},
        {"nvlink": {"GPU 0 link 3 replay errors": 1}},
        {"nvlink": {"GPU 0 link 3 data sent (KiB)": 10**9}},
        {"nvlink": {"GPU 2 PCIe replays": 30}},
        {"nvlink": {"GPU 2 corrected memory errors": 4000}},
        {"counters": {"mlx5_0 port 1 symbol_error": 3}},
        {
            "counters": {
                "mlx5_0 port 1 packet_seq_err": 60,
                "mlx5_0 port 1 out_of_sequence": 5000,
                "mlx5_0 port 1 local_ack_timeout_err": 4,
            }
        },
        {
            "counters": {
                "mlx5_2 port 1 port_xmit_discards": 80,
                "mlx5_2 port 1 port_xmit_wait": 10**7,
            }
        },
        {
            "counters": {
                "eth0 rx_errors": 12,
                "eth0 rx_dropped": 900,
                "eth0 rx_crc_errors": 5,
                "eth0 tx_carrier_errors": 1,
            }
        },
        {
            "counters": {
                "mlx5_0 port 1 np_cnp_sent": 10**6,
                "mlx5_0 port 1 rp_cnp_handled": 10**6,
                "mlx5_0 port 1 roce_slow_restart": 9,
            }
        },
        {"counters": {"mlx5_0 port 1 symbol_error": -4}, "nvlink": ["x"]},
        {"counters": {"nonsense": 4, "mlx5_0 port 1 link_downed": "many"}, "nvlink": None},
    ],
    ids=lambda rises: (
        next(iter(rises.get("counters") or {"other": 0}))
        if "counters" in rises
        else str(rises)[:60]
    ),
)
def test_what_healthy_machines_count_now_and_then_names_nobody(rises):
    assert named(node(**rises)) == []


@pytest.mark.parametrize(
    "kind, rises",
    [
        ("nvlink", {"GPU 2 PCIe replays": 5000, "GPU 1 PCIe replays": 3}),
        ("nvlink", {"GPU 2 uncorrected memory errors": 1}),
        ("nvlink", {"GPU 2 link 1 recovery errors": 4}),
        ("counters", {"mlx5_3 port 1 symbol_error": 4000, "mlx5_1 port 1 symbol_error": 2}),
        ("counters", {"mlx5_3 port 1 link_downed": 1}),
        ("counters", {"mlx5_3 port 1 req_transport_retries_exceeded": 2}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_what_no_healthy_machine_counts_is_named(kind, rises):
    assert named(node(**{kind: rises})) == [("gpu001", next(iter(rises)))]


def test_a_longer_look_may_count_more():
    assert named(node(nvlink={"GPU 2 PCIe replays": 600}, seconds=30.0)) == [
        ("gpu001", "GPU 2 PCIe replays")
    ]
    assert named(node(nvlink={"GPU 2 PCIe replays": 600}, seconds=600.0)) == []


def test_peers_are_those_of_all_nodes_and_a_machine_without_any_has_the_rate_alone():
    busy = [
        node(
            f"gpu{number:03d}",
            counters={f"mlx5_{port} port 1 symbol_error": 900 for port in range(8)},
        )
        for number in range(8)
    ]
    assert named(*busy) == []
    alone = {
        "host": "gpu009",
        "peers": {"symbol_error": 1},
        "counted_s": 30,
        "counters": {"ib0 symbol_error": 99},
    }
    assert named(alone) == [("gpu009", "ib0 symbol_error")]
    [rise] = outstanding([alone], RATES)
    assert rise.text == "ib0 symbol_error rose by 99, normal are up to 10 and none on its peers"


def test_without_known_rates_no_counter_is_named():
    assert outstanding([node(counters={"mlx5_3 port 1 link_downed": 5})], {}) == []


@pytest.mark.parametrize(
    "counts, one, median",
    [
        ([5], 5, 0),
        ([0, 9], 9, 0),
        ([0, 9], 0, 9),
        ([1, 2, 3, 4], 4, 2),
        ([1, 2, 3, 4], 2, 3),
        ([7, 7, 7], 7, 7),
    ],
)
def test_a_median_leaves_the_one_out_that_it_is_compared_with(counts, one, median):
    assert median_without(counts, one) == median


def test_the_device_is_told_from_the_counter():
    names = [
        "GPU 0 link 3 replay errors",
        "GPU 11 PCIe replays",
        "mlx5_bond_0 port 2 symbol_error",
        "ens1f0np0 rx_errors",
        "x",
    ]
    assert list(map(counter_kind, names)) == [
        "replay errors",
        "PCIe replays",
        "symbol_error",
        "rx_errors",
        None,
    ]


def test_every_row_of_the_table_says_where_its_rate_is_from():
    from unhang.judge.rules.compiled_catalogue import load_catalogue

    table = load_catalogue().tables["counter_rates"]
    assert set(RATES) == {name for name, row in table.items() if "per_minute" in row}
    unlimited = [row for row in table.values() if not {"per_minute", "steady_per_hour"} & set(row)]
    assert {row["severity"] for row in unlimited} == {"info"}
    assert all(row.get("sources") or row.get("source") for row in table.values())


def test_a_row_whose_number_no_source_has_says_that_it_is_our_own():
    file = next(
        Path(__file__).resolve().parents[4].glob("tools/*/smoke/catalogue/tables/counter_*")
    )
    rows = yaml.safe_load(file.read_text())["tables"]["counter_rates"]["rows"]
    inferred = {one["counter"] for one in rows if one.get("confidence") == "inferred"}
    assert inferred == {
        one["counter"] for one in rows if str(one.get("note", "")).startswith("own number")
    }
    assert inferred >= {
        "packet_seq_err", "out_of_sequence", "roce_adp_retrans", "port_rcv_errors", "link_downed",
        "rp_cnp_handled", "np_cnp_sent", "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
    }  # fmt: skip
