"""Yes or no of operators: the text `false` of the command line means no wherever a role computes
with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_list_variables import all_expressions, read

PROJECT = Path(__file__).resolve().parents[3]
ROLES = (
    "build_toolchain",
    "drain",
    "fabric_manager",
    "gpu_binding",
    "gpu_driver",
    "host_tuning",
    "kernel",
    "nccl_profile",
    "node_change",
    "node_gate",
    "package_hold",
    "smoke_test",
    "undo",
)


def yes_or_no_variables():
    """(role, variable) of every variable of type bool."""
    for role in ROLES:
        for entry in (
            read(PROJECT / "roles" / role / "meta/argument_specs.yml")
            .get("argument_specs", {})
            .values()
        ):
            yield from (
                (role, name)
                for name, option in (entry.get("options") or {}).items()
                if option.get("type") == "bool"
            )


def in_templates(role):
    """(place, expression) of the role's templates."""
    paths = sorted((PROJECT / "roles" / role).glob("templates/*"))
    return [
        (str(path.relative_to(PROJECT)), one)
        for path in paths
        for one in re.findall(r"{[{%].*?[%}]}", path.read_text(), re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("role", "name"), [pytest.param(*row, id=row[1]) for row in sorted(set(yes_or_no_variables()))]
)
def test_no_expression_computes_with_it_as_it_was_typed(role, name):
    """Alone it is an argument, which its module reads, or a condition, for which Ansible refuses a
    text. The role's own variables go to filters."""
    uses = [
        (place, one)
        for place, one in (*all_expressions(), *in_templates(role))
        if re.search(rf"(?<![\w'\"]){name}(?![\w'\"])", one)
    ]
    computed = [
        (place, one) for place, one in uses if one.strip("{} ") != name or "/vars/" in place
    ]
    assert [
        row
        for row in computed
        if not re.search(rf"\b{name}( \| default\([^)]*\))? \| bool\b", row[1])
    ] == []
