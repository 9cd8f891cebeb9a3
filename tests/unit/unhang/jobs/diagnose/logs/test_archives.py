"""What an archive holds is read up to its fault, however it was cut or damaged, and the fault is
reported after it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zlib

import pytest

from unhang.jobs.diagnose.logs.archives import BROKEN, STEP, unpacked
from unhang.jobs.diagnose.logs.reading import Input, read_blocks

NUMBERS = random.Random(3)
LINES = [f"step {number} loss {NUMBERS.random()}" for number in range(8_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
PACKERS = [gzip.compress, bz2.compress, lzma.compress]


def read(archive, size=100_000):
    """(what was read, the fault or None)."""
    stream, pieces = unpacked(io.BytesIO(archive)), []
    try:
        while piece := stream.read(size):
            pieces.append(piece)
    except BROKEN as problem:
        return b"".join(pieces), problem
    return b"".join(pieces), None


@pytest.mark.parametrize("size", [1, 777, 1 << 20])
@pytest.mark.parametrize("pack", PACKERS[:2])
def test_all_members_are_read_and_padding_is_skipped(pack, size):
    text = TEXT[:5_000]
    assert read(pack(text) + pack(b"") + pack(text) + bytes(30_000), size) == (text * 2, None)


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("missing", [1, 20, 50_000])
def test_a_short_archive_gives_all_that_its_own_format_can_unpack(pack, missing):
    archive = pack(TEXT)[:-missing]
    unpack = {
        gzip.compress: lambda: zlib.decompressobj(31),
        bz2.compress: bz2.BZ2Decompressor,
        lzma.compress: lzma.LZMADecompressor,
    }[pack]()
    content, fault = read(archive)
    assert content == unpack.decompress(archive)
    assert isinstance(fault, EOFError)


def test_a_short_archive_is_read_with_all_its_lines():
    about = Input("job.log.gz")
    lines = [
        line
        for block in read_blocks(unpacked(io.BytesIO(gzip.compress(TEXT)[:-20])), about)
        for line in block.lines
    ]
    assert [line.decode() for line in lines[:-1]] == LINES[: len(lines) - 1]
    assert len(lines) >= len(LINES) - 5
    assert f"broke off after {about.bytes:,} bytes" in about.notes[0]


def test_a_damaged_archive_gives_what_stands_before_the_fault():
    archive = bytearray(gzip.compress(TEXT))
    archive[-8:-4] = b"\xff" * 4  # the checksum
    content, fault = read(bytes(archive))
    assert TEXT.startswith(content) and len(content) > len(TEXT) - STEP
    assert isinstance(fault, OSError)


def test_what_follows_the_last_member_is_a_fault_after_all_content():
    content, fault = read(gzip.compress(TEXT) + b"something else")
    assert content == TEXT
    assert fault is not None


def test_what_expands_without_end_is_unpacked_only_as_far_as_it_is_asked():
    stream = unpacked(io.BytesIO(bz2.compress(bytes(50_000_000))))
    assert stream.read(10) == bytes(10)
    assert stream.read(STEP) == bytes(STEP)


def test_other_files_are_read_as_they_are():
    assert read(TEXT) == (TEXT, None)
    assert read(b"") == (b"", None)
