"""The table of a transaction as dnf 4.14 prints it, captured, and names that are too long for
it."""

from __future__ import annotations

from unhang_node.base.versions.packages import rpm_version_key
from unhang_node.change.package.dnf.modules import enabled_streams, switches
from unhang_node.change.package.dnf.output import (
    parse_lines,
    parse_streams,
    parse_transaction,
    waits_for,
)
from unhang_node.change.package.values import Step

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
    installed = {
        "nvidia-driver": OLD,
        "nvidia-driver-cuda-libs": OLD,
        "nvidia-fabricmanager": "570.86.15-1",
    }
    assert parse_transaction(TABLE, installed) == [
        Step(
            "a-name-that-is-much-too-long-for-its-column-in-the-table", "install", None, "1.2-3.el9"
        ),
        Step("nvidia-driver", "upgrade", OLD, NEW),
        Step("nvidia-driver-cuda-libs", "upgrade", OLD, NEW),
        Step("nvidia-driver-old-libs", "remove", "3:1-1", None),
        Step("nvidia-fabricmanager", "remove", "570.86.15-1", None),
    ]


def test_nothing_to_do_is_no_step():
    output = (
        f"Package nvidia-driver-{NEW}.noarch is already installed.\nDependencies resolved.\nNothing"
        " to do.\nComplete!\n"
    )
    assert parse_transaction(output, {}) == []


def test_an_epoch_of_zero_is_left_out():
    rows = parse_lines("bash\t0:5.2-1.el9\tx86_64\tbase\n\nnvidia\t3:1-1\tnoarch\n")
    assert rows == [("bash", "5.2-1.el9", "x86_64", "base"), ("nvidia", "3:1-1", "noarch", "")]


def test_who_dnf_waits_for_is_read():
    assert waits_for("Waiting for process with pid 4711 to finish.\n") == 4711
    assert waits_for("Complete!\n") is None


STREAMS = """own
Name          Stream       Profiles    Summary
nvidia-driver 535-dkms [e] default [i] x
nvidia-driver 580-dkms     default     x
nvidia-driver 580-open [d][x] default [d] a [d] in words

Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled
"""


def test_module_streams_are_read_with_the_default():
    assert parse_streams(STREAMS) == [
        ("nvidia-driver", "535-dkms", False),
        ("nvidia-driver", "580-dkms", False),
        ("nvidia-driver", "580-open", True),
    ]
    assert parse_streams("Error: No matching Modules to list\n") == []


def test_versions_are_sorted_as_rpm_does_and_not_as_texts():
    rows = [
        "3:580.95.05-1.el9",
        "3:580.105.08-1.el9",
        "3:535.261.03-1.el9",
        "4:470.1-1",
        "580.200.01-1.el9",
        "3:580.105.08-10.el9",
    ]
    assert sorted(rows, key=rpm_version_key) == [
        rows[4],
        rows[2],
        rows[0],
        rows[1],
        rows[5],
        rows[3],
    ]


def test_a_date_of_two_digits_and_a_snapshot_are_sorted_as_rpm_does():
    rows = ["3:535.86.05-1", "3:535.86-10", "3:535.86^git1-1", "3:535.86~rc1-1"]
    assert sorted(rows, key=rpm_version_key) == [rows[3], rows[1], rows[2], rows[0]]


def test_the_stream_that_is_enabled_is_read_and_one_that_was_let_go_is_none(tmp_path):
    place = tmp_path / "etc/dnf/modules.d"
    place.mkdir(parents=True)
    (place / "nvidia-driver.module").write_text(
        "[nvidia-driver]\nname=nvidia-driver\nstream=535-dkms\nprofiles=\nstate=enabled\n"
    )
    (place / "nginx.module").write_text("[nginx]\nname=nginx\nstream=\nprofiles=\nstate=\n")
    (place / "php.module").write_text("[php]\nname=php\nstream=8.1\nprofiles=\nstate=disabled\n")
    assert enabled_streams(str(tmp_path)) == {"nvidia-driver": "535-dkms"}
    wanted = {"nvidia-driver": "580-dkms", "php": "8.1"}
    assert switches(str(tmp_path), wanted) == {
        "nvidia-driver": ("535-dkms", "580-dkms"),
        "php": (None, "8.1"),
    }
    assert switches(str(tmp_path), {"nvidia-driver": "535-dkms"}) == {}
