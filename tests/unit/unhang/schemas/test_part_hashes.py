"""A node's hash does not depend on sections of other nodes that were hashed before: many that differ only in samples, or in their configuration."""

from __future__ import annotations

import copy
import random

import pytest
from damaged_nodes import recorded_nodes

from unhang.audit.judge.documents import part_names, to_fragment
from unhang.schemas import part_hashes
from unhang.schemas.configuration import hash_of_sections
from unhang.schemas.part_hashes import PartHashes

SECTIONS = recorded_nodes()[1]["sections"]


def look(number, dice):
    """The same node again: samples are new, one setting has one of three values, and one name is new on every node."""
    sections = copy.deepcopy(SECTIONS)
    sections["node"].update(uptime_s=number, hostname=f"gpu{number}")
    sections["limits"].update(swap_free_bytes=number, overcommit_memory=dice.choice((0, 1, 2)))
    sections["limits"]["scopes"] = sections["limits"]["scopes"][dice.randint(0, 1) :]
    if dice.random() < 0.1:
        sections["kernel"]["release"] = dice.choice(("6.8.0-57-generic", "", None))
    dice.shuffle(sections["gpus"]["devices"])
    return to_fragment(sections)


@pytest.mark.parametrize("seed", range(3))
def test_a_hash_does_not_depend_on_the_nodes_before(seed, monkeypatch):
    monkeypatch.setattr(part_hashes, "MOST_KNOWN", 5)
    dice, shared = random.Random(seed), PartHashes(part_names())
    met = set()
    for number in range(part_hashes.TRIED + 40):
        sections = look(number, dice)
        assert shared.hash_of(sections) == hash_of_sections(sections)
        met.add(hash_of_sections(sections))
    assert len(met) == part_hashes.TRIED + 40
    alike = {one.name: one.alike for one in shared._sections}
    assert alike["limits"].hits > alike["limits"].misses and alike["node"].hits == 0
    assert alike["node"].misses == part_hashes.TRIED
