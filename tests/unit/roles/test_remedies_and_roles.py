"""The targets of findings exist: each role that a remedy names, and in the role each key of the
policy that the remedy proposes."""

from __future__ import annotations

from functools import cache

import pytest
from fakes.role_play import PROJECT

from unhang.core.strict_yaml import load_yaml
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.role_faults import role_faults


@cache
def remedies():
    """{(role, "section.key" of the policy or None)} of the whole catalogue: rules, signatures of
    logs, entries."""
    rows = [rule.row for rule in load_catalogue().rules]
    for path in sorted(
        path
        for path in (PROJECT / "tools/unhang").glob("*/catalogue/*/**/*.yml")
        if path.parent.name != "rules"
    ):
        for part in (load_yaml(path)[0] or {}).values():
            rows += [row for row in part if isinstance(row, dict)] if isinstance(part, list) else []
    found = set()
    for row in rows:
        remedy = row.get("remedy")
        if isinstance(remedy, dict) and remedy.get("role"):
            keys = [
                f"{section}.{key}"
                for section, fields in (remedy.get("policy") or {}).items()
                for key in fields
            ]
            found |= {(remedy["role"], key) for key in keys or [None]}
    return sorted(found, key=str)


@pytest.mark.parametrize(("role", "key"), remedies())
def test_a_remedys_role_exists_and_reads_what_the_remedy_proposes(role, key):
    section, _, field = (key or "").partition(".")
    assert (
        list(role_faults({"role": role, "policy": {section: {field: None}} if key else {}})) == []
    )


@pytest.mark.parametrize("role", sorted({role for role, _key in remedies()}))
def test_a_role_that_findings_name_is_in_the_table_of_roles(role):
    assert f"[`{role}`](../roles/{role}/README.md)" in (PROJECT / "docs" / "roles.md").read_text()
    assert (PROJECT / "roles" / role / "README.md").is_file()
