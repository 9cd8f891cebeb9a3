"""A log of the kernel in every format in which it is stored: the message and time of a line, the
newest boot, groups of equal faults, and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang_node.facts.parse.fault_lines import NEEDLES
from unhang_node.facts.parse.kernel_log import CANDIDATES, GROUPS, find_faults, split_line

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP\n"


@pytest.mark.parametrize(
    ("line", "stamp", "message"),
    [
        ("4,1234,5678901,-;" + XID, 5.678901, XID),
        ("[    5.678901] " + XID, 5.678901, XID),
        ("<4>[    5.678901] " + XID, 5.678901, XID),
        ("[    5.678901][ T1234] " + XID, 5.678901, XID),
        ("[    5.678901] gpu001 kernel: " + XID, 5.678901, XID),
        ("[Thu Nov 20 03:49:11 2026] " + XID, None, XID),
        ("Nov 20 03:49:11 gpu001 kernel: [    5.678901] " + XID, 5.678901, XID),
        ("Nov  2 03:49:11 gpu001 kernel: " + XID, None, XID),
        ("2026-11-20T03:49:11.123456+00:00 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T03:49:11+0000 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T05:49:11+02:00 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T03:49:11Z gpu001 kernel: [   77.500000] " + XID, 77.5, XID),
        (XID, None, XID),
        ("12,1234,5678901,-;" + XID, 5.678901, ""),  # facility 1: a process wrote it
        ("Nov 20 03:49:11 gpu001 sshd[123]: " + XID, None, ""),
        ("2026-11-20T03:49:11Z gpu001 python3: " + XID, 100.0, ""),
    ],
)
def test_every_shape_of_a_log_gives_the_message_and_the_seconds_since_boot(line, stamp, message):
    assert split_line(line, 1795146451) == (stamp, message)


def test_a_log_of_dmesg_with_local_times_has_them_since_its_boot():
    log = f"[Wed Dec 31 23:59:00 2025] Linux version 6\n[Thu Jan  1 00:00:30 2026] {XID}\n"
    assert find_faults(log.encode(), 7.0)["events"][0]["last_s"] == 90.0


def test_like_faults_are_counted_once_with_first_and_last_time():
    lines = [BOOT] + [
        f"[{second:5d}.000000] NVRM: Xid (PCI:0000:3b:00): 94, pid=1{second}, name=python3,"
        " Contained\n"
        for second in (10, 20, 30)
    ]
    lines.append("[   40.000000] NVRM: Xid (PCI:0000:5e:00): 94, pid=7, name=python3, Contained\n")
    found = find_faults("".join(lines).encode())
    assert [
        (
            event["pci_address"],
            event["count"],
            event["processes"],
            event["first_s"],
            event["last_s"],
        )
        for event in found["events"]
    ] == [
        ("0000:3b:00.0", 3, 3, 10.0, 30.0),
        ("0000:5e:00.0", 1, 1, 40.0, 40.0),
    ]
    assert (
        found["events"][0]["line"]
        == "[   10.000000] NVRM: Xid (PCI:0000:3b:00): 94, pid=110, name=python3, Contained"
    )
    assert found["complete"] is True
    assert found["lines_read"] == 5


def test_a_log_file_of_several_boots_counts_only_the_newest():
    text = (
        BOOT
        + "[    9.000000] "
        + XID
        + "\n"
        + BOOT
        + "[    8.000000] mlx5_core 0000:3b:00.0 ens1np0: Link down\n"
    )
    assert [event["kind"] for event in find_faults(text.encode())["events"]] == ["link_down"]


def test_a_line_that_quotes_the_boot_banner_is_no_boot():
    text = BOOT + "[    9.000000] " + XID + '\n[   10.000000] audit: comm="Linux version 6.8"\n'
    assert [event["kind"] for event in find_faults(text.encode())["events"]] == ["xid"]


def test_a_log_that_does_not_reach_back_to_the_boot_is_not_complete():
    found = find_faults(b"[  900.000000] audit: backlog\n")
    assert (found["events"], found["complete"]) == ([], False)


def test_terminal_escapes_in_a_line_are_written_out():
    found = find_faults(("[    1.000000] " + XID + "\x1b]0;owned\x07\n").encode())
    assert found["events"][0]["line"].endswith("bus.\\x1b]0;owned\\x07")


def test_a_flood_is_bounded_and_says_so():
    flood = "".join(
        f"[    1.000000] NVRM: Xid (PCI:0000:3b:00): {number}, x\n"
        for number in range(CANDIDATES * 2)
    )
    found = find_faults((BOOT + flood).encode())
    assert len(found["events"]) == GROUPS
    assert found["complete"] is False
    assert found["cut"]
    assert found["lines_read"] == CANDIDATES * 2 + 1


def test_xids_are_kept_when_a_flood_of_lesser_faults_is_cut():
    flood = "".join(
        f"[    1.000000] mlx5_core 0000:3b:00.0 ens{number}: Link down\n"
        for number in range(GROUPS * 2)
    )
    assert (
        find_faults((BOOT + flood + "[    2.000000] " + XID + "\n").encode())["events"][0]["code"]
        == 79
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "filler", [b"x", b"\n", b"\0", b"Xid (", b"Linux version ", b"[", b"1,", b"NVRM: nvlink "]
)
def test_ten_megabytes_of_anything_end(filler):
    found = find_faults(filler * (10_000_000 // len(filler)))
    assert set(found) == {"events", "lines_read", "complete", "cut"}


@given(
    st.lists(
        st.sampled_from(
            [
                *NEEDLES,
                "NVRM: ",
                "0000:3b:00.0",
                "(PCI:",
                "): ",
                " ",
                ":",
                "[1]",
                "a" * 300,
                "\x1b",
                "é",
                "9" * 30,
                "segfault at ",
            ]
        ),
        max_size=40,
    )
)
def test_no_mixture_of_telling_words_breaks_the_reader(words):
    line = "".join(words)
    found = find_faults((BOOT + "[    1.000000] " + line + "\n").encode())
    for event in found["events"]:
        assert event["count"] == 1
        assert event["line"].isprintable()


@given(st.binary(max_size=2000))
def test_no_bytes_break_the_reader(log):
    found = find_faults(log, 0)
    assert found["lines_read"] <= log.count(b"\n") + 1
    assert all(event["count"] >= 1 and event["line"].isprintable() for event in found["events"])
