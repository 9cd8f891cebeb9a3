"""New nodes compared with their peers, by the audit's own drift rules over real facts: the expected
value, and both values in the finding."""

from __future__ import annotations

import copy
import json

import pytest
from local_fleet import PROJECT

from unhang.act.gate.deciding import Observation, decide
from unhang.judge.triage.run_judging import judge_folder

FACTS = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
FACTS["sections"]["node"]["dmi"] = {
    "vendor": "Supermicro",
    "product": "SYS-821GE",
    "bios_version": "2.1",
}
FACTS["sections"]["network"]["rdma"] = [
    {"name": "mlx5_0", "firmware": "28.43.2026", "board": "MT_0000000838", "ports": []}
]
GOOD = {"verdict": "pass", "suspects": [], "hosts": []}


def driver(sections):
    sections["driver"]["loaded"]["version"] = "999.88.77"


def kernel(sections):
    sections["kernel"]["release"] = "9.9.9-1-generic"


def fewer_gpus(sections):
    sections["gpus"]["devices"].pop()
    sections["gpus"]["count"] -= 1


def vbios(sections):
    for row in sections["gpus"]["devices"]:
        row["vbios"] = "11.22.33.44.55"


def inforom(sections):
    for row in sections["gpus"]["devices"]:
        row["inforom"] = "G999.0001.00.07"


def nccl(sections):
    sections["nccl"]["libraries"][0]["version"] = "2.99.1"


def bios(sections):
    sections["node"]["dmi"]["bios_version"] = "9.9.9"


def mtu(sections):
    sections["network"]["interfaces"][0]["mtu"] = 9001


def rdma_name(sections):
    sections["network"]["rdma"][0]["name"] = "mlx5_7"


def nic_firmware(sections):
    sections["network"]["rdma"][0]["firmware"] = "99.1.2"


def nvlinks(sections):
    sections["interconnect"]["by_gpu"][0]["nvlinks_active"] = 3


def narrow(sections):
    for row in sections["gpus"]["devices"]:
        row["pcie"]["width_now"] = 4


def judged(folder, changes):
    """findings.json of a run of one group. changes: {host: the change to its facts, None for no
    change}."""
    (folder / "nodes").mkdir(parents=True)
    for host, change in changes.items():
        facts = copy.deepcopy(FACTS)
        if change:
            change(facts["sections"])
        node = {
            "schema": "unhang/node/1",
            "host": host,
            "groups": ["training"],
            "policy": {},
            "status": "ok",
            "message": None,
            "facts": facts,
        }
        (folder / "nodes" / f"{host}.json").write_text(json.dumps(node))
    run = {
        "schema": "unhang/run/1",
        "id": "r",
        "started": "2026-11-20T17:57:45Z",
        "finished": "2026-11-20T17:58:00Z",
        "inventory": [],
        "limit": None,
    }
    controller = {"unhang": "0", "ansible_core": "0", "python": "3.11"}
    (folder / "run.json").write_text(
        json.dumps({**run, "hosts": list(changes), "controller": controller, "policy_sources": []})
    )
    judge_folder(folder, [], None, "2026-11-20")
    return json.loads((folder / "findings.json").read_text())


def decided(folder, changes, reference=None, severities=("critical", "error", "warning", "info")):
    """{host: row}, every smoke test having passed."""
    audit = judged(folder, changes)
    # findings on a single node are not part of this test
    audit["findings"] = [row for row in audit["findings"] if row["scope"] == "group"]
    return decide(
        list(changes), Observation(audit, dict.fromkeys(changes, GOOD), GOOD, reference, severities)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (driver, "999.88.77"), (kernel, "9.9.9-1-generic"), (fewer_gpus, "found 7, "),
        (vbios, "11.22.33.44.55"), (inforom, "G999.0001.00.07"), (nccl, "2.99.1"), (bios, "9.9.9"),
        (mtu, "9001"), (rdma_name, "mlx5_7"),
        (nic_firmware, "99.1.2"), (nvlinks, "3"), (narrow, "4"),
    ],
)  # fmt: skip
def test_what_differs_from_the_majority_fails_that_node_alone_with_both_values(
    tmp_path, change, message
):
    rows = decided(
        tmp_path / "run", {"gpu001": None, "gpu002": change, "gpu003": None, "gpu004": None}
    )
    assert [rows[host]["outcome"] for host in rows] == ["pass", "fail", "pass", "pass"]
    [*lines] = rows["gpu002"]["reasons"]
    assert any(message in line and "3 of 4 healthy nodes have" in line for line in lines), lines


def test_two_peers_that_agree_do_not_decide(tmp_path):
    rows = decided(tmp_path / "run", {"gpu001": None, "gpu002": driver, "gpu003": None})
    assert [rows[host]["outcome"] for host in rows] == ["pass", "not proved", "pass"]


def test_beside_two_new_nodes_that_agree_the_reference_is_still_the_measure(tmp_path):
    rows = decided(tmp_path / "run", {"gpu001": None, "gpu002": kernel, "gpu003": kernel}, "gpu001")
    assert [rows[host]["outcome"] for host in rows] == ["pass", "fail", "fail"]
    assert any(
        "the reference gpu001 has" in line and "9.9.9-1-generic" in line
        for line in rows["gpu003"]["reasons"]
    )
    assert rows["gpu001"]["differences"] == []


def test_one_new_node_and_its_reference_are_no_majority_and_the_reference_is_not_blamed(tmp_path):
    rows = decided(tmp_path / "run", {"gpu001": None, "gpu002": driver}, "gpu001")
    assert (rows["gpu001"]["outcome"], rows["gpu002"]["outcome"]) == ("pass", "fail")


def test_without_reference_and_majority_both_are_named_with_the_others_values(tmp_path):
    rows = decided(tmp_path / "run", {"gpu001": None, "gpu002": kernel})
    found = {
        host: next(row for row in rows[host]["differences"] if "9.9.9-1-generic" in json.dumps(row))
        for host in rows
    }
    assert found["gpu001"]["expected"] == [found["gpu002"]["found"]]
    assert found["gpu002"]["by"].startswith("no value is in the majority")


def test_a_difference_below_the_severities_fails_nobody_and_is_kept(tmp_path):
    rows = decided(
        tmp_path / "run",
        {"gpu001": None, "gpu002": mtu, "gpu003": None},
        severities=("critical",),
    )
    assert rows["gpu002"]["outcome"] == "pass"
    assert [
        row["found"] for row in rows["gpu002"]["differences"] if "9001" in json.dumps(row["found"])
    ]
