import io
import subprocess
import sys

import pytest

from unhang.core.bounded_reads import PIECE_BYTES, read_at_most

SMALL_FILE_IN_LITTLE_MEMORY = """
import pathlib, resource, sys
from unhang.core.run.private_file import read_regular
from unhang.core.strict_json import read_bounded
size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20),) * 2)
path = pathlib.Path(sys.argv[1])
print(read_bounded(path, 1 << 30), read_regular(path, 1 << 30))
"""


class Slow(io.RawIOBase):
    """Gives three bytes at a time, as a pipe may."""

    def __init__(self, content: bytes):
        self.content, self.largest = io.BytesIO(content), 0

    def readable(self):
        return True

    def read(self, size=-1):
        self.largest = max(self.largest, size)
        return self.content.read(min(size, 3))


@pytest.mark.parametrize(
    ("content", "most", "read"),
    [
        (b"", 9, b""),
        (b"abcdefgh", 8, b"abcdefgh"),
        (b"abcdefgh", 7, b"abcdefg"),
        (b"abc", 0, b""),
        (b"abc", -1, b""),
    ],
)
@pytest.mark.parametrize("expected", [-5, 0, 1, 5, 1 << 40])
def test_all_or_as_much_as_the_bound_is_read(content, most, read, expected):
    assert read_at_most(Slow(content), most, expected_bytes=expected) == read
    assert read_at_most(io.BytesIO(content), most, expected_bytes=expected) == read


def test_no_read_asks_for_more_than_a_piece_or_what_was_expected():
    source = Slow(b"x" * 100)
    assert read_at_most(source, 1 << 40) == b"x" * 100
    assert source.largest == PIECE_BYTES


def test_a_small_file_is_read_where_memory_is_far_smaller_than_the_bound(tmp_path):
    path = tmp_path / "findings.json"
    path.write_bytes(b"{}")
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILE_IN_LITTLE_MEMORY, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("b'{}' b'{}'\n", "")
