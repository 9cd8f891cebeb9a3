"""The anchors of signatures: a longer one is looked for only where a shorter one that it contains is there."""

from __future__ import annotations

from unhang.diagnose.scanning import longer_anchors


def test_longer_anchors_stand_behind_one_that_they_contain_and_none_is_lost():
    families = longer_anchors([b"NCCL", b"NCCL WARN", b"WARN", b"Xid"])
    assert families == {b"NCCL": [], b"WARN": [b"NCCL WARN"], b"Xid": []} or families == {b"NCCL": [b"NCCL WARN"], b"WARN": [], b"Xid": []}
