"""A replaced file keeps its mode, its access list and its user attributes."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from unhang_node.change.atomic_files import ACCESS_LIST, write_text

USER, GROUP, MASK, OTHER, NAMED, NOBODY = 1, 4, 16, 32, 2, 0xFFFFFFFF
# Version 2, then (tag, permissions, id) of each entry, as acl(5) and linux/posix_acl_xattr.h have
# it: uid 1000 may read what others may not.
ENTRIES = [
    (USER, 6, NOBODY),
    (NAMED, 4, 1000),
    (GROUP, 4, NOBODY),
    (MASK, 4, NOBODY),
    (OTHER, 0, NOBODY),
]
LIST = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in ENTRIES)


@pytest.mark.parametrize(
    ("name", "value"),
    [(ACCESS_LIST, LIST), ("user.managed_by", b"site")],
    ids=["access list", "attribute"],
)
def test_a_file_that_is_replaced_keeps_it(tmp_path, name, value):
    place = tmp_path / "environment"
    place.write_text("A=1\n")
    place.chmod(0o640)
    try:
        os.setxattr(place, name, value)
    except OSError as problem:
        if problem.errno != errno.ENOTSUP:
            raise
        pytest.skip("this file system has none")
    mode = place.stat().st_mode
    write_text(str(place), "A=2\n")
    assert place.read_text() == "A=2\n"
    assert os.getxattr(place, name) == value
    assert place.stat().st_mode == mode
