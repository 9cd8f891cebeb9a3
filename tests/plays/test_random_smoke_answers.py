"""Random answers of a smoke test give a result that follows its schema."""

from __future__ import annotations

import json

from foreign_schemas import junit_faults
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.secrets_in_text import masked_document
from unhang.core.verdict.smoke_result import document_of, smoke_result
from unhang.core.verdict.streams import Stream, parse_events
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import judge

KEYS = st.sampled_from(["device", "values", "binding", "differences", "missing", "wrong_from", "x"])
SWITCHES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
)
JSON = st.recursive(
    SWITCHES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    *("e", "rank", "phase", "status", "message", "result", "seq", "state", "reason", "code",
    "signal", "said", "pairs", "via", "rows", "flight_recorder"),
    *("time_us", "size_bytes", "wrong", "measures", "op", "kernel_log", "counters", "warnings",
    "nvls", "waited_s", "step"),
]  # fmt: skip
KINDS = st.sampled_from(
    [
        "phase_begin",
        "phase_end",
        "stall",
        "exit",
        "rank_end",
        "unkillable",
        "collective",
        "transports",
        "evidence",
        "nvlink",
        "node_end",
    ]
)
HOSTILE = st.fixed_dictionaries(
    {"e": KINDS | JSON, "rank": st.integers(-1, 3) | JSON}, optional=dict.fromkeys(NAMES[2:], JSON)
)


@given(st.lists(HOSTILE, max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_node_says_there_is_a_result_that_keeps_its_schema(events):
    lines = [json.dumps(event).encode() for event in events] + [
        b"{",
        b"\xff\xfe",
        b"[1]",
        b'{"e": 1}',
    ]
    streams = [
        Stream("a", (0,), tuple(parse_events(lines, (0,)))),
        Stream("b", (1,), tuple(parse_events(lines, (1,)))),
    ]
    judged = judge(streams)
    result = document_of(judged)
    assert list(check_schema(result, read_schema("smoke-1"))) == []
    render_table(smoke_result(masked_document(result)))
    assert junit_faults(render_junit(judged)) == []
