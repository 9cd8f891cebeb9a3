"""Lists of operators: a text with commas on the command line is read as a list of its parts, never
as a list of its letters."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
# Lists of commands or mappings cannot stand in a text with commas; they are checked for being
# lists.
FILTERS = {"list": "unhang_commands", "dict": "unhang_rows"}
CONDITIONS = ("when", "that", "until", "failed_when", "changed_when")


def list_variables():
    """(role, variable, kind of its members) of every list in the roles' argument specifications and
    defaults."""
    for role in sorted(path for path in (PROJECT / "roles").iterdir() if path.is_dir()):
        found = dict.fromkeys(
            (
                name
                for name, value in read(role / "defaults/main.yml").items()
                if isinstance(value, list)
            ),
            "str",
        )
        for entry in read(role / "meta/argument_specs.yml").get("argument_specs", {}).values():
            options = entry.get("options") or {}
            found.update(
                (name, option.get("elements", "str"))
                for name, option in options.items()
                if option.get("type") == "list"
            )
        yield from ((role.name, name, kind) for name, kind in sorted(found.items()))


def read(path):
    """A mapping of a YAML file, {} where there is none."""
    return yaml.safe_load(path.read_text()) or {} if path.exists() else {}


def uses_of(name):
    """(place, expression) of every template and condition that reads a variable, in roles and
    playbooks."""
    yield from (
        (place, expression)
        for place, expression in all_expressions()
        if re.search(rf"(?<![\w'\"]){name}(?![\w'\"])", expression)
    )


@functools.cache
def all_expressions():
    """(place, expression) of every template and condition of roles and playbooks."""
    paths = sorted(
        [*(PROJECT / "roles").glob("*/*/*.yml"), *(PROJECT / "playbooks").rglob("*.yml")]
    )
    return [
        (str(path.relative_to(PROJECT)), one)
        for path in paths
        if path.parent.name != "meta"
        for one in expressions(yaml.safe_load(path.read_text()))
    ]


def expressions(value, key=""):
    """Every expression of a YAML document."""
    if isinstance(value, dict):
        for inner, part in value.items():
            yield from expressions(part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from expressions(part, key)
    elif isinstance(value, str):
        line = " ".join(value.split())
        yield from [line] if key in CONDITIONS else re.findall(r"{{.*?}}", line)


@pytest.mark.parametrize(
    ("role", "name", "kind"), [pytest.param(*row, id=row[1]) for row in list_variables()]
)
def test_no_list_variable_is_used_as_it_was_given(role, name, kind):
    checked = re.compile(rf"\b{name} \| {FILTERS.get(kind, 'unhang_list')}\('{name}'")
    used = list(uses_of(name))
    assert used, f"{name} is used nowhere"
    assert [place for place, text in used if not checked.search(text)] == []


def test_the_playbooks_lists_are_read_through_the_filter():
    names = ("unhang_roles", "unhang_severities", "unhang_packages", "preprovision_severities")
    used = {name: list(uses_of(name)) for name in names}
    assert all(used.values())
    raw = [
        place
        for name, rows in used.items()
        for place, text in rows
        if not re.search(
            rf"{name} \| (default\(.*\) \| )?unhang_list|unhang_gate_\w+\([^)]*\b{name}\b", text
        )
    ]
    assert raw == []
