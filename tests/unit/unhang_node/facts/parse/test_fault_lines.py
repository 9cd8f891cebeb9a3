"""Faults in messages of the kernel: each kind is recognised in its line, and messages of a healthy
machine are no fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from unhang_node.facts.parse.fault_lines import (
    MESSAGES,
    PATTERNS,
    Fault,
    normal_address,
    parse_fault,
)

ROWS = yaml.safe_load(Path(__file__).with_name("fault_lines.yml").read_text(encoding="utf-8"))
FIELDS = ("kind", "code", "pci_address", "subject", "severity")
FAULTS = [(row["line"], Fault(*map(row.get, FIELDS))) for row in ROWS["faults"]]
HEALTHY = ROWS["healthy"]


@pytest.mark.parametrize(
    ("line", "fault"),
    FAULTS,
    ids=lambda value: (
        None if isinstance(value, str) else f"{value.kind}-{value.code or value.subject}"
    ),
)
def test_a_fault_is_told_from_its_line(line, fault):
    assert parse_fault(line) == fault


@pytest.mark.parametrize("line", HEALTHY)
def test_what_a_healthy_machine_or_another_program_prints_is_no_fault(line):
    assert parse_fault(line) is None


def test_every_kind_of_the_schema_has_a_row_and_every_row_a_proof():
    assert {kind for kind, _needles, _pattern in PATTERNS} == {
        fault.kind for _line, fault in FAULTS
    }
    for kind, needles, pattern in PATTERNS:
        assert any(
            fault.kind == kind
            and re.match(pattern, line)
            and any(needle in line for needle in needles)
            for line, fault in FAULTS
        ), pattern
    for subject, needles, _pattern in MESSAGES:
        for needle in needles:
            assert any(fault.subject == subject and needle in line for line, fault in FAULTS), (
                subject,
                needle,
            )


def test_patterns_have_no_repeat_without_a_bound():
    for _kind, _needles, pattern in PATTERNS + MESSAGES:
        assert not re.search(
            r"[+*](?![^\[]*\])", pattern.replace("\\+", "").replace("[\\w ()-]", "")
        ), pattern


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b", "0000:3b:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        (None, None),
    ],
)
def test_addresses_are_written_as_sysfs_writes_them(text, wanted):
    assert normal_address(text) == wanted
