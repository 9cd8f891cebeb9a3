"""The types into which node files are decoded agree with the schema: a real document with one
damaged place is refused by both or by neither."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jsonschema_rs
import pytest

from unhang.core.run.documents import InvalidNode, decode_node
from unhang.core.schemas.shapes import read_schema

TESTS = Path(__file__).parents[1]
NODE = json.loads((TESTS / "fixtures" / "h200x4" / "node.json").read_text(encoding="utf-8"))
OTHERS = [None, True, 0, 7, 1.5, "x", "", [], {}, ["x"], [None], {"x": 1}, "y" * 5000]
ROUNDS = 400


def places(value, path=()):
    """Every path of a document, parents first."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


TEXT = json.dumps(NODE["facts"])
PLACES = [path for path in places(NODE["facts"]) if path]


def damaged(chance):
    """(the document with one value replaced, removed or added, what was done)."""
    altered = json.loads(TEXT)
    path = chance.choice(PLACES)
    parent = altered
    for key in path[:-1]:
        parent = parent[key]
    deed = chance.choice(["replace", "remove", "add"])
    if deed == "remove":
        del parent[path[-1]]
    elif deed == "add" and isinstance(parent[path[-1]], dict):
        parent[path[-1]]["not_in_the_schema"] = chance.choice(OTHERS)
    else:
        deed = "replace"
        parent[path[-1]] = chance.choice(OTHERS)
    return altered, f"{deed} {path}"


def accepted_by_types(facts):
    try:
        decode_node(json.dumps({**NODE, "facts": facts}).encode())
    except InvalidNode:
        return False
    return True


@pytest.fixture(scope="module")
def validator():
    return jsonschema_rs.validator_for(read_schema("node-facts-1"))


def test_the_real_document_is_accepted_by_both(validator):
    assert validator.is_valid(NODE["facts"])
    assert accepted_by_types(NODE["facts"])


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_document_is_refused_by_both_or_by_neither(validator, seed):
    chance = random.Random(seed)
    refused, disagree = 0, []
    for _ in range(ROUNDS):
        facts, deed = damaged(chance)
        valid = validator.is_valid(facts)
        refused += not valid
        if valid != accepted_by_types(facts):
            disagree.append(f"schema says {valid}, types do not: {deed}")
    assert disagree == []
    assert 0 < refused < ROUNDS
