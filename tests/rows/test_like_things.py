"""Like parts of a node are compared with each other and with those of its group, by one table; what
differs on purpose is silent."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from changed_nodes import catalogue, changed, found_in_group, found_on_node, view
from healthy_platforms import PLATFORMS
from run_folders import Fleet

from unhang.judge.rules.compared_parts import compared
from unhang.judge.rules.examples import judge_fragments
from unhang.judge.rules.like_things import fields_of, part_of
from unhang.judge.triage.run_judging import judge_folder

NODE, GROUP = "unlike-the-others-of-its-node", "unlike-the-others-of-its-group"
PORT = {
    "kind": "physical", "state": "up", "speed_mbps": 100000, "mtu": 9000, "addresses": [],
    "numa_node": 0, "driver": "mlx5_core", "pci_address": None, "master": None,
    "carrier_changes": 2, "frames_received": 1 << 30, "frames_damaged": 0, "default_route": False,
}  # fmt: skip


def with_interfaces(*rows):
    document = copy.deepcopy(PLATFORMS["h100_infiniband"]())
    interfaces = document["sections"]["network"]["interfaces"]
    interfaces += [PORT | row for row in rows]
    return document


def bond(name, **more):
    return {"name": name, "kind": "bond", "driver": None, **more}


def ports(*rows):
    return [{"name": f"ens{place}", **row} for place, row in enumerate(rows)]


UNLIKE = {
    "MTU 1500 on one of two bonds": [bond("bond8"), bond("bond9", mtu=1500)],
    "one of four ports with small frames": ports({}, {}, {}, {"mtu": 1500}),
    "ports of a driver that nobody has named": ports(
        *[{"driver": "new"}] * 3, {"driver": "new", "mtu": 1500}
    ),
    "a bond's member at a tenth of the other's speed": [
        bond("bond9"),
        *ports({"master": "bond9"}, {"master": "bond9", "speed_mbps": 10000}),
    ],
    "a bond's member without a link": [
        bond("bond9"),
        *ports({"master": "bond9"}, {"master": "bond9", "state": "down", "speed_mbps": None}),
    ],
}
ALIKE = {
    "a bond for the world and one for storage": [
        bond("bond8", mtu=1500, default_route=True),
        bond("bond9"),
    ],
    "a management port at 1 Gbit/s": ports({}, {}, {}, {"speed_mbps": 1000, "mtu": 1500}),
    "ports of another driver": ports({}, {}, {}, {"driver": "ice", "mtu": 1500}),
    "a port that is down": ports({}, {}, {}, {"state": "down", "mtu": 1500}),
    "two and two": ports({}, {}, {"mtu": 1500}, {"mtu": 1500}),
    "one with larger frames": ports({}, {}, {}, {"mtu": 9216}),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_the_interface_that_differs_from_its_like_is_found(name):
    severity = "error" if "a tenth" in name else "warning"
    assert found_on_node(with_interfaces(*UNLIKE[name])).get(NODE) == severity


def test_half_of_the_speed_is_an_error_only_where_jobs_send_data():
    for usual, slow, severity in (
        (100000, 50000, "error"), (100000, 60000, "warning"), (1000, 100, "warning"),
    ):  # fmt: skip
        rows = ports(*({"master": "bond9", "speed_mbps": speed} for speed in (usual, slow)))
        found = found_on_node(with_interfaces(bond("bond9"), *rows))
        assert found.get(NODE) == severity, (usual, slow)


@pytest.mark.parametrize("name", ALIKE)
def test_interfaces_that_are_not_alike_accuse_nobody(name):
    assert NODE not in found_on_node(with_interfaces(*ALIKE[name]))


@pytest.mark.parametrize(
    ("fact", "value", "severity"),
    [
        ("gpus.devices[5].clocks.sm_max_mhz", 1200, "warning"),
        ("gpus.devices[5].clocks.sm_max_mhz", 900, "error"),
        ("gpus.devices[5].vbios", "96.00.74.00.01", "warning"),
        ("gpus.devices[5].bar1_total_mib", 256.0, "warning"),
        ("network.rdma[3].pcie.width_now", 8, "error"),
        ("network.rdma[3].firmware", "28.39.1002", "warning"),
        ("network.rdma[3].ports[0].sm_lid", 7, "warning"),
        ("interconnect.links[3].speed_mb_s", 1000.0, "error"),
    ],
)
def test_one_of_eight_is_found_in_any_kind_of_part(fact, value, severity):
    healthy = PLATFORMS["h100_infiniband"]()
    with_subnet = {f"network.rdma[{n}].ports[0].gids[0].index": 0 for n in range(8)}
    healthy = changed(healthy, {"facts": with_subnet})
    assert NODE not in found_on_node(healthy)
    assert found_on_node(changed(healthy, {"facts": {fact: value}})).get(NODE) == severity


IDLE = {"utilization_percent": 0, "memory_used_mib": 0, "processes": [], "temperature_c": 31,
        "power_draw_w": 70.0}  # fmt: skip
BUSY = {"utilization_percent": 100, "temperature_c": 62, "power_draw_w": 650.0}
WIDE = {"clocks.sm_mhz": 1755}


def with_gpus(common, odd=None, place=7):
    facts = {f"gpus.devices[*].{name}": value for name, value in common.items()}
    for number in range(8):  # no two GPUs read the same
        facts[f"gpus.devices[{number}].temperature_c"] = common["temperature_c"] + number % 3
        facts[f"gpus.devices[{number}].power_draw_w"] = common["power_draw_w"] + number
    facts |= {f"gpus.devices[{place}].{name}": value for name, value in (odd or {}).items()}
    return changed(PLATFORMS["h100_infiniband"](), {"facts": facts})


@pytest.mark.parametrize(
    ("common", "odd", "severity"),
    [
        (IDLE, {}, None),
        (IDLE, {"temperature_c": 78}, "warning"),
        (IDLE, {"temperature_c": 56}, "info"),
        (IDLE, {"temperature_c": 44}, None),
        (IDLE, {"temperature_c": 5}, None),
        (IDLE, {"power_draw_w": 310.0}, "warning"),
        (IDLE, {"power_draw_w": 110.0}, None),
        (IDLE, BUSY, None),  # it alone has work
        (IDLE, {"memory_reserved_mib": 9000.0}, "warning"),
        (BUSY | WIDE, {"clocks.sm_mhz": 1305}, "warning"),
        (BUSY | WIDE, {"clocks.sm_mhz": 1650}, None),
        (BUSY | WIDE, {"power_draw_w": 400.0}, None),
        (BUSY | WIDE, {"temperature_c": 84}, "info"),
    ],
)
def test_a_gpu_is_compared_with_those_that_do_the_same(common, odd, severity):
    healthy = found_on_node(with_gpus(common))
    found = found_on_node(with_gpus(common, odd))
    assert (healthy.get(NODE), found.get(NODE)) == (None, severity)


def test_two_of_eight_are_odd_and_four_of_eight_are_two_sorts():
    for number, wanted in ((2, "warning"), (4, None)):
        odd = {f"gpus.devices[{place}].temperature_c": 80 for place in range(number)}
        assert found_on_node(changed(with_gpus(IDLE), {"facts": odd})).get(NODE) == wanted


def test_a_slow_node_among_sixteen_that_are_busy_is_found_by_its_clocks(tmp_path):
    slow = with_gpus(BUSY | {"clocks.sm_mhz": 1305})
    (found,) = judged_of_group(tmp_path, slow, *[with_gpus(BUSY | WIDE)] * 15)
    assert (found["hosts"], found["severity"]) == (["gpu1"], "warning")
    assert found["where"]["field"] == "clocks.sm_mhz"
    assert "busy GPU 0 to busy GPU 7 clocks.sm_mhz=1305" in found["remedy"]["person"]
    assert found_in_group([slow, with_gpus(BUSY | WIDE), with_gpus(BUSY | WIDE)]) == {}
    assert found_in_group([with_gpus(BUSY | WIDE)] * 4 + [with_gpus(IDLE | WIDE)] * 2) == {}


def test_advice_for_a_part_is_that_of_its_kind(tmp_path):
    """Every kind that is compared inside a node has its own."""
    rows = catalogue().tables["like_things"].values()
    assert [row["things"] for row in rows if row["within"] and not row["check"]] == []
    healthy = PLATFORMS["h100_infiniband"]()
    odd = {"gpus.devices[2].ecc.enabled": False, "network.rdma[3].firmware": "28.39.1002"}
    folder = Fleet(tmp_path).run({"gpu1": changed(healthy, {"facts": odd})["sections"]})
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    told = {one["where"]["name"]: one for one in findings if one["rule"] == NODE}
    assert "nvidia-smi -i GPU -e 1" in told["GPU 2"]["remedy"]["person"]
    assert told["GPU 2"]["found"] == "GPU 2: ecc.enabled no, 7 of its kind: yes"
    assert told["mlx5_3"]["remedy"]["person"] == (
        "drain the node and flash the release of the others (mlxfwmanager, then mlxfwreset)"
        " (mlx5_3 alone has firmware 28.39.1002)"
    )


def rails(swapped=()):
    """A node with a subnet for each rail. swapped: two rails whose cables were exchanged."""
    order = list(range(8))
    for one, other in swapped:
        order[one], order[other] = other, one
    facts = {}
    for card, rail in enumerate(order):
        port = f"network.rdma[{card}].ports[0]"
        facts[f"{port}.gids"] = [
            {"index": 0, "gid": f"fec0:0000:0000:000{rail}:9803:9b03:00ab:000{card}", "type": "ib",
             "interface": None}
        ]  # fmt: skip
        facts[f"{port}.sm_lid"] = rail + 1
    return changed(PLATFORMS["h100_infiniband"](), {"facts": facts})


def test_a_comparison_names_the_node_and_the_part_with_the_severity_of_its_row(tmp_path):
    odd = changed(rails([(3, 4)]), {"facts": {"network.interfaces[1].mtu": 9000}})
    nodes = {"gpu1": rails(), "gpu2": rails(), "gpu3": odd}
    folder = Fleet(tmp_path).run({host: one["sections"] for host, one in nodes.items()})
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    shown = [one for one in findings if (one["rule"], one["verdict"]) == (GROUP, "fail")]
    assert {one["severity"] for one in shown} == {"error", "warning"}
    (rail,) = (one for one in shown if one["severity"] == "error")
    (mtu,) = (one for one in shown if one["severity"] == "warning")
    assert rail["hosts"] == mtu["hosts"] == ["gpu3"]
    assert "mlx5_3 subnet=fec0:0000:0000:0004" in rail["found"]
    assert "mlx5_5" not in rail["found"]
    assert mtu["where"] == {"name": "bond0", "field": "mtu"} and "bond0 mtu=9000" in mtu["found"]


@pytest.mark.parametrize(
    "rows",
    [
        [bond("bond9"), *ports({"master": "bond9"}, {})],
        [bond("bond9", mtu=1500), *ports({"master": "bond9"}, {"master": "bond9"})],
        [bond("bond9"), *ports({"master": "bond9"}, {"master": "bond9", "speed_mbps": 25000})],
    ],
    ids=["lost a member", "another MTU", "another speed"],
)
def test_a_bond_is_compared_with_that_of_the_other_nodes(rows):
    usual = with_interfaces(bond("bond9"), *ports({"master": "bond9"}, {"master": "bond9"}))
    assert found_in_group([usual, usual, usual]) == {}
    assert GROUP in found_in_group([usual, usual, with_interfaces(*rows)])


def judged_of_group(tmp_path, *documents):
    """The findings of the group comparison of these nodes, gpu1 the first."""
    nodes = {f"gpu{n}": one["sections"] for n, one in enumerate(documents, 1)}
    folder = Fleet(tmp_path).run(nodes)
    judge_folder(folder, [], None, "2026-11-25")
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    return [one for one in findings if (one["rule"], one["verdict"]) == (GROUP, "fail")]


@pytest.mark.parametrize(
    ("usual", "own", "severity"),
    [
        (200000, 100000, "error"),
        (200000, 150000, "warning"),
        (10000, 1000, "warning"),
        (100000, 200000, "warning"),
    ],
    ids=["half", "three quarters", "management", "faster than most"],
)
def test_a_bond_that_lost_half_of_its_speed_is_an_error(tmp_path, usual, own, severity):
    most, odd = (with_interfaces(bond("bond9", speed_mbps=speed)) for speed in (usual, own))
    (found,) = judged_of_group(tmp_path, most, most, odd)
    assert (found["severity"], found["hosts"]) == (severity, ["gpu3"])
    assert found["remedy"]["person"] == (
        f"bond9 speed_mbps={own} on gpu3, bond9 speed_mbps={usual} on 2 nodes: check cable,"
        " transceiver, switch port and, of a bond, its members"
    )


@pytest.mark.parametrize(("each", "severity"), [(1, "warning"), (3, "info")])
def test_without_a_majority_nobody_is_said_to_be_slow(tmp_path, each, severity):
    two = [with_interfaces(bond("bond9", speed_mbps=speed)) for speed in (200000, 50000)]
    (found,) = judged_of_group(tmp_path, *two * each)
    assert found["severity"] == severity and len(found["hosts"]) == 2 * each


def test_advice_for_swapped_rails_names_both_and_what_to_look_at(tmp_path):
    (found,) = judged_of_group(tmp_path, rails(), rails(), rails([(3, 4)]))
    assert found["where"] == {"name": "mlx5_3, mlx5_4", "field": "subnet"}
    assert found["remedy"]["person"].startswith("mlx5_3 subnet=fec0:0000:0000:0004, mlx5_4 subnet=")
    assert "swapped rails are swapped cables" in found["remedy"]["person"]


@pytest.mark.parametrize(
    ("things", "values", "differences"),
    [
        ("RDMA port's rate", ["a rate=1, b rate=2"] * 2 + ["a rate=1"], 0),
        ("RDMA port's rate", ["a rate=1, b rate=2"] * 2 + ["a rate=1, b rate=3"], 1),
        ("RDMA port's rate", ["a rate=1", "a rate=2"], 1),
        ("RDMA card's firmware", ["a firmware=1"] * 2 + ["a firmware=2"], 1),
        ("number of NVMe disks", ["disk count=9"] * 2 + ["disk count=5"], 1),
        ("mount", ["/ type=xfs, /a type=nfs"] * 2 + ["/ type=xfs"], 1),
        ("mount", ["/ type=xfs", "/ type=ext4"], 0),
        ("node", ["clock_source=tsc"] * 2 + ["clock_source=hpet"] * 2, 0),
        ("node", ["clock_source=tsc", "clock_source=tsc", "clock_source=not read"], 0),
        ("node", ["a=1, b=1"] * 4 + ["a=2, b=1", "a=1, b=2"], 2),
        ("rail of Ethernet", ["e0 subnets=1, e1 subnets=2"] * 3 + ["e0 subnets=2, e1 subnets=1"], 0),
        ("rail of Ethernet", ["e0 subnets=1, e1 subnets=2"] * 3 + ["e0 subnets=1, e1 subnets=1"], 1),
    ],
)  # fmt: skip
def test_values_that_few_nodes_have_are_differences_and_what_two_sorts_have_is_none(
    things, values, differences
):
    tables = catalogue().tables
    row = tables["like_things"][things]
    part = part_of(row, row["fields"][0], "").value
    rows = [(value, [f"gpu{place}"]) for place, value in enumerate(values)]
    assert len(compared(rows, part, tables)) == differences


def test_numbers_that_the_schema_does_not_exclude_are_compared():
    """Of GPUs that do the same: heat, clock and slot of each are among them."""
    tables = catalogue().tables
    fields = {*fields_of(tables["like_things"]["busy GPU"], tables)}
    assert {"temperature_c", "clocks.sm_mhz", "pcie.width_now"} <= fields


WORKED_OUT = "count,roce_index,address,subnet,subnets,argument,transports,asks the internet alone"


def test_every_field_of_the_table_is_a_fact_or_worked_out():
    """A field that no list has would be compared by nobody, in silence."""
    read = {".".join(path) for rule in catalogue().rules for path in rule.decision_reads}
    for row in catalogue().tables["like_things"].values():
        for field in {*fields_of(row, catalogue().tables), *row["slot"].split("+")} - {
            *WORKED_OUT.split(",")
        }:  # fmt: skip
            assert any(path.startswith(row["list"].split(".")[0]) and path.endswith(field)
                       for path in read), (row["things"], field)  # fmt: skip


UNIQUE = """\
1 2 3 1 = fail = node: {hostname: gpuN}
1 2 1 = fail = node: {machine_id: mN}
1 2 1 = pass = node: {machine_id: uninitialized}
1 2 1 = fail = gpus: {devices: [{index: 0, uuid: GPU-N, model: M}]}
1 2 1 = pass = {gpus: {devices: [{index: 0, uuid: GPU-N, model: M}]}, node: {virtualization: {is_vm: true}}}
1 2 1 = pass = {gpus: {devices: [{index: 0, uuid: GPU-N, model: M}]}, node: {boot_id: same}}
1 = fail = gpus: {devices: [{index: 0, uuid: GPU-N, model: M}, {index: 1, uuid: GPU-N, model: M}]}
1 2 1 = fail = gpus: {devices: [{index: 0, serial: "032N"}]}
1 = pass = gpus: {devices: [{index: 0, serial: "032N"}, {index: 1, serial: "032N"}]}
1 2 = pass = gpus: {devices: [{index: 0, serial: N/A}]}
1 2 = pass = gpus: {devices: [{index: 0, serial: "0"}]}
1 2 1 = fail = {eth: {default_route: true, addresses: [10.0.0.N/24]}}
1 2 1 = fail = {eth: {default_route: true, kind: bridge, addresses: [10.0.0.N/24]}}
1 2 1 = pass = {eth: {default_route: true, addresses: [10.0.2.15/24]}}
1 2 3 1 = fail = {eth: {addresses: [10.1.0.N/24]}}
1 2 1 2 = pass = {eth: {addresses: [192.168.100.1N/24]}}
1 1 1 = pass = {eth: {driver: cdc_eem, addresses: [16.1.15.2/24]}}
1 2 3 1 = pass = {eth: {addresses: [10.9.0.N/32]}}
1 2 3 1 = pass = {eth: {addresses: [169.254.0.N/16, "fe80::N/64"]}}
1 2 3 1 = pass = {eth: {kind: bridge, addresses: [172.17.0.N/16]}}
1 2 3 1 = pass = {eth: {kind: loopback, addresses: [10.9.0.N/24]}}
1 2 3 1 = pass = {eth: {kind: virtual, addresses: [10.9.0.N/24]}}
1 2 3 1 = pass = {eth: {state: down, addresses: [10.1.0.N/24]}}
1 = fail = {eth: {addresses: [10.1.0.N/24]}, times: 2}
1 = pass = {eth: {addresses: [10.1.0.N/32]}, times: 2}
1 = pass = {eth: {addresses: ["fe80::1/64"]}, times: 2}
1 2 3 1 = fail = {ib: {lid: 1N}}
1 2 1 2 = pass = {ib: {lid: 1N}}
1 2 = pass = {ib: {lid: 0}}
1 2 = pass = {ib: {lid: 65535}}
1 2 3 1 = pass = {ib: {lid: 1N, state: down}}
1 2 3 1 = pass = {ib: {lid: 1N}, pcie: null}
1 2 3 1 = pass = {ib: {lid: 1N}, node: {virtualization: {is_vm: true}}}
1 = pass = {ib: {lid: 1N}, times: 2}
1 2 1 = fail = {guid: "9803:9b03:00ab:000N"}
1 2 1 = pass = {guid: "0000:0000:0000:0000"}
1 = fail = {guid: "9803:9b03:00ab:000N", times: 2}
1 = pass = {guid: "0000:0000:0000:0000", times: 2}
1 2 1 = fail = {guid: "9a03:9bff:feab:000N", ib: {link_layer: ethernet}}
1 2 1 = pass = {guid: "0200:00ff:fe00:0000", ib: {link_layer: ethernet}}
1 = pass = {guid: "9a03:9bff:feab:000N", ib: {link_layer: ethernet}, times: 2}
""".splitlines()
DEFAULTS = yaml.safe_load("""
ib: {port: 1, state: active, link_layer: infiniband, sm_lid: 1, lid: 0}
eth: {kind: physical, state: up, default_route: false}
""")


def node_with(text, place):
    given = {"guid": f"0000:0000:0000:000{place}", "pcie": {}} | yaml.safe_load(text)
    port, eth = ({**DEFAULTS[name], **given.get(name, {})} for name in ("ib", "eth"))
    port["gids"] = [{"index": 0, "gid": f"fe80::{given['guid']}"}]
    names = range(given.get("times", 1))
    rdma = [{"name": f"mlx5_{one}", "pcie": given["pcie"], "ports": [port]} for one in names]
    interfaces = [{"name": f"eth{one}"} | eth for one in names if "eth" in given]
    return {
        "network": {"interfaces": interfaces, "rdma": rdma},
        "node": {"boot_id": f"b{place}", **given.get("node", {})},
        "gpus": given.get("gpus", {"devices": []}),
    }


@pytest.mark.parametrize("row", UNIQUE)
def test_what_must_be_unique_is_told_if_two_have_it_and_what_is_shared_by_design_is_not(row):
    numbers, wanted, text = row.split(" = ")
    nodes = [node_with(text.replace("N", one), place) for place, one in enumerate(numbers.split())]
    on_node, rule = (one for one in catalogue().rules if one.id.startswith("not-unique-"))
    found = found_on_node({"sections": nodes[0]}, rules=[on_node])
    found |= {rule.id: judge_fragments(rule, nodes, view())}
    assert ({"error", "fail"} & {*found.values()} != set()) == (wanted == "fail")
