"""Random node documents, decoded in parts and as a whole."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from damaged_nodes import damaged, recorded_nodes
from judge_cases import OK, node

from unhang.audit.judge.documents import InvalidNode, Remembered, decode_node


def compact(document: Any) -> bytes:
    """As a run folder has it."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decoded(data: bytes, remembered: Remembered | None) -> Any:
    """(host, sections), or why there are none."""
    try:
        found = decode_node(data, remembered)
    except InvalidNode as problem:
        return str(problem)
    return found.host, found.sections


def broken(facts: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """One section is something that the schema does not allow."""
    name = noise.choice(list(facts["sections"]))
    facts["sections"][name] = noise.choice([5, None, {}, {"probe": OK, "no_such_field": 1}, {**facts["sections"][name], "probe": {"status": "fine"}}])
    return facts


def test_a_document_in_parts_is_the_document_that_is_read_at_once():
    remembered, compared = Remembered(), {True: 0, False: 0}
    for number in range(400):
        noise = random.Random(number)
        facts = damaged(number % 80) if number % 3 else copy.deepcopy(noise.choice(recorded_nodes()))
        if number % 5 == 0:
            facts = broken(facts, noise)
        for section in facts["sections"].values():
            if isinstance(section, dict) and "duration_ms" in section.get("probe", ()):
                section["probe"]["duration_ms"] = noise.choice([0, 0.1, 3, 12.5, 1e300, -1, 7.25, None])
        data = compact({**node(f"n{number}"), "facts": facts})
        wanted = decoded(data, None)
        assert decoded(data, remembered) == wanted, f"node {number}"
        compared[isinstance(wanted, str)] += 1
    assert min(compared.values()) > 30
