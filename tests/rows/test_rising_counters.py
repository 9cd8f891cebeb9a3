"""Error counters are judged by how fast they rise: since boot, or since the last run."""

from __future__ import annotations

import dataclasses
import json

import pytest
from case_rows import case_rows
from changed_nodes import catalogue, changed, found_in_group, found_on_node
from healthy_platforms import PLATFORMS
from house_faults import proof_fault
from run_folders import Fleet

from unhang.judge.rules.rules import SEVERITIES
from unhang.judge.triage.run_judging import judge_folder

ROWS = case_rows(__file__)

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
    ROWS["test_a_counter_is_found_when_it_rises_faster_than_normal"],
)
def test_a_counter_is_found_when_it_rises_faster_than_normal(counters, is_found):
    assert (found_on_node(node(counters)).get(RULE) == "warning") is is_found


@pytest.mark.parametrize("kind", ["np_cnp_sent", "port_xmit_wait", "out_of_buffer", "a_new_one"])
def test_congestion_and_what_nobody_knows_is_a_remark_beside_quiet_neighbours(kind):
    assert found_on_node(node({kind: 1 << 30})).get(RULE) == "info"
    assert RULE not in found_on_node(node({kind: 1 << 30}, others={kind: 1 << 28}))


def test_a_port_with_another_purpose_has_no_like():
    counters = {"port_xmit_wait": 1 << 30, "port_rcv_packets": 1 << 40}
    for packets, wanted in ((1 << 30, None), (1 << 40, "info")):
        others = {"port_xmit_wait": 0, "port_rcv_packets": packets}
        assert found_on_node(node(counters, others=others)).get(RULE) == wanted


def test_fewer_than_four_ports_accuse_none_of_them_without_a_known_rate():
    few = node({"port_xmit_wait": 1 << 30})
    few["sections"]["network"]["rdma"] = few["sections"]["network"]["rdma"][1:4]
    assert RULE not in found_on_node(few)


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


@pytest.mark.parametrize(
    ("errors", "is_found"),
    ROWS["test_replays_and_crc_errors_of_an_nvlink_are_a_rate"],
)
def test_replays_and_crc_errors_of_an_nvlink_are_a_rate(errors, is_found):
    facts = {"interconnect.links[7].errors": errors, "node.uptime_s": 100 * HOUR_S}
    document = changed(PLATFORMS["h100_infiniband"](), {"facts": facts})
    assert (found_on_node(document).get(RULE) == "warning") is is_found


def test_a_rule_of_counters_that_were_worked_out_needs_its_proof_too():
    rule = next(one for one in catalogue().rules if one.id == RULE)
    row = {key: value for key, value in rule.row.items() if key != "proof"}
    assert proof_fault(rule) is None
    assert "reads a counter" in proof_fault(dataclasses.replace(rule, row=row))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rnr_nak_retry_err", "no fault of the cable"),
        ("symbol_error", "clean or replace its transceiver"),
        ("port_xmit_wait", "slow receiver"),
    ],
)
def test_a_slow_receiver_is_no_dirty_cable(tmp_path, kind, words):
    document = node({kind: 1 << 30})
    folder = Fleet(tmp_path).run({"gpu1": document["sections"]})
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    (found,) = (one for one in findings if (one["rule"], one["verdict"]) == (RULE, "fail"))
    assert words in found["remedy"]["person"] and "mlx5_3" in found["remedy"]["person"]


GROUP = "unlike-the-others-of-its-group"


def of_group(*counts, kind="out_of_sequence", packets=None, hours=100):
    """What the group's rule finds where all ports of node after node have so many in an hour."""
    nodes = []
    for count in counts:
        counters = {"link_downed": 0, kind: int(count * hours)}
        if packets is not None:
            counters["port_rcv_packets"] = int(packets * hours)
        facts = {"node.uptime_s": hours * HOUR_S, "network.rdma[*].ports[0].counters": counters}
        nodes.append(changed(PLATFORMS["h100_infiniband"](), {"facts": facts}))
    return GROUP in found_in_group(nodes)


