"""Events as bursts, and keys as the rows of a table."""

from __future__ import annotations

import pytest

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.expression import ExpressionError, compile_expression
from unhang.judge.rules.node_rules import node_world
from unhang.judge.rules.rules import node_names
from unhang.judge.rules.values import Undecided, plain

TABLES = load_catalogue().tables


def evaluated(source, *events):
    world = node_world(example_node({"faults": {"events": list(events)}}), catalogue_view(TABLES))
    return plain(compile_expression(source, node_names(TABLES)).evaluate(world))


def event(code, first=None, last=None, **more):
    return {
        "kind": "xid",
        "code": code,
        "count": 1,
        "first_s": first,
        "last_s": first if last is None else last,
        "line": f"line {code}",
        **more,
    }


BURSTS = "faults.events | bursts(180) | map(attribute='codes')"


@pytest.mark.parametrize(
    ("events", "codes"),
    [
        ([], []),
        ([event(79, 10.0)], [[79]]),
        ([event(45, 12.0), event(79, 10.0)], [[79, 45]]),  # in the order of time, not of the list
        ([event(79, 10.0), event(45, 190.0)], [[79, 45]]),  # 180 s of silence still belong together
        ([event(79, 10.0), event(45, 190.1)], [[79], [45]]),
        # silence counts from the last time, not from the first
        ([event(79, 10.0, 150.0), event(45, 320.0)], [[79, 45]]),
        ([event(13, 10.0), event(31, 100.0), event(43, 270.0)], [[13, 31, 43]]),
        # without a time each is listed alone
        ([event(79), event(45), event(31, 5.0)], [[31], [79], [45]]),
        ([event(79, 1.0), event(79, 2.0)], [[79]]),
    ],
)
def test_events_belong_together_until_three_minutes_pass_without_one(events, codes):
    assert evaluated(BURSTS, *events) == codes


def test_a_burst_tells_what_came_first_and_where_all_of_it_was():
    events = [
        event(45, 12.0, 20.0, pci_address="0000:0b:00.0", count=3),
        event(79, 10.0, pci_address="0000:0a:00.0"),
    ]
    found = {
        name: evaluated(f"(faults.events | bursts(180) | first).{name}", *events)
        for name in ("code", "count", "line", "pci_address", "duration_s")
    }
    assert found == {
        "code": 79,
        "count": 4,
        "line": "line 79",
        "pci_address": "0000:0a:00.0",
        "duration_s": 10.0,
    }
    assert evaluated("(faults.events | bursts(180) | first).pci_addresses", *events) == [
        "0000:0a:00.0",
        "0000:0b:00.0",
    ]


def test_a_burst_counts_each_code_by_itself():
    events = [
        event(48, 10.0, count=1),
        event(63, 11.0, count=1),
        event(45, 12.0, count=3),
        event(45, 13.0, count=2),
    ]
    assert evaluated("(faults.events | bursts(180) | first).counts", *events) == [
        "48 x 1",
        "63 x 1",
        "45 x 5",
    ]


def test_an_event_without_a_code_leaves_its_bursts_undecided():
    with pytest.raises(Undecided):
        evaluated(BURSTS, event(79, 1.0), event(None, 2.0))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gpus.devices | bursts(180) | length", "needs a list of events of the kernel log"),
        ("gpus.count | bursts(180) | length", "needs a list of events"),
        ("faults.events | bursts | length", "is written bursts(180)"),
        ("faults.events | bursts('x') | length", "is written bursts(180)"),
        ("[79] | rows_of(gpus.devices) | length", "is written rows_of(tables.NAME)"),
        ("[79] | rows_of | length", "is written rows_of(tables.NAME)"),
        ("gpus.devices | rows_of(tables.xids) | length", "needs a list of keys"),
        ("([79] | rows_of(tables.xids) | first).meanign", "did you mean meaning?"),
    ],
)
def test_what_the_filters_cannot_take_is_refused(source, message):
    with pytest.raises(
        ExpressionError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
    ):
        compile_expression(source, node_names(TABLES))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[45, 79, 999] | rows_of(tables.xids) | map(attribute='xid') | list", [45, 79]),
        ("[999] | rows_of(tables.xids) | length", 0),
        ("(['79'] | rows_of(tables.xids) | first).xid", 79),
    ],
)
def test_keys_become_the_rows_that_they_name(source, value):
    assert evaluated(source) == value


def test_the_facts_that_a_burst_reads_are_known_before_it_is_judged():
    """They are what a verdict is remembered by."""
    reads = compile_expression("faults.events | bursts(180) | length", node_names(TABLES)).reads
    assert {path[-1] for path in reads if path[:2] == ("faults", "events")} >= {
        "code",
        "first_s",
        "last_s",
    }


def wheels(*environments):
    world = node_world(
        example_node(
            {
                "torch": {
                    "environments": [
                        {"path": "/opt/train", "packages": one} for one in environments
                    ]
                }
            }
        ),
        catalogue_view(TABLES),
    )
    source = (
        "torch.environments | map(attribute='packages') | map('items') | flatten |"
        " selectattr('key', 'in', ['torch', 'vllm']) | map(attribute='value')"
    )
    return plain(compile_expression(source, node_names(TABLES)).evaluate(world))


def test_entries_of_each_map_of_a_list_are_taken():
    assert wheels({"torch": "2.9.1", "numpy": "2.0"}, {}, {"vllm": "0.18.0"}) == ["2.9.1", "0.18.0"]


def test_entries_of_a_map_that_was_not_read_decide_nothing():
    with pytest.raises(Undecided):
        wheels({"torch": "2.9.1"}, None)


def test_entries_of_what_is_no_map_are_refused():
    with pytest.raises(ExpressionError, match="needs a map"):
        compile_expression(
            "torch.environments | map(attribute='path') | map('items')", node_names(TABLES)
        )
