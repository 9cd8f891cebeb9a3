"""Section faults: from the ring buffer, from a named file, and from a node without a log."""

from __future__ import annotations

import json
import os

import pytest
from recorded_roots import complaints, copied, facts, place, read, unread, write

from unhang_node.base.section import Absent
from unhang_node.facts.parse.kernel_log import GROUPS

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_healthy_h200_nodes_log_has_no_fault():
    faults = facts(place("h200x8"), "faults")
    assert faults == {
        "source": "kmsg",
        "lines_read": 18,
        "complete": True,
        "resets": [],
        "events": [],
    }


def test_a_workstations_ring_buffer_shows_its_faults(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    fragment, rows = read(folder, ("faults",))["faults"]
    assert complaints("faults", fragment, rows.values()) == []
    assert [(event["kind"], event["code"], event["count"]) for event in fragment["events"]] == [
        ("xid", 31, 2),
        ("hung_task", None, 1),
    ]
    assert fragment["complete"] is False
    assert fragment["events"][0]["line"].startswith("NVRM: Xid (PCI:0000:43:00): 31")


def test_a_named_file_stands_for_the_kernels_log(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("2026-11-20T03:49:11+00:00 gpu001 kernel: " + XID + "\n")
    folder = copied("h200x8", tmp_path)
    write(folder, "/proc/stat", "cpu 1\nbtime 1795146451\n")
    faults = facts(folder, "faults", kernel_log=str(log))
    assert faults["source"] == "file"
    assert faults["events"][0]["first_s"] == 100.0


@pytest.mark.slow
def test_only_the_end_of_an_endless_file_is_read(tmp_path):
    log = tmp_path / "kern.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # sparse: no disk is used
        file.seek(0, os.SEEK_END)
        file.write(("\n[    1.000000] " + XID + "\n").encode())
    assert facts(place("h200x8"), "faults", kernel_log=str(log))["events"][0]["code"] == 79


def test_a_flood_is_reported_in_the_sections_unread_rows(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(
        "".join(
            f"[    1.000000] NVRM: Xid (PCI:0000:3b:00): {number}, x\n"
            for number in range(GROUPS + 1)
        )
    )
    assert unread(place("h200x8"), "faults", kernel_log=str(log))["events"]["status"] == "error"


@pytest.mark.parametrize(
    ("make", "error"),
    [("missing", FileNotFoundError), ("folder", ValueError), ("fifo", ValueError)],
)
def test_a_named_log_that_is_no_file_is_an_error_not_an_empty_log(tmp_path, make, error):
    path = tmp_path / "log"
    if make == "folder":
        path.mkdir()
    elif make == "fifo":
        os.mkfifo(path)
    with pytest.raises(error):
        facts(place("h200x8"), "faults", kernel_log=str(path))


def test_a_node_without_a_kernel_log_has_none():
    with pytest.raises(Absent, match="/dev/kmsg"):
        facts(place("container"), "faults")


def test_what_was_reset_is_known_where_the_kernel_log_is_not(tmp_path):
    folder = copied("container", tmp_path)
    row = {"uuid": "GPU-2", "pci_address": "0000:00:09.0", "verb": "reset the GPU"}
    row |= {"because": ["Xid 95"], "at": 1795146451, "boot_id": "b", "log_s": None}
    write(folder, "/var/lib/unhang/gpu_resets.json", json.dumps({"resets": [row]}))
    write(folder, "/proc/sys/kernel/random/boot_id", "b\n")
    fragment, rows = read(folder, ("faults",))["faults"]
    assert complaints("faults", fragment, rows.values()) == []
    assert [one["because"] for one in fragment["resets"]] == [["Xid 95"]]
    assert (fragment["events"], rows["events"]["status"]) == (None, "absent")
