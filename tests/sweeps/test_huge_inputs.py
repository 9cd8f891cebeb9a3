"""Huge dumps, archives and lines are read within their limits."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from job_diagnosis import diagnose

from unhang.core.limits import Limits
from unhang.jobs.diagnose.logs.flight_dumps import read_dumps
from unhang.jobs.diagnose.logs.reading import LONGEST_LINE, Block
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_signatures


def test_dump_of_sixty_megabytes_of_empty_maps_is_refused_within_its_limits():
    many = b"\x80\x04(" + b"}" * (60 << 20) + b"l."
    with pytest.raises(ValueError, match=r"took more than it may|not a flight-recorder dump"):
        read_dumps(many, "rank0", Limits(cpu_s=5, memory_bytes=128 << 20, wall_s=20))


class CountingPattern:
    """A pattern that records how many characters it had to search."""

    def __init__(self, compiled):
        self.compiled, self.pattern, self.characters = compiled, compiled.pattern, 0

    def search(self, text, begin=0, end=None):
        end = len(text) if end is None else min(end, len(text))
        self.characters += end - begin
        return self.compiled.search(text, begin, end)


@pytest.mark.parametrize(
    "names", ["/dev/nvidia1", "/dev/nvidia", "/dev/nvidia1 ", "/dev/nvidiactl:"]
)
def test_a_line_of_one_device_name_over_and_over_is_searched_a_few_times_and_not_once_for_each_name(
    names,
):
    """Counted in characters that patterns search, over all signatures, and lines of which no two
    are alike: at most a few times the text."""
    lines = [
        f"{'x' * number} {names * (LONGEST_LINE // len(names) - 40)}".encode()
        for number in range(1, 31)
    ]
    counting = [replace(one) for one in load_signatures()]
    for one in counting:
        vars(one)["pattern"] = CountingPattern(one.pattern)
    scan_blocks([Block(1, lines)], "a.log", Sieve(counting))
    searched = {one.id: one.pattern.characters for one in counting}
    assert searched["device-file-refused"] > 0
    assert max(searched.values()) <= 3 * sum(map(len, lines))


def test_archive_of_ten_gigabytes_is_read_up_to_the_cap_and_no_further(tmp_path, monkeypatch):
    """Ten gigabytes of lines in ten megabytes: one piece repeated, as the format allows. No more of
    the file is read than the limit permits."""
    log = tmp_path / "a.log.gz"
    piece = gzip.compress(b"step 10 loss 2.5\n" * (1 << 20))
    log.write_bytes(piece * ((10 << 30) // (17 << 20) + 1))
    monkeypatch.setattr("unhang.jobs.diagnose.diagnosing.MOST_BYTES", 64 << 20)
    [about] = diagnose([str(log)])["inputs"]
    assert about["kind"] == "log" and about["lines"] <= (66 << 20) // 17
    assert any("not read whole" in note for note in about["notes"])
