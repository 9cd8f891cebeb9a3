"""Flight recordings are pickles from nodes: plain data is read, everything else is refused before
any code runs."""

from __future__ import annotations

import base64
import collections
import os
import pathlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.core.limits import Limits
from unhang.smoke import flight_recorder
from unhang.smoke.flight_recorder import summarise
from unhang_node.base.parse.plain_pickle import NotPlain, unpickle_plain

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=8), inner, max_size=5)
        | st.tuples(inner, inner)
    ),
    max_leaves=30,
)


def refusal(dump):
    """Why a dump is not read, "" if it is."""
    return summarise(base64.b64encode(dump).decode()).get("refused", "")


@given(PLAIN, st.integers(0, 5))
def test_containers_numbers_and_strings_come_back_as_they_were(value, protocol):
    assert unpickle_plain(pickle.dumps(value, protocol=protocol)) == value


class Planted:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_a_planted_pickle_runs_nothing_and_is_refused(tmp_path):
    proof = tmp_path / "ran"
    dump = pickle.dumps({"entries": [Planted(os.system, f"touch {proof}")]})
    with pytest.raises(NotPlain, match="system"):
        unpickle_plain(dump)
    assert "not read" in refusal(dump)
    assert not proof.exists()
    pickle.loads(dump)  # without the check the same bytes do run
    assert proof.exists()


@pytest.mark.parametrize(
    "value",
    [
        pathlib.PurePosixPath("/x"),
        collections.OrderedDict(a=1),
        os.getcwd,
        Exception("x"),
        complex(1, 2),
    ],
)
@pytest.mark.parametrize("protocol", range(6))
def test_what_needs_a_class_or_function_is_refused(value, protocol):
    with pytest.raises(NotPlain):
        unpickle_plain(pickle.dumps([value], protocol=protocol))


@pytest.mark.parametrize(
    "dump",
    [
        b"",
        b"\x80",
        b"junk",
        b"\x80\x04",
        pickle.dumps([1])[:-1],
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02\x82\x01.",
        b"Pnobody\n.",
        b"(i__main__\nX\n.",
    ],
    ids=[
        "empty",
        "cut",
        "junk",
        "only a head",
        "no stop",
        "global",
        "extension",
        "persistent",
        "instance",
    ],
)
def test_what_is_no_pickle_of_plain_data_is_refused_with_a_reason(dump):
    assert "not read" in refusal(dump)


@pytest.mark.parametrize(
    "memo",
    [b"r" + (1_500_000_000).to_bytes(4, "little"), b"p1500000000\n"],
    ids=["LONG_BINPUT", "PUT"],
)
def test_a_few_bytes_that_ask_for_a_memo_of_gigabytes_are_refused(memo):
    assert "took more than it may of: memory" in refusal(b"\x80\x02]" + memo + b".")


@pytest.mark.slow
@settings(max_examples=30, deadline=None)  # each in a child process
@given(st.binary(max_size=200))
def test_any_bytes_at_all_give_a_summary_or_a_refusal(dump):
    assert summarise(base64.b64encode(dump).decode()).keys() <= {
        "refused", "last", "last_enqueued", "last_completed"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state", "profiling_name", "frames"])
def test_a_dump_that_is_endless_to_walk_is_refused_or_cut(name, monkeypatch):
    monkeypatch.setattr(flight_recorder, "LIMITS", Limits(cpu_s=1, memory_bytes=1 << 26, wall_s=20))
    value = []
    for _ in range(40):
        value = [value, value]
    dump = pickle.dumps({"entries": [{name: value}]})
    assert ("took more than it may of" in refusal(dump)) is (name != "frames")


def test_a_number_without_measure_is_refused():
    dump = pickle.dumps({"pg_status": {"0": {"last_enqueued_collective": 10**5000}}})
    assert "ValueError" in refusal(dump)


def test_a_real_dumps_shape_is_summarised():
    frames = [
        {"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 1},
        {"name": "train", "filename": "/home/u/train.py", "line": 7},
    ]
    dump = {
        "pg_status": {"0": {"last_enqueued_collective": 10, "last_completed_collective": 9}},
        "entries": [{"profiling_name": "nccl:all_reduce", "state": "started", "frames": frames}],
    }
    found = summarise(base64.b64encode(pickle.dumps(dump, protocol=2)).decode())
    assert found == {
        "last_enqueued": 10,
        "last_completed": 9,
        "last": {
            "operation": "nccl:all_reduce",
            "state": "started",
            "where": "train at /home/u/train.py:7",
        },
    }


@pytest.mark.parametrize(
    "encoded",
    [
        "no base64!",
        "käse",
        base64.b64encode(b"junk").decode(),
        base64.b64encode(pickle.dumps([1])).decode(),
    ],
)
def test_what_cannot_be_summarised_says_so(encoded):
    assert "refused" in summarise(encoded)
