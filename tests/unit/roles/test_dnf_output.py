"""The table of a transaction as dnf 4.14 prints it, captured, and names that are too long for it."""

from __future__ import annotations

from unhang_node.change.package.apt_output import Step
from unhang_node.change.package.dnf_output import parse_lines, parse_transaction, waits_for

OLD, NEW = "3:570.86.15-1.el9", "3:580.95.05-1.el9"
TABLE = f"""Last metadata expiration check: 0:00:03 ago on Fri Nov 20 07:52:11 2026.
Dependencies resolved.
================================================================================
 Package                      Arch        Version                Repo      Size
================================================================================
Upgrading:
 nvidia-driver                noarch      {NEW}      own      5.5 k
 nvidia-driver-cuda-libs      noarch      {NEW}      own      5.5 k
     replacing  nvidia-driver-old-libs.noarch 3:1-1
Installing dependencies:
 a-name-that-is-much-too-long-for-its-column-in-the-table
                              x86_64      1.2-3.el9              own      120 M
Removing:
 nvidia-fabricmanager         x86_64      570.86.15-1            @own     4.0

Transaction Summary
================================================================================
Upgrade  2 Packages

Total size: 11 k
Operation aborted.
"""


def test_a_table_is_read_with_wrapped_names_replaced_and_removed_packages():
    installed = {"nvidia-driver": OLD, "nvidia-driver-cuda-libs": OLD, "nvidia-fabricmanager": "570.86.15-1"}
    assert parse_transaction(TABLE, installed) == [
        Step("a-name-that-is-much-too-long-for-its-column-in-the-table", "install", None, "1.2-3.el9"),
        Step("nvidia-driver", "upgrade", OLD, NEW),
        Step("nvidia-driver-cuda-libs", "upgrade", OLD, NEW),
        Step("nvidia-driver-old-libs", "remove", "3:1-1", None),
        Step("nvidia-fabricmanager", "remove", "570.86.15-1", None),
    ]


def test_nothing_to_do_is_no_step():
    said = f"Package nvidia-driver-{NEW}.noarch is already installed.\nDependencies resolved.\nNothing to do.\nComplete!\n"
    assert parse_transaction(said, {}) == []


def test_an_epoch_of_zero_is_left_out():
    rows = parse_lines("bash\t0:5.2-1.el9\tx86_64\tbase\n\nnvidia\t3:1-1\tnoarch\n")
    assert rows == [("bash", "5.2-1.el9", "x86_64", "base"), ("nvidia", "3:1-1", "noarch", "")]


def test_who_dnf_waits_for_is_read():
    assert waits_for("Waiting for process with pid 4711 to finish.\n") == 4711
    assert waits_for("Complete!\n") is None
