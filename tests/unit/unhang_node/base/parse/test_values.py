"""JSON of a node's files: whatever it is, a parser gives a value or a ValueError."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from unhang_node.base.parse.slurm import parse_nodes_json
from unhang_node.base.parse.values import JSON_DIGITS, parse_json
from unhang_node.base.root import parse_space
from unhang_node.change.atomic_files import LOCK, read_own_json, state_path
from unhang_node.change.drain.hook import parse_answer
from unhang_node.change.journal.node_lock import read_lock
from unhang_node.facts.parse.admission import parse_admission
from unhang_node.facts.parse.container_config import parse_docker
from unhang_node.facts.parse.cuda import parse_version_json
from unhang_node.facts.parse.env_files import parse_docker_container
from unhang_node.facts.parse.kubelet_state import parse_state_policy

COLLECTOR = Path(__file__).resolve().parents[5] / "module_utils" / "unhang_node"
HOSTILE = {
    "deep lists": "[" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "half an object": '{"a": ',
}
PARSERS = {
    "admission": parse_admission,
    "docker": parse_docker,
    "cuda": parse_version_json,
    "container": parse_docker_container,
    "kubelet": parse_state_policy,
    "slurm": parse_nodes_json,
    "drain hook": parse_answer,
    "space": lambda text: parse_space(text, "/dev/shm"),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_hostile_json_is_a_value_error_and_nothing_else(parse, text):
    with pytest.raises(ValueError, match=r"\S"):
        parse(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_files_of_unhang_that_somebody_replaced_are_named(tmp_path, text):
    for path in (LOCK, state_path("host_tuning")):
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    with pytest.raises(ValueError, match="does not hold a lock of unhang"):
        read_lock(str(tmp_path))
    with pytest.raises(ValueError, match="does not hold what unhang saved there"):
        read_own_json(str(tmp_path), state_path("host_tuning"), "unhang/state/1")


def test_numbers_are_read_and_longer_ones_are_read_past():
    assert parse_json("[1, -2, 1.5e3]") == [1, -2, 1500.0]
    assert parse_json("9" * JSON_DIGITS) == int("9" * JSON_DIGITS)
    assert parse_json('{"a": -' + "9" * 400_000 + ', "b": 1}') == {"a": -math.inf, "b": 1}


def test_only_parse_json_reads_json_of_a_node():
    found = {
        str(path.relative_to(COLLECTOR))
        for path in COLLECTOR.rglob("*.py")
        if re.search(r"\bjson\.loads?\(", path.read_text(encoding="utf-8"))
    }
    # probe.py reads lines that its own child has written
    assert found == {"base/parse/values.py", "base/probe.py"}
