"""A ticket has what a vendor asks for, of one node, and nothing of others."""

from __future__ import annotations

import json

import fleets
import hostile
import pytest

from unhang import cli
from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.smoke_results import Member, SmokeResult, Suspect
from unhang.audit.report.ticket import render_ticket, ticket_blocks

LOST = fleets.finding(
    "xid-fatal", "gpu007", "critical", "A GPU is lost", "no Xid", "Xid 79", owner="vendor",
    where={"index": 5}, remedy={"person": "return the card"},
    evidence=[{"path": "faults.events.codes", "value": [79]}],
)  # fmt: skip
SETTING = fleets.finding(
    "nccl-debug-left-on", "gpu007", "warning", "NCCL_DEBUG is set", "unset", "INFO", owner="user"
)
OTHER = fleets.finding(
    "nvlink-some-inactive", "gpu006", "error", "An NVLink is down", "18", "17", owner="vendor"
)
WIDE = fleets.finding(
    "group-x",
    None,
    "error",
    "x differs",
    "the same",
    "gpu006 differs",
    owner="vendor",
    scope="group",
    hosts=["gpu006", "gpu007"],
)
SECTIONS = {
    "node": {"dmi": {"vendor": "Supermicro", "product": "SYS-821GE", "bios_version": "2.1"}},
    "gpus": {
        "devices": [
            {
                "index": 5,
                "model": "NVIDIA H200",
                "uuid": "GPU-5",
                "serial": "1654",
                "pci_address": "0000:0b:00.0",
                "vbios": "96.00",
            }
        ]
    },
    "network": {
        "rdma": [
            {
                "name": "mlx5_0",
                "board": "MT_0000000838",
                "pci_address": "0000:18:00.0",
                "firmware": "28.39.3560",
            }
        ]
    },
}


@pytest.fixture
def run(tmp_path):
    """The run folder of a node with a lost GPU and of a neighbour."""
    node = fleets.node(
        "gpu007",
        ["all"],
        {name: {"probe": {"status": "ok"}, **section} for name, section in SECTIONS.items()},
    )
    found = fleets.document([LOST, SETTING, OTHER, WIDE], {"ok": 2})
    folder = fleets.write_run(tmp_path / "run", found, [])
    (folder / "nodes" / "gpu007.json").write_text(json.dumps(node))
    return folder


def test_a_ticket_names_the_device_the_limit_and_the_evidence_and_nobody_else(run, capsys):
    assert cli.main(["report", str(run), "--host", "gpu007", "-o", "ticket"]) == 1
    text = capsys.readouterr().out
    for part in (
        "Supermicro",
        "dmidecode -s system-serial-number",
        "1654",
        "0000:0b:00.0",
        "96.00",
        "| mlx5\\_0 | MT\\_0000000838 | 0000:18:00.0 | 28.39.3560 |",
        "A GPU is lost: GPU 5",
        "no Xid",
        "Xid 79",
        "faults.events.codes = [79]",
        "return the card",
    ):
        assert part in text, part
    assert "gpu006" not in text and "NCCL" not in text and "x differs" not in text


def test_a_ticket_says_where_each_device_is_and_that_the_number_of_its_slot_is_not_read():
    text = render_ticket(
        list(ticket_blocks(fleets.document([LOST], {"ok": 1}), "gpu007", SECTIONS, [], []))
    )
    tables = [block.splitlines() for block in text.split("\n\n") if "slot (PCI address)" in block]
    cells = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for rows in tables
        for row in (rows[0], rows[2])
    ]
    assert [
        dict(zip(*pair, strict=True))["slot (PCI address)"] for pair in (cells[:2], cells[2:])
    ] == ["0000:0b:00.0", "0000:18:00.0"]
    assert text.count("number on the chassis is not read") == 1
    unread = render_ticket(
        list(ticket_blocks(fleets.document([LOST], {"ok": 1}), "gpu007", {}, [], []))
    )
    # a node without facts has no device whose slot could be looked up
    assert "chassis" not in unread


def test_what_was_tried_names_no_other_node():
    tests = [
        SmokeResult(
            "fail",
            16,
            [Member("gpu006"), Member("gpu007")],
            suspects=[
                Suspect("all_reduce", "too slow", "gpu007"),
                Suspect("init", "lost", "gpu006"),
            ],
        ),
        SmokeResult("pass", 8, [Member("gpu006")]),
    ]
    blocks = list(
        ticket_blocks(
            fleets.document([LOST], {"ok": 1}),
            "gpu007",
            {},
            tests,
            ["repair by unhang: failed, the GPU stayed away"],
        )
    )
    text = render_ticket(blocks)
    assert "| smoke test of 2 nodes together | fail, all\\_reduce, too slow |" in text
    assert "| repair by unhang | failed, the GPU stayed away |" in text
    assert "gpu006" not in text and "alone" not in text


@pytest.mark.slow
@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_what_a_node_says_is_no_markup(text):
    sections = {
        "node": {"dmi": {"vendor": text}},
        "gpus": {"devices": [{"index": 0, "serial": text}]},
    }
    finding = fleets.finding(
        "r",
        "n",
        "error",
        text,
        text,
        text,
        owner="vendor",
        evidence=[{"path": text[:50], "value": text}],
    )
    blocks = list(
        ticket_blocks(fleets.document([finding], {"ok": 1}), "n", sections, [], [f"x: {text[:50]}"])
    )
    plain = render_ticket(blocks)
    assert all(line.isprintable() for line in plain.split("\n"))
    assert not any("<script" in line for line in plain.split("\n") if not line.startswith("    "))


@pytest.mark.parametrize(
    "more",
    [(), ("--host", "gpu00[6-7]")],
    ids=["no node", "two nodes"],
)
def test_a_ticket_is_of_one_node(run, capsys, more):
    assert cli.main(["report", str(run), "-o", "ticket", *more]) == 2
    assert " needs " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("gpu008", "; what was found on it: "),
        ("gone", ": the node was not read; why, and what to do: "),
    ],
)
def test_a_node_without_a_fault_for_its_vendor_has_no_ticket(tmp_path, capsys, host, found):
    findings = [
        {**SETTING, "host": "gpu008"},
        fleets.finding("node-unreachable", "gone", "error", "Not reached", "e", "f"),
    ]
    folder = fleets.write_run(
        tmp_path / "run", fleets.document(findings, {"ok": 1, "unreachable": 1}), []
    )
    out = tmp_path / "ticket.md"
    assert cli.main(["report", str(folder), "--host", host, "-o", "ticket", "--out", str(out)]) == 2
    assert f"no fault of {host} is known that its vendor repairs{found}" in capsys.readouterr().err
    assert not out.exists()


def test_an_owner_selects_findings_causes_and_rows(run, capsys):
    left = narrowed(fleets.document([LOST, SETTING, OTHER], {"ok": 2}), Filter(owners=("vendor",)))
    assert (
        {one["rule"] for one in left["findings"]}
        == {one["rule"] for one in left["causes"]}
        == {"xid-fatal", "nvlink-some-inactive"}
    )
    assert {one["owner"] for one in left["causes"]} == {"vendor"}
    cli.main(["report", str(run), "--owner", "user", "-o", "json"])
    assert [one["rule"] for one in json.loads(capsys.readouterr().out)["findings"]] == [
        "nccl-debug-left-on"
    ]
    assert cli.main(["report", str(run), "--owner", "vender"]) == 2
    assert "did you mean vendor?" in capsys.readouterr().err
    cli.main(["report", str(run), "--rule", "nccl-debug-left-on", "-v"])
    assert "for: user" in capsys.readouterr().out
