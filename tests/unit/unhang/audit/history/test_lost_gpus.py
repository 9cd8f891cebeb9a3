"""A GPU that fell off the bus tells no serial number: the ticket has the one that an earlier run of
the same machine read, and names that run."""

from __future__ import annotations

import json
import shutil

import fleets
import pytest

from unhang import cli

SERIALS = {number: f"165000000000{number}" for number in range(8)}
LOST = fleets.finding(
    "gpu-gives-no-handle",
    "gpu007",
    "critical",
    "A GPU gives no handle",
    "an answer",
    "none",
    owner="vendor",
    where={"index": 5},
)


def gpu(number, uuid=None, address=None):
    """A GPU that answers."""
    return {
        "index": number, "uuid": uuid or f"GPU-{number}", "serial": SERIALS[number],
        "pci_address": address or f"0000:0{number}:00.0", "model": "NVIDIA H200",
    }  # fmt: skip


def a_run(runs, day, gpus, machine="m1", findings=()):
    """A judged run of gpu007 on a day of November. gpus: rows of facts, None where they were not
    read."""
    found = fleets.document(
        list(findings),
        {"ok": 1},
        id=f"202611{day}T000000Z-0123456789",
        started=f"2026-11-{day}T00:00:00Z",
    )
    folder = fleets.write_run(runs / found["run"]["id"], found, [])
    run = {
        "schema": "unhang/run/1",
        "hosts": ["gpu007"],
        "inventory": ["i"],
        "limit": None,
        **{name: found["run"][name] for name in ("id", "started", "finished")},
    }
    (folder / "run.json").write_text(json.dumps(run))
    read = {
        "node": {"probe": {"status": "ok"}, "machine_id": machine},
        "gpus": {"probe": {"status": "ok" if gpus is not None else "timeout"}, "devices": gpus},
    }
    (folder / "nodes" / "gpu007.json").write_text(json.dumps(fleets.node("gpu007", ["all"], read)))
    return folder


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The folder of runs."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def rows_of(folder, capsys):
    """The ticket's rows of GPUs that do not answer now: {serial: who read it}."""
    assert cli.main(["report", str(folder), "--host", "gpu007", "-o", "ticket"]) == 1
    _, heading, after = capsys.readouterr().out.partition(
        "GPUs that do not answer now, as an earlier run read them:\n\n"
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in after.partition("\n\n")[0].splitlines()
        if line.startswith("|")
    ]
    assert not heading or (rows[0][3], rows[0][-1]) == ("serial", "read by")
    return {row[3]: row[-1] for row in rows[2:]}


def today(runs, *, without=(5,), machine="m1"):
    rows = [{"index": number} if number in without else gpu(number) for number in range(8)]
    return a_run(runs, 20, rows, machine, [LOST])


def test_the_serial_of_a_lost_gpu_comes_from_the_newest_run_that_read_it_and_the_run_is_named(
    runs, capsys
):
    a_run(runs, 10, [gpu(number) for number in range(8)])
    a_run(runs, 12, [gpu(number) for number in range(8)])
    a_run(runs, 15, None)  # the driver did not answer at all
    a_run(runs, 21, [gpu(number) for number in range(8)])  # a later one
    assert rows_of(today(runs), capsys) == {
        SERIALS[5]: "run 20261112T000000Z-0123456789 of 2026-11-12T00:00:00Z"
    }


def test_a_gpu_that_the_driver_no_longer_counts_is_named_too(runs, capsys):
    a_run(runs, 12, [gpu(number) for number in range(8)])
    without = a_run(runs, 20, [gpu(number) for number in (0, 1, 2, 3, 4, 6, 7)], findings=[LOST])
    assert list(rows_of(without, capsys)) == [SERIALS[5]]


def test_gpus_that_were_lost_one_after_the_other_are_both_named(runs, capsys):
    a_run(runs, 10, [gpu(number) for number in range(8)])
    a_run(runs, 12, [gpu(number) for number in range(8) if number != 3])
    named = rows_of(today(runs, without=(3, 5)), capsys)
    assert {serial: run.split("T")[0] for serial, run in named.items()} == {
        SERIALS[3]: "run 20261110",
        SERIALS[5]: "run 20261112",
    }


def test_a_gpu_that_was_replaced_or_moved_is_not_lost(runs, capsys):
    a_run(runs, 10, [gpu(4, uuid="GPU-old"), gpu(6, address="0000:5e:00.0"), gpu(5)])
    assert list(rows_of(today(runs), capsys)) == [SERIALS[5]]


def test_another_machine_of_that_name_gives_no_serial(runs, capsys):
    a_run(runs, 10, [gpu(number) for number in range(8)], machine="m0")
    assert rows_of(today(runs), capsys) == {}


def test_a_ticket_of_a_node_that_lost_nothing_has_no_such_rows(runs, capsys):
    a_run(runs, 10, [gpu(number) for number in range(8)])
    assert rows_of(today(runs, without=()), capsys) == {}


@pytest.mark.parametrize(
    "facts",
    [
        "x",
        {"gpus": ["x"]},
        {"gpus": {"devices": ["x"]}},
        {"gpus": {"devices": [{"index": 0, "uuid": 7}]}},
    ],
)
def test_a_file_that_is_no_document_ends_no_ticket(runs, capsys, facts):
    folder = a_run(runs, 12, [])
    (folder / "nodes" / "gpu007.json").write_text(json.dumps(fleets.node("gpu007", ["all"], facts)))
    now = today(runs)
    assert rows_of(now, capsys) == {}
    shutil.copy(folder / "nodes" / "gpu007.json", now / "nodes" / "gpu007.json")
    assert rows_of(now, capsys) == {}