@pytest.mark.parametrize(
    ("counts", "is_found"),
    ROWS["test_losses_of_all_ports_of_a_node_are_told_by_its_group"],
)
def test_losses_of_all_ports_of_a_node_are_told_by_its_group(counts, is_found):
    """Its own ports say nothing: they all lose as much."""
    assert of_group(*counts) is is_found


def test_idle_nodes_are_no_peers_of_one_that_trains():
    assert of_group(0, 0, 0, 170_000, packets=1 << 30)
    assert not of_group(0, 0, 0, 170_000, packets=1000)


def test_a_short_look_compares_no_losses():
    assert not of_group(0, 0, 0, 170_000, hours=0.5)


def test_the_finding_names_host_and_counter_and_what_to_look_at(tmp_path):
    nodes = {}
    for place, count in enumerate((0, 4, 0, 170_000), 1):
        counters = {"link_downed": 0, "out_of_sequence": count * 100, "packet_seq_err": 0}
        facts = {"node.uptime_s": 100 * HOUR_S, "network.rdma[*].ports[0].counters": counters}
        document = changed(PLATFORMS["h100_infiniband"](), {"facts": facts})
        nodes[f"gpu{place}"] = document["sections"]
    folder = Fleet(tmp_path).run(nodes)
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    (found,) = (one for one in findings if (one["rule"], one["verdict"]) == (GROUP, "fail"))
    assert (found["severity"], found["hosts"]) == ("error", ["gpu4"])
    assert found["where"] == {"name": "out_of_sequence", "field": "an hour"}
    person = found["remedy"]["person"]
    assert person.startswith("out_of_sequence 170000 an hour on gpu4, out_of_sequence 0 an hour on")
    assert "compare PFC, ECN" in person


def test_a_link_that_goes_down_each_hour_is_an_error():
    assert found_on_node(node({"link_downed": 90})).get(RULE) == "warning"
    assert found_on_node(node({"link_downed": 110})).get(RULE) == "error"


@pytest.mark.parametrize(
    ("counts", "is_found"),
    [
        ((41_000, 2), True),
        ((41_000, 1_000), False),  # its like have many, too
        ((9_000, 0), False),
        ((2, 2), False),
    ],
)
def test_corrected_errors_of_one_gpu_beside_its_like(counts, is_found):
    facts = {
        "node.uptime_s": 200 * HOUR_S,
        "gpus.devices[*].ecc.corrected_volatile": counts[1],
        "gpus.devices[3].ecc.corrected_volatile": counts[0],
    }
    document = changed(PLATFORMS["h100_infiniband"](), {"facts": facts})
    assert (found_on_node(document).get(RULE) == "warning") is is_found


@pytest.mark.parametrize(
    ("throttled_s", "is_found"),
    ROWS["test_heat_of_processors_is_told_by_its_rate_beside_like_nodes"],
)
def test_heat_of_processors_is_told_by_its_rate_beside_like_nodes(throttled_s, is_found):
    nodes = [
        changed(
            PLATFORMS["h100_infiniband"](),
            {"facts": {"node.uptime_s": 200 * HOUR_S, "node.cpu_throttled_ms": int(one * 1000)}},
        )
        for one in throttled_s
    ]
    assert (GROUP in found_in_group(nodes)) is is_found


@pytest.mark.parametrize(
    ("path", "usual", "odd", "is_found"),
    ROWS["test_what_one_of_five_like_nodes_has_otherwise"],
)
def test_what_one_of_five_like_nodes_has_otherwise(path, usual, odd, is_found, tmp_path):
    def one(value):
        if path == "kernel.modprobe.options":
            row = {"module": "lnet", "parameter": "networks", "value": value, "path": "/etc/l.conf"}
            value = [row]
        return changed(PLATFORMS["h100_infiniband"](), {"facts": {path: value}})["sections"]

    nodes = {f"gpu{place}": one(usual) for place in range(1, 5)} | {"gpu5": one(odd)}
    folder = Fleet(tmp_path).run(nodes)
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    found = [one for one in findings if (one["rule"], one["verdict"]) == (GROUP, "fail")]
    worst = min((one["severity"] for one in found), key=SEVERITIES.index, default=None)
    assert worst == is_found
    assert all(one["hosts"] == ["gpu5"] for one in found)
