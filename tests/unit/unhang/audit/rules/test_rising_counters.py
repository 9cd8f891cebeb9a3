"""Error counters are judged by how fast they rise: since boot, or since the last run."""

from __future__ import annotations

import dataclasses

import pytest
from changed_nodes import catalogue, changed, found_on_node
from healthy_platforms import PLATFORMS

from unhang.audit.rules.row_faults import proof_fault

RULE = "counter-rises-faster-than-healthy"
HOUR_S = 3600.0


def node(counters, uptime_h=100, earlier=None, others=None):
    """A node whose fourth card has these counters. others: those of the other cards, 0 without."""
    facts = {"node.uptime_s": uptime_h * HOUR_S, "node.earlier": earlier}
    facts["network.rdma[*].ports[0].counters"] = {
        "link_downed": 0,
        **(others or dict.fromkeys(counters, 0)),
    }
    facts["network.rdma[3].ports[0].counters"] = {"link_downed": 0, **counters}
    return changed(PLATFORMS["h100_infiniband"](), {"facts": facts})


@pytest.mark.parametrize(
    ("counters", "is_found"),
    [
        ({"symbol_error": 12_100}, True),
        ({"symbol_error": 11_900}, False),  # 119 an hour
        ({"link_error_recovery": 1_100}, True),
        ({"link_downed": 200}, True),
        ({"link_downed": 9}, False),
        ({"local_ack_timeout_err": 400_000}, True),
        ({"packet_seq_err": 400_000}, True),
        ({"out_of_sequence": 400_000}, True),
        ({"roce_adp_retrans": 400_000}, True),
        ({"out_of_sequence": 300_000}, False),
        ({"np_ecn_marked_roce_packets": 1 << 40}, False),  # no known normal rate
    ],
)
def test_a_counter_is_found_when_it_rises_faster_than_normal(counters, is_found):
    assert (found_on_node(node(counters)).get(RULE) == "warning") is is_found


def test_congestion_is_a_remark():
    assert found_on_node(node({"np_cnp_sent": 1 << 30})).get(RULE) == "info"


def test_losses_that_all_ports_count_accuse_none_of_them():
    """A healthy RoCE network moves these counters too: decision 0014."""
    busy = {"out_of_sequence": 400_000}
    assert RULE not in found_on_node(node(busy, others=busy))


def test_an_hour_after_boot_there_is_no_rate_yet():
    assert RULE not in found_on_node(node({"symbol_error": 5_000}, uptime_h=0.5))


def test_the_rate_since_the_last_run_counts_and_not_that_since_boot():
    def earlier(count):
        return {"uptime_s": 99 * HOUR_S, "counters": {"mlx5_3 symbol_error": count}}

    quiet = node({"symbol_error": 5_000_000}, earlier=earlier(4_999_990))
    rising = node({"symbol_error": 5_000}, earlier=earlier(4_000))
    assert RULE not in found_on_node(quiet)
    assert found_on_node(rising).get(RULE) == "warning"


def test_replays_of_a_slot_are_a_rate_too():
    healthy = PLATFORMS["h100_infiniband"]()
    facts = {"gpus.devices[5].pcie.replays": 500_000, "node.uptime_s": 100 * HOUR_S}
    assert found_on_node(changed(healthy, {"facts": facts})).get(RULE) == "warning"


def test_a_rule_of_counters_that_were_worked_out_needs_its_proof_too():
    rule = next(one for one in catalogue().rules if one.id == RULE)
    row = {key: value for key, value in rule.row.items() if key != "proof"}
    assert proof_fault(rule) is None
    assert "reads a counter" in proof_fault(dataclasses.replace(rule, row=row))
