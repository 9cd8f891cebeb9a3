"""Which signatures are tried on which lines: no missing anchor hides a match, and lines that differ
only in digits or pointers are all counted."""

from __future__ import annotations

import random

import pytest

from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.matching.needed_texts import needed_texts
from unhang.jobs.diagnose.matching.scanning import scan_blocks
from unhang.jobs.diagnose.matching.sieve import LITTLE, Sieve, by_family
from unhang.jobs.diagnose.matching.signatures import load_signatures

SIGNATURES = load_signatures()
FILLER = [b"~" * 400] * (LITTLE // 400 + 1)


def asked_much() -> Sieve:
    """A sieve that has seen more text than it searches in the simple way."""
    sieve = Sieve(SIGNATURES)
    assert list(sieve.likely(FILLER)) == []
    return sieve


@pytest.mark.parametrize("shift", range(4))
def test_each_anchor_is_found_wherever_it_stands(shift):
    sieve = asked_much()
    anchors = list(sieve.anchors)
    lines = [
        b"~" * (number % 4 + shift) + anchor + (b"~" if number % 3 else b"")
        for number, anchor in enumerate(anchors)
    ]
    present = [
        held
        for piece in (lines[at : at + 50] for at in range(0, len(lines), 50))
        for held in sieve.anchors_in(piece)
    ]
    assert all(place in held for place, held in enumerate(present))
    assert len(present) == len(anchors)


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"mlx5_core \S{1,9}: fatal", (b"mlx_core ", b": fatal")),
        (r"a(?:bc|bd)e(?:fg)?", (b"ab",)),
        (
            r"NCCL (?:WARN|ERROR): (?P<what>failed)",
            (b"NCCL ", ((b"WARN",), (b"ERROR",)), b": failed"),
        ),
        (r"(?i:nccl) hangs(?!ver)", (b" hangs",)),
        (r"(?i)anything", ()),
        (r"one|\d{1,3}", ()),
        (r"(?:ab){1,3}c{0,2}de", (b"ab", b"de")),
    ],
)
def test_needed_texts_are_what_no_match_can_lack(pattern, needed):
    assert needed_texts(pattern) == needed


def test_each_rank_is_heard_although_pointers_alone_tell_its_lines_apart():
    noise = random.Random(2)
    lines = [
        f"gpu{rank // 8:03d}:{rank}:{rank} [{rank % 8}] NCCL INFO ncclCommInitRank comm"
        f" 0x{noise.getrandbits(46):x} rank {rank} nranks 600 cudaDev 0 nvmlDev 0 busId"
        f" {rank % 8 + 1}b000 commId 0x77 - Init COMPLETE"
        for rank in range(600)
    ]
    scan = scan_blocks([Block(1, [line.encode() for line in lines])], "log", Sieve(SIGNATURES))
    assert {
        event.fields["rank"] for event in scan.events if event.signature.id == "fact-init-complete"
    } == {str(rank) for rank in range(600)}


def test_anchor_that_holds_another_one_comes_behind_the_shortest_of_these():
    assert by_family([b"NCCL", b"NCCL WARN", b"WARN", b"Xid"]) == [
        b"NCCL",
        b"NCCL WARN",
        b"WARN",
        b"Xid",
    ]
    assert by_family([b"timed out", b"out", b"a timed out"]) == [
        b"out",
        b"a timed out",
        b"timed out",
    ]


JOB = """\
Welcome to the cluster. Please read the notes on the file systems before you start large jobs.
{stamp}
We saw that the maintenance on Monday took longer, so that some of the nodes are not back yet.
{line}
The job goes on with what it has, and the results are in the folder that the script has named.
{stamp} 1
{stamp} 2
{stamp} 3
"""


@pytest.mark.parametrize(
    "stamp", ["2026-11-02 10:15:07,345 - trainer - starting", "[rank3]: ready", "10:15:07 ready"]
)
def test_no_message_is_lost_between_banners_and_sentences_of_a_job(stamp):
    sieve, lost = Sieve(SIGNATURES), []
    for row in SIGNATURES:
        for line in (f"our trainer reports that {one}" for one in row.examples["match"]):
            text = JOB.format(stamp=stamp, line=line)
            scan = scan_blocks([Block(1, text.encode().split(b"\n"))], "job.log", sieve)
            found = row.id in {one.id for one in scan.events}
            lost += [] if found or not row.search(line) else [(row.id, line)]
    assert lost == []
