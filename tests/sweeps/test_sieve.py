"""The fast search for signatures against a search for each anchor."""

from __future__ import annotations

from unhang.diagnose.scanning import Sieve
from unhang.diagnose.signatures import load_signatures


def test_sieve_finds_the_same_signatures_as_a_look_for_every_anchor():
    sieve = Sieve(load_signatures())
    lines = [example.encode().translate(None, b"0123456789") for row in load_signatures() for example in row.examples["match"] if "\n" not in example]
    plain = {line: {one.id for anchor in sieve.by_anchor if anchor in line for one in sieve.by_anchor[anchor]} for line in lines}
    found = {line: {one.id for one in signatures} for line, signatures in sieve.likely(lines)}
    assert {line: ids for line, ids in plain.items() if ids and b" NCCL INFO " not in line} == {
        line: ids for line, ids in found.items() if b" NCCL INFO " not in line
    }
