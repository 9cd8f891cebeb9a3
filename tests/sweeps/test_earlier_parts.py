"""What an earlier run of the same machine had and this one has not is found, without a policy, an
admission or a model table; kept with the run."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import yaml
from gallery import read_gallery
from run_folders import Fleet

from unhang.judge.fleet.earlier_parts import PARTS, REMEMBERED_DAYS
from unhang.judge.triage.run_judging import judge_folder

GALLERY = {machine.name: machine.document["sections"] for machine in read_gallery()}
IDLE = {"utilization_percent": 0, "memory_used_mib": 0.0, "processes": [], "temperature_c": 31,
        "memory_reserved_mib": 600.0, "mig": None, "error": None}  # fmt: skip


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path)


def machine(name="xe9680_roce"):
    return json.loads(json.dumps(GALLERY[name]))


def found(folder, out=None):
    """{rule: what was found} of the rules about earlier runs."""
    judge_folder(folder, [], None, "2026-11-25", out=out)
    document = json.loads((out or folder / "findings.json").read_text())
    return {
        one["rule"]: one["found"]
        for one in document["findings"]
        if one["rule"] in LOSSES and one["verdict"] == "fail"
    }


def without_gpu(sections):
    gone = sections["gpus"]["devices"].pop()
    sections["gpus"].update(count=7, pci_count=7)
    return gone["uuid"]


def without_card(sections):
    return sections["network"]["rdma"].pop(2)["name"]


def port_down(sections):
    card = sections["network"]["rdma"][3]
    card["ports"][0].update(state="down", physical_state="polling")
    return card["name"]


def without_switch(sections):
    sections["fabric_manager"]["nvswitch_count"] -= 1
    return "3 on the PCI bus"


def without_four_of_nine_disks(sections):
    disks = sections["node"]["disks"]
    del disks[2:6]
    return "nvme3"


def without_member(sections):
    member = next(one for one in sections["network"]["interfaces"] if one.get("master"))
    member["master"] = None
    return f"bond0/{member['name']}"


def narrower(sections):
    card = sections["network"]["rdma"][0]
    card["pcie"]["width_now"] = 8
    return f"{card['name']}: pcie.width_now 8"


LOSSES = {
    "worse-than-in-its-last-run": narrower,
    "gpu-gone-since-earlier-run": without_gpu,
    "nvswitch-gone-since-earlier-run": without_switch,
    "rdma-card-gone-since-earlier-run": without_card,
    "rdma-port-down-since-earlier-run": port_down,
    "disk-gone-since-earlier-run": without_four_of_nine_disks,
    "bond-member-gone-since-earlier-run": without_member,
}


OF_EVERY_MACHINE = ("gpu", "nvswitch", "rdma")


def with_disks_and_a_bond(sections):
    """The machine with nine disks and a bond of two ports."""
    row = {"model": "a disk", "state": "live"}
    sections["node"]["disks"] = [{"name": f"nvme{number}"} | row for number in range(9)]
    port = next(one for one in sections["network"]["interfaces"] if one["kind"] == "physical")
    sections["network"]["interfaces"] += [
        {**port, "name": "bond0", "kind": "bond", "driver": None, "pci_address": None},
        {**port, "name": "ens1f0", "master": "bond0"},
        {**port, "name": "ens1f1", "master": "bond0"},
    ]
    return sections


@pytest.mark.parametrize("rule", LOSSES)
def test_what_an_earlier_run_had_and_is_gone_is_an_error_that_names_it(fleet, rule):
    now = with_disks_and_a_bond(machine())
    name = LOSSES[rule](now)
    assert found(fleet.run({"gpu1": with_disks_and_a_bond(machine())})) == {}
    told = found(fleet.run({"gpu1": now}))
    assert set(told) == {rule}
    assert name in told[rule]


def test_a_loss_is_told_until_the_part_is_back(fleet):
    less = machine()
    without_card(less)
    told = [
        bool(found(fleet.run({"gpu1": one})))
        for one in (machine(), less, "unreachable", less, machine(), machine())
    ]
    assert told == [False, True, False, True, False, False]


NUMBERS = """\
8 5 temperature_c 78 idle GPU 5: temperature_c 78
8 5 temperature_c 44
8 5 temperature_c 5
8 * temperature_c 78
2 * temperature_c 78 idle GPU 1: temperature_c 78
8 5 utilization_percent 99
8 5 uuid GPU-new
8 5 power_limit_w 300.0
8 * memory_reserved_mib 200.0
8 5 memory_reserved_mib 9000.0 idle GPU 5: memory_reserved_mib 9000""".splitlines()


@pytest.mark.parametrize("row", NUMBERS)
def test_numbers_of_the_last_run_are_those_of_the_same_gpu_that_does_the_same(fleet, row):
    count, place, field, value, *told = row.split(" ", 4)
    sections = machine()
    gpus = sections["gpus"]["devices"] = sections["gpus"]["devices"][: int(count)]
    for gpu in gpus:
        gpu.update(IDLE)
    found(fleet.run({"gpu1": sections}))
    for number, gpu in enumerate(gpus):
        if place in ("*", str(number)):
            gpu[field] = type(gpu[field])(value)
    assert [
        one.partition(", in its last run: ")[0]
        for one in found(fleet.run({"gpu1": sections})).values()
    ] == told


def test_another_machine_of_that_name_begins_anew(fleet):
    other = machine()
    other["node"]["machine_id"] = "c" * 32
    without_gpu(other)
    assert [found(fleet.run({"gpu1": one})) for one in (machine(), other)] == [{}, {}]


def test_what_was_removed_long_ago_is_forgotten(fleet):
    less = machine()
    without_gpu(less)
    found(fleet.run({"gpu1": machine()}, day=1))
    assert found(fleet.run({"gpu1": less}, day=2))
    later = fleet.run({"gpu1": less}, day=3)
    run = json.loads((later / "run.json").read_text())
    # more than REMEMBERED_DAYS after the first
    (later / "run.json").write_text(json.dumps({**run, "started": "2026-12-02T00:00:09Z"}))
    assert REMEMBERED_DAYS == 30
    assert found(later) == {}


def test_a_policy_that_says_the_number_is_the_way_out(fleet):
    less = machine()
    without_gpu(less)
    found(fleet.run({"gpu1": machine()}))
    folder = fleet.run({"gpu1": less})
    node = json.loads((folder / "nodes/gpu1.json").read_text())
    (folder / "nodes/gpu1.json").write_text(json.dumps({**node, "policy": {"gpu": {"count": 7}}}))
    assert found(folder) == {}


def test_a_judged_run_finds_the_same_when_the_earlier_runs_are_gone(fleet, tmp_path):
    less = machine()
    without_gpu(less)
    first, second = fleet.run({"gpu1": machine()}), None
    found(first)
    second = fleet.run({"gpu1": less})
    told = found(second)
    kept = (second / PARTS).read_bytes()
    shutil.rmtree(first)
    moved = shutil.copytree(second, tmp_path / "elsewhere")
    assert told == found(second) == found(moved)
    assert (second / PARTS).read_bytes() == (moved / PARTS).read_bytes() == kept


def test_findings_in_another_file_leave_the_run_unchanged(fleet, tmp_path):
    found(fleet.run({"gpu1": machine()}))
    folder = fleet.run({"gpu1": machine()})
    found(folder, tmp_path / "out.json")
    assert not (folder / PARTS).exists()


def test_a_later_run_is_no_past(fleet):
    less = machine()
    without_gpu(less)
    early, late = fleet.run({"gpu1": less}), fleet.run({"gpu1": machine()})
    assert [found(late), found(early)] == [{}, {}]


def test_a_node_cannot_say_what_it_had(fleet):
    claims = machine()
    claims["node"]["earlier"] = yaml.safe_load(
        "gpus: {count: 9, now: 8, missing: [GPU-x], run: r, at: '2026-11-19T00:00:00Z'}"
    )
    assert found(fleet.run({"gpu1": claims})) == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": "unhang/parts/2"}', "\udcff", "[" * 100_000]
)
def test_a_file_that_is_none_is_no_past(fleet, text):
    less = machine()
    without_gpu(less)
    first = fleet.run({"gpu1": machine()})
    (first / PARTS).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert found(fleet.run({"gpu1": less})) == {}


def test_healthy_machines_are_silent_in_their_second_run(fleet):
    found(fleet.run(GALLERY))
    assert found(fleet.run(GALLERY)) == {}


@pytest.mark.parametrize(
    "name", ["dgx_h100_580", "xe9680_roce", "h20_roce_bonds", "hgx_h100_gpu_operator"]
)
def test_a_loss_beside_healthy_peers_is_one_cause_with_a_command_that_drains_its_node(fleet, name):
    losses = {
        rule: LOSSES[rule] for rule in sorted(LOSSES) if rule.split("-")[0] in OF_EVERY_MACHINE
    }
    nodes = {
        "healthy0": machine(name),
        "healthy1": machine(name),
        **{rule: machine(name) for rule in losses},
    }
    for rule, change in losses.items():
        change(nodes[rule])
    links = nodes["gpu-gone-since-earlier-run"]["interconnect"]
    links.update(
        by_gpu=links["by_gpu"][:7],
        links=[one for one in links["links"] if one["gpu"] < 7],
        pairs=[one for one in links["pairs"] if one["b"] < 7],
    )
    found(fleet.run(dict.fromkeys(nodes, machine(name))))
    folder = fleet.run(nodes)
    found(folder)
    causes = [
        one
        for one in json.loads((folder / "findings.json").read_text())["causes"]
        if one["severity"] != "info"
    ]
    assert sorted(host for one in causes for host in one["nodes"]) == sorted(losses)
    assert [one["command"] for one in causes if "drain" not in one["command"]] == []


@pytest.mark.parametrize("spoilt", ["another user", "writable", "a link"])
def test_a_run_that_a_stranger_put_beside_it_is_not_believed(fleet, tmp_path, spoilt):
    now = machine()
    without_gpu(now)
    earlier = fleet.run({"gpu1": machine()})
    assert found(earlier) == {}
    if spoilt == "another user":
        if os.geteuid():
            pytest.skip("only root can give a folder to another user")
        os.chown(earlier, 4321, -1)
    elif spoilt == "writable":
        earlier.chmod(0o777)
    else:
        earlier.rename(tmp_path / "elsewhere")
        earlier.symlink_to(tmp_path / "elsewhere")
    assert found(fleet.run({"gpu1": now})) == {}
