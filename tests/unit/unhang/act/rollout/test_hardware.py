"""Hardware that a node has lost by a change."""

from __future__ import annotations

import copy

import pytest

from unhang.act.rollout.hardware import losses, read_hardware

SECTIONS = {
    "node": {"memory_total_bytes": 2_000_000_000, "numa_nodes": 2},
    "gpus": {
        "devices": [{"uuid": f"GPU-{number}", "memory_total_mib": 143771.0} for number in range(8)]
    },
    "interconnect": {
        "by_gpu": [{"uuid": f"GPU-{number}", "nvlinks_active": 18} for number in range(8)],
        "fabric_state": "completed",
    },
    "network": {
        "rdma": [
            {"name": f"mlx5_{number}", "ports": [{"port": 1, "state": "active"}]}
            for number in range(4)
        ]
    },
}


def changed(change):
    sections = copy.deepcopy(SECTIONS)
    change(sections)
    return sections


def lost(change, policy=None):
    return losses(read_hardware(SECTIONS), read_hardware(changed(change)), policy or {})


def drop_gpu(sections):
    del sections["gpus"]["devices"][3], sections["interconnect"]["by_gpu"][3]


def test_a_node_that_has_what_it_had_has_lost_nothing():
    assert lost(lambda sections: None) == []
    assert lost(lambda sections: sections["node"].update(memory_total_bytes=1_990_000_000)) == []
    assert (
        lost(
            lambda sections: sections["gpus"]["devices"].append(
                {"uuid": "GPU-9", "memory_total_mib": 143771.0}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (drop_gpu, "of the 8 GPUs of before, 7 are there; gone are GPU-3"),
        (
            lambda sections: sections["gpus"]["devices"][3].update(error="lost"),
            "of the 8 GPUs of before, 7 are there; gone are GPU-3",
        ),
        (
            lambda sections: sections["gpus"]["devices"][0].update(memory_total_mib=81559.0),
            "GPU GPU-0 has 81559 MiB of memory, not 143771 as before",
        ),
        (
            lambda sections: sections["interconnect"]["by_gpu"][1].update(nvlinks_active=17),
            "GPU GPU-1 has 17 active NVLinks, not 18 as before",
        ),
        (
            lambda sections: sections["interconnect"].update(fabric_state="in_progress"),
            "the NVSwitch fabric is in progress, not completed as before",
        ),
        (
            lambda sections: sections["network"]["rdma"][2]["ports"][0].update(state="down"),
            "of the 4 active RDMA ports of before, 3 are active; not active are mlx5_2:1",
        ),
        (
            lambda sections: sections["node"].update(memory_total_bytes=1_900_000_000),
            "the node has 1900000000 bytes of memory, not 2000000000 as before",
        ),
        (
            lambda sections: sections["node"].update(numa_nodes=1),
            "the node has 1 NUMA nodes, not 2 as before",
        ),
        (
            lambda sections: sections["gpus"].update(devices=None),
            "no longer known: the node's GPUs",
        ),
        (lambda sections: sections.pop("network"), "no longer known: active RDMA ports"),
    ],
)
def test_what_is_gone_is_named(change, line):
    assert lost(change) == [line]


def test_what_the_policy_asks_for_is_no_loss():
    assert lost(drop_gpu, {"gpu": {"count": 7}}) == []
    assert (
        lost(lambda sections: sections["network"]["rdma"].pop(), {"network": {"rdma_ports": 3}})
        == []
    )
    assert (
        lost(
            lambda sections: sections["interconnect"]["by_gpu"][1].update(nvlinks_active=17),
            {"nvlink": {"links_per_gpu": 12}},
        )
        == []
    )
    assert lost(drop_gpu, {"gpu": {"count": 8}}) != []


def test_what_was_not_read_before_cannot_be_lost():
    assert losses(read_hardware({}), read_hardware(SECTIONS), {}) == []
