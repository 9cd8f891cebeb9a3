"""Flight recordings are pickles from nodes: plain data is read, everything else is refused before
any code runs."""

from __future__ import annotations

import base64
import collections
import contextlib
import os
import pathlib
import pickle
import pickletools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.core.plain_pickle import NotPlain, load_plain
from unhang.smoke.flight_recorder import summarise

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


@given(PLAIN, st.integers(0, 5))
def test_containers_numbers_and_strings_come_back_as_they_were(value, protocol):
    assert load_plain(pickle.dumps(value, protocol=protocol)) == value


class Planted:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_a_planted_pickle_runs_nothing_and_is_refused(tmp_path):
    proof = tmp_path / "ran"
    dump = pickle.dumps({"entries": [Planted(os.system, f"touch {proof}")]})
    with pytest.raises(NotPlain, match=r"system|GLOBAL"):
        load_plain(dump)
    assert not proof.exists()
    assert "not read" in summarise(base64.b64encode(dump).decode())["refused"]
    pickle.loads(dump)  # without the check the same bytes do run
    assert proof.exists()


@pytest.mark.parametrize(
    "value",
    [
        pathlib.PurePosixPath("/x"),
        collections.OrderedDict(a=1),
        os.getcwd,
        Exception("x"),
        bytearray(b"x"),
        complex(1, 2),
    ],
)
@pytest.mark.parametrize("protocol", range(6))
def test_what_needs_a_class_or_function_is_refused(value, protocol):
    with pytest.raises(NotPlain):
        load_plain(pickle.dumps([value], protocol=protocol))


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
    with pytest.raises(NotPlain):
        load_plain(dump)


@pytest.mark.parametrize(
    "memo",
    [b"r" + (1_500_000_000).to_bytes(4, "little"), b"p1500000000\n"],
    ids=["LONG_BINPUT", "PUT"],
)
def test_a_few_bytes_that_ask_for_a_memo_of_gigabytes_are_refused_before_they_are_run(memo):
    with pytest.raises(NotPlain, match="remembers more than it can hold"):
        load_plain(b"\x80\x02]" + memo + b".")


@given(st.binary(max_size=200))
def test_any_bytes_at_all_give_plain_data_or_a_refusal(dump):
    with contextlib.suppress(NotPlain):
        load_plain(dump)


def test_a_dump_that_is_endless_to_walk_is_refused():
    value = []
    for _ in range(40):
        value = [value, value]
    with pytest.raises(NotPlain, match="items"):
        load_plain(pickle.dumps(value))


def test_every_opcode_that_can_name_code_is_outside_of_the_list():
    from unhang.core.plain_pickle import PLAIN as admitted

    dangerous = {
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "INST",
        "OBJ",
        "NEWOBJ",
        "NEWOBJ_EX",
        "EXT1",
        "EXT2",
        "EXT4",
        "PERSID",
        "BINPERSID",
    }
    assert not admitted & dangerous
    assert admitted <= {opcode.name for opcode in pickletools.opcodes}


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
