"""Which signatures are tried on which lines: no missing anchor hides a match, and lines that differ
only in digits or pointers are all counted."""

from __future__ import annotations

import random

import pytest

from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.matching.scanning import scan_blocks
from unhang.jobs.diagnose.matching.sieve import DIGITS, Sieve
from unhang.jobs.diagnose.matching.signatures import load_signatures

SIGNATURES = load_signatures()


@pytest.mark.parametrize("before", [b"", b"~", b"a "])
def test_each_anchor_is_found_wherever_it_stands(before):
    sieve = Sieve(SIGNATURES)
    for anchor, signatures in sieve.anchors.items():
        tried = {one.id for one, _ in sieve.trials(before + anchor + b"~")}
        assert tried >= {one.id for one in signatures}


def test_a_signature_is_tried_only_with_the_anchors_that_are_there():
    row = next(one for one in SIGNATURES if len(one.anchors) > 1 and not one.reads_on)
    first = row.anchors[0].translate(None, DIGITS)
    ((one, anchors),) = Sieve([row]).trials(b"~" + first)
    assert (one, anchors[0]) == (row, row.anchors[0].decode())
    assert not Sieve([row]).trials(b"nothing of it")


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
