"""Logs that repeat one line, and lines made to keep a pattern busy."""

from __future__ import annotations

import io
import re
import time

from unhang.jobs.diagnose.logs.reading import LONGEST_LINE, Input, read_blocks
from unhang.jobs.diagnose.matching.scanning import MOST_EVENTS, Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_signatures

ENDLESS_S = 20  # of processor time; such a line takes milliseconds
SIEVE = Sieve(load_signatures())
SHM = (
    "pod:4:5 [1] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 33030532"
    " bytes, error: No space left on device (28)"
)


def scan(data: bytes):
    about = Input("log")
    return scan_blocks(read_blocks(io.BytesIO(data), about), "log", SIEVE), about


def test_message_repeated_thousands_of_times_is_kept_a_bounded_number_of_times():
    found, about = scan((SHM + "\n").encode() * 20_000)
    assert about.lines == 20_000 and len(found.events) <= 3 * MOST_EVENTS


def seconds_on_endless_lines(signature):
    """Repeated pieces of the row's own example, up to the longest line. Processor time counts,
    which other work does not increase."""
    example = signature.examples["match"][0]
    began_s = time.process_time()
    for piece in (
        example,
        example[: len(example) // 2],
        example + " ",
        re.sub(r"\d", "9", example) * 3,
    ):
        signature.search((piece * (LONGEST_LINE // max(1, len(piece)) + 1))[:LONGEST_LINE])
    return time.process_time() - began_s


def test_a_line_made_to_run_a_pattern_away_is_answered():
    """A pattern that backtracks through every combination takes minutes and more."""
    assert [one.id for one in load_signatures() if seconds_on_endless_lines(one) >= ENDLESS_S] == []
