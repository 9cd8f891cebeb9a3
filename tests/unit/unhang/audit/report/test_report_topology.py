"""Topologies from plausible and absurd facts."""

from __future__ import annotations

import fleets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.audit.report.drawing import draw, matrix
from unhang.audit.report.topology import topology_of, troubles


def test_what_is_marked_is_also_said():
    topology = topology_of(fleets.h200(active={5: 17}, ports_down={2}))
    assert troubles(topology) == ["GPU 5: 17 of 18 NVLinks active", "port mlx5_2 is down"]
    assert sorted(shape.kind for shape in draw(topology).shapes if shape.bad) == ["edge", "port"]


def test_a_pair_that_cannot_reach_each_other_is_marked():
    topology = topology_of(fleets.sections(fleets.RTX3090, 4, "", "", "", cut_off={(0, 1)}))
    assert troubles(topology) == ["GPU 0 cannot reach GPU 1: chipset_not_supported"]
    assert [square.label for square in matrix(topology).squares if square.state == "bad"] == ["✕"]


def test_a_narrow_slot_is_marked():
    topology = topology_of(fleets.sections(fleets.A6000, 3, "", "", "", narrow={2: 8}))
    assert troubles(topology) == ["GPU 2: PCIe x8 of x16"]


def test_a_card_without_a_bridge_has_no_link_that_is_down():
    assert (
        troubles(
            topology_of(
                fleets.sections(
                    fleets.RTX3090, 2, "", "", "", nvlinks=4, remote="none", active={0: 0, 1: 0}
                )
            )
        )
        == []
    )


def test_links_to_switches_that_are_all_down_are_marked():
    sections = fleets.h200(active={0: 0})
    sections["interconnect"]["by_gpu"][0]["remote"] = "none"
    assert troubles(topology_of(sections)) == ["GPU 0: 0 of 18 NVLinks active"]


def test_nodes_that_are_joined_alike_compare_equal():
    other = fleets.h200()
    for device in other["gpus"]["devices"]:
        device["uuid"], device["pci_address"] = "GPU-other", "0001:00:00.0"
    assert topology_of(fleets.h200()) == topology_of(other)
    assert troubles(topology_of(other)) == []


@pytest.mark.parametrize("count", [2, 3, 8, 16, 128])
def test_nothing_is_drawn_outside_the_drawing(count):
    topology = topology_of(
        fleets.sections(fleets.H200, count, "", "", "", nvlinks=18, remote="switch", ports=count)
    )
    drawing = draw(topology)
    assert len(topology.gpus) == min(count, 32)
    for shape in drawing.shapes:
        assert shape.x >= 0 and shape.x + shape.width <= drawing.width
        assert drawing.top <= shape.y and shape.y + shape.height <= drawing.top + drawing.height


@pytest.mark.parametrize("count", [0, 1])
def test_one_gpu_is_joined_to_nothing(count):
    assert topology_of(fleets.sections(fleets.H200, count, "", "", "")) is None


SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries({"index": SCRAPS, "pcie": SCRAPS, "numa_node": SCRAPS}), max_size=4
    ),
    SCRAPS,
    SCRAPS,
    SCRAPS,
)
def test_fields_of_a_wrong_type_count_as_not_read(devices, by_gpu, pairs, rdma):
    sections = {
        "gpus": {"devices": [{"index": 0}, {"index": 1}, *devices], "model": by_gpu},
        "interconnect": {"by_gpu": by_gpu, "pairs": pairs},
        "network": {"rdma": rdma},
    }
    topology = topology_of(sections)
    assert topology is not None
    draw(topology), matrix(topology), troubles(topology), hash(topology)
