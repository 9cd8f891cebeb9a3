"""What is kept is taken from a private file that is whole, and from no other."""

from __future__ import annotations

import pytest

from unhang.core.kept_files import KEY_BYTES, MAGIC, keep, read_kept

KEY, OTHER = b"k" * KEY_BYTES, b"o" * KEY_BYTES


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def changed_at(place):
    def change(path):
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)

    return change


@pytest.mark.parametrize(
    "change",
    [
        linked,
        lambda path: path.chmod(0o640),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        *map(changed_at, (0, len(MAGIC), len(MAGIC) + KEY_BYTES, -1)),
    ],
)
def test_only_a_whole_private_file_is_read(tmp_path, change):
    keep("name", KEY, b"content", tmp_path)
    assert read_kept("name", KEY, tmp_path) == b"content"
    assert read_kept("name", OTHER, tmp_path) is None
    change(tmp_path / "name")
    assert read_kept("name", KEY, tmp_path) is None
