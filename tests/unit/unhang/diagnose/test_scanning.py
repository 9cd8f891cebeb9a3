"""The anchors of signatures: a longer one is looked for only where a shorter one that it contains is there."""

from __future__ import annotations

from unhang.diagnose.scanning import Sieve, longer_anchors
from unhang.diagnose.signatures import load_signatures


def test_longer_anchors_stand_behind_one_that_they_contain_and_none_is_lost():
    families = longer_anchors([b"NCCL", b"NCCL WARN", b"WARN", b"Xid"])
    assert families == {b"NCCL": [], b"WARN": [b"NCCL WARN"], b"Xid": []} or families == {b"NCCL": [b"NCCL WARN"], b"WARN": [], b"Xid": []}


def test_sieve_finds_the_same_signatures_as_a_look_for_every_anchor():
    sieve = Sieve(load_signatures())
    lines = [example.encode().translate(None, b"0123456789") for row in load_signatures() for example in row.examples["match"] if "\n" not in example]
    plain = {line: {one.id for anchor in sieve.by_anchor if anchor in line for one in sieve.by_anchor[anchor]} for line in lines}
    found = {line: {one.id for one in signatures} for line, signatures in sieve.likely(lines)}
    assert {line: ids for line, ids in plain.items() if ids and b" NCCL INFO " not in line} == {
        line: ids for line, ids in found.items() if b" NCCL INFO " not in line
    }
