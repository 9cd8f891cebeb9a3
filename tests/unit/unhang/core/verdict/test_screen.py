"""The first screen: at most twelve lines, a command that can be pasted, nothing that a log could
put into either."""

import re
import shlex

import pytest

from unhang.core.verdict.screen import (
    Quote,
    VerdictScreen,
    filled,
    place_of,
    render_screen,
    with_waited_for,
)
from unhang.core.verdict.waited_rows import Beside, Line, waited_for_row
from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, waited_for

TP = Group("mesh_tp", tuple(range(8)), 8)
DP = [Group(f"mesh_dp{rank}", (rank, rank + 8), 2) for rank in range(8)]
STEPS = [
    *(Step(rank, "mesh_tp", "ALLREDUCE", 5120, LAUNCHED if rank != 5 else COMPLETED,
           source="/logs/log.txt", line=17) for rank in range(8)),
    *(Step(rank, "mesh_tp", "ALLREDUCE", 5119, COMPLETED) for rank in (5,)),
    *(Step(rank + 8, group.name, "ALLREDUCE", 33, LAUNCHED) for rank, group in enumerate(DP)),
]  # fmt: skip
STEPS = [step for step in STEPS if not (step.rank == 5 and step.seq == 5120)]
ROW = waited_for_row(
    waited_for([TP, *DP], STEPS, seen=range(16)),
    Beside(
        hosts={5: "gpu07"},
        last={5: Line("/logs/log.txt", 9, "10:00:58 step 812 loss 2.31")},
        texts={("/logs/log.txt", 17): "[rank1] Watchdog caught collective operation timeout"},
    ),
)
COMMAND = 'unhang inspect --pid "$(pgrep -of train.py)"'
UNDECIDED = VerdictScreen(
    "not decided: the job stopped",
    next_command=COMMAND,
    next_tells="alive: says where it is; ended: dmesg -T",
    more="-v: what was read",
)


def test_who_is_waited_for_is_the_screen_of_the_page():
    assert render_screen(with_waited_for(UNDECIDED, ROW), 104) == (
        "rank 5 (gpu07) is waited for: 7 of 8 ranks of mesh_tp wait in ALLREDUCE #5120   likely\n"
        "  no line shows that rank 5 of mesh_tp called it\n"
        "  8 groups of mesh_dp wait behind it\n"
        "  not decided: the job stopped\n"
        f"  {'last line of rank 5: 10:00:58 step 812 loss 2.31':<87}/logs/log.txt:9\n"
        f"  {'[rank1] Watchdog caught collective operation timeout':<86}/logs/log.txt:17\n"
        "next, on gpu07:\n"
        f"  {COMMAND}\n"
        "    alive: says where it is; ended: dmesg -T\n"
        "-v: what was read\n"
    )


def test_a_verdict_that_says_the_same_is_not_said_twice():
    own = VerdictScreen(
        "not decided: rank 5 is waited for: 7 of 8 ranks of mesh_tp wait", next_host="n1"
    )
    text = render_screen(with_waited_for(own, ROW))
    assert text.count("is waited for") == 1 and "not decided" not in text


def test_a_verdict_that_is_sure_stays_the_headline():
    sure = VerdictScreen("rank 5 ran out of memory", "sure", quoted=(Quote("CUDA out of memory"),))
    lines = render_screen(with_waited_for(sure, ROW)).splitlines()
    assert lines[0] == "rank 5 ran out of memory   sure"
    assert lines[1].startswith("  rank 5 (gpu07) is waited for: ")


def test_a_wait_that_accuses_nobody_stays_below_the_verdict():
    steps = [Step(rank, "tp", "all_reduce", 7, LAUNCHED) for rank in range(2)]
    row = waited_for_row(waited_for([Group("tp", (0, 1))], steps, seen=range(2), complete=True))
    lines = render_screen(with_waited_for(UNDECIDED, row)).splitlines()
    assert lines[0] == "not decided: the job stopped"
    assert lines[1] == "  2 of 2 ranks of tp entered all_reduce #7, and none left it"


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_twelve_lines_are_never_exceeded_and_the_command_never_broken(width):
    long = "word " * 2000
    command = f"nvidia-smi --query-gpu={'pcie.link.gen.current,' * 20} --format=csv"
    screen = VerdictScreen(
        long, "possible", (long,) * 40, (Quote(long, "log:1"),) * 40, (long,) * 9, "n" * 90,
        command, long, long,
    )  # fmt: skip
    lines = render_screen(with_waited_for(screen, ROW), width).splitlines()
    assert len(lines) <= 12
    assert f"  {command}" in lines
    assert all(
        len(line) <= width for line in lines if command not in line and "next, on" not in line
    )
    assert any(line.endswith("   likely") for line in lines[:3])


def test_a_quote_that_is_too_long_keeps_its_beginning_its_end_and_its_place():
    text = f"[rank1]: RuntimeError {'x' * 200} out of memory"
    lines = render_screen(VerdictScreen("v", quoted=(Quote(text, "a.log:3"),)), 80).splitlines()
    assert lines[1].startswith("  [rank1]: RuntimeError") and " [...] " in lines[1]
    assert re.search(r" \[\.\.\.\] out of memory {2,}a\.log:3$", lines[1])


def test_nothing_of_a_log_reaches_the_terminal_as_a_control_character():
    evil = "\x1b[2J\x1b]0;x\x07 a\nb\u202e"
    screen = VerdictScreen(evil, "likely", (evil,), (Quote(evil, place_of(evil, 3)),), (evil,),
                           evil, evil, evil, evil)  # fmt: skip
    text = render_screen(screen)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "\nb" not in text


@pytest.mark.parametrize(
    ("command", "values", "made"),
    [
        ("py-spy dump --pid {pid}", {"pid": ["4711"]}, "py-spy dump --pid 4711"),
        ("nc -vz {address} {port}", {"address": ["10.0.0.7"], "port": ["29500"]},
         "nc -vz 10.0.0.7 29500"),
        ("nc -vz {address} {port}", {"address": ["10.0.0.7"]}, None),
        ("df -h {path}", {"path": ["/data; rm -rf /", "/data/run-1"]}, "df -h /data/run-1"),
        ("py-spy dump --pid {pid}", {"pid": ["1;reboot"]}, None),
        ("getent hosts {host}", {"host": ["$(reboot)"]}, None),
        ("getent hosts {host}", {"host": ["-x"]}, None),
        ("nvidia-smi -i {pci}", {"pci": ["0000:3b:00.0"]}, "nvidia-smi -i 0000:3b:00.0"),
        ("find . -exec fuser {} +", {}, "find . -exec fuser {} +"),
    ],
)  # fmt: skip
def test_a_command_is_filled_only_with_what_a_shell_reads_as_one_plain_word(command, values, made):
    answer = filled(command, values)
    assert answer == made
    assert made is None or shlex.split(made)
