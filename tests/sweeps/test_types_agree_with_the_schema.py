"""The types into which node files are decoded, and our own check of what is small, agree with JSON
Schema: a real document with one damaged place is refused by both or by neither."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from unhang.core.run.documents import InvalidNode, decode_node
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.reading import read_schema

TESTS = Path(__file__).parents[1]
NODE = json.loads((TESTS / "fixtures" / "h200x4" / "node.json").read_text(encoding="utf-8"))
EVIDENCE = TESTS / "fixtures" / "inspect" / "evidence" / "killed-RAS.json"
POLICY = TESTS.parent / "inventory" / "demo" / "group_vars" / "production.yml"
RULES = (
    TESTS.parent
    / "tools"
    / "unhang"
    / "judge"
    / "catalogue"
    / "rules/groups/driver_and_containers.yml"
)
OTHERS = [None, True, -1, 0, 7, 1.5, "x", "x\n", "", [], {}, ["x"], [None], {"x": 1}, "y" * 5000]
KEYS = ["not_in_the_schema", "NOT_a_name", "a"]
ROUNDS = 1000


def places(value, path=()):
    """Every path of a document, parents first."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def damaged(chance, text, places):
    """(the document with one value replaced, removed or added, what was done)."""
    altered = json.loads(text)
    path = chance.choice(places)
    parent = altered
    for key in path[:-1]:
        parent = parent[key]
    deed = chance.choice(["replace", "remove", "add"])
    if deed == "remove":
        del parent[path[-1]]
    elif deed == "add" and isinstance(parent[path[-1]], dict):
        parent[path[-1]][chance.choice(KEYS)] = chance.choice(OTHERS)
    else:
        deed = "replace"
        parent[path[-1]] = chance.choice(OTHERS)
    return altered, f"{deed} {path}"


def accepted_by_types(facts, schema):
    try:
        decode_node(json.dumps({**NODE, "facts": facts}).encode())
    except InvalidNode:
        return False
    return True


def accepted_by_check(document, schema):
    return not list(check_schema(document, schema))


DOCUMENTS = [
    ("node-facts-1", NODE["facts"], accepted_by_types),
    ("rule-1", yaml.safe_load(RULES.read_text()), accepted_by_check),
    ("policy-1", yaml.safe_load(POLICY.read_text())["unhang_policy"], accepted_by_check),
    ("evidence-1", json.loads(EVIDENCE.read_text()), accepted_by_check),
]


@pytest.mark.parametrize(("name", "document", "is_accepted"), DOCUMENTS)
def test_a_damaged_document_is_refused_by_both_or_by_neither(name, document, is_accepted):
    schema, chance = read_schema(name), random.Random(name)
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid(document) and is_accepted(document, schema)
    text, inside = json.dumps(document), [path for path in places(document) if path]
    refused, disagree = 0, []
    for _ in range(ROUNDS):
        altered, deed = damaged(chance, text, inside)
        valid = validator.is_valid(altered)
        refused += not valid
        if valid != is_accepted(altered, schema):
            disagree.append(f"schema says {valid}, types do not: {deed}")
    assert disagree == []
    assert 0 < refused < ROUNDS
