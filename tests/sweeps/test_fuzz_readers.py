"""Each reader over its first cases of `make fuzz`, and over every input that made it fail once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fuzz.readers import ODD_VALUES, READERS, case, fault_of

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus"
SLOW = ("log", "lint", "yaml", "smoke-events")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_nothing_but_what_it_says(name):
    for number in range(100 if name in SLOW else 1000):
        problem = fault_of(name, case(name, number))
        assert problem is None, f"case {number}: {problem!r}"


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*.bin")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_what_was_once_found_is_borne(path):
    assert fault_of(path.parent.name, path.read_bytes()) is None


def test_a_case_is_the_same_each_time_and_keeps_the_structure():
    assert case("node", 7) == case("node", 7) != case("node", 8)
    whole = [data for data in (case("policy", number) for number in range(100)) if _is_json(data)]
    assert len(whole) > 50


def test_a_case_does_not_depend_on_those_before_it():
    later = case("node", 1400)
    for number in range(1400):
        case("node", number)
    assert case("node", 1400) == later and [None] in ODD_VALUES and {"": None} in ODD_VALUES


def test_an_error_that_no_reader_announces_is_seen(monkeypatch):
    monkeypatch.setitem(
        READERS, "broken", type(READERS["node"])(lambda: [b"x"], lambda data: 1 / 0, (ValueError,))
    )
    assert isinstance(fault_of("broken", b""), ZeroDivisionError)


def _is_json(data):
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
