"""Expressions whose work or memory grows with the facts."""

from __future__ import annotations

import contextlib
import gc

import pytest
from judge_cases import OK, sections

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.expression import compile_expression
from unhang.judge.rules.node_rules import node_world
from unhang.judge.rules.rules import node_names
from unhang.judge.rules.values import RuleStopped, Undecided, World, plain

TABLES = load_catalogue().tables


def evaluated(source, facts=None, **more):
    world = node_world(
        example_node({**(sections() if facts is None else facts), **more}), catalogue_view(TABLES)
    )
    return plain(compile_expression(source, node_names(TABLES)).evaluate(world))


UNREAD = {
    "driver": {"probe": {"status": "timeout", "error": "modinfo did not answer"}},
    "gpus": {"probe": OK, "devices": [{"index": 0}], "count": None},
}


def test_work_that_grows_with_the_facts_is_counted_and_stopped():
    pairs = [{"a": number, "b": number + 1, "read": "ok"} for number in range(8128)]
    many = " + ".join(
        ["(interconnect.pairs | selectattr('read', '!=', 'ok') | list | length)"] * 50
    )
    with pytest.raises(RuleStopped):
        evaluated(many + " > 0", {"interconnect": {"probe": OK, "pairs": pairs}})


@pytest.mark.parametrize("word", ["or", "and"])
def test_nothing_of_a_node_is_held_by_what_it_did_not_know(word):
    """The judge reads ten thousand nodes without the garbage collector for cycles: a stored
    exception holds every frame, and so the node's facts."""
    gc.collect()
    gc.disable()
    try:
        before = worlds()
        with contextlib.suppress(Undecided):
            evaluated(f"gpus.count > 1 {word} kernel.release == 'x'", UNREAD)
        assert worlds() == before
    finally:
        gc.enable()


def worlds():
    """How many nodes are held in memory."""
    return sum(type(one) is World for one in gc.get_objects())
