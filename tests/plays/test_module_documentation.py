"""Every module of the project has complete documentation: options, return values, examples, and its
behaviour in check mode."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fakes.ansible_module import load_module

PROJECT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (PROJECT / "library").glob("*.py"))
DEADLINE_S = 240


@pytest.fixture(scope="module")
def documented():
    """{module: its documentation by ansible-doc}; plugins/doc_fragments has the parts that modules
    share."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    command = [
        str(Path(sys.executable).parent / "ansible-doc"),
        "--type",
        "module",
        "--json",
        *MODULES,
    ]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_tells_its_options_what_it_returns_and_what_check_mode_does(documented, name):
    found = documented[name]
    assert found["doc"]["short_description"]
    assert found["doc"]["author"]
    # otherwise the file documents an action plugin
    runs_on_a_node = "argument_spec={}" not in (PROJECT / "library" / f"{name}.py").read_text()
    assert not runs_on_a_node or "check_mode" in found["doc"]["attributes"]
    assert yaml.safe_load(found["examples"]) and f"{name}:" in found["examples"]
    assert found["return"] and all(
        row.get("description") and row.get("type") for row in found["return"].values()
    )


@pytest.mark.parametrize("name", MODULES)
def test_a_module_documents_the_options_that_it_takes_and_no_others(documented, name):
    assert set(documented[name]["doc"].get("options", {})) == options_of(name)


def options_of(name):
    """The options that a module takes, or its action plugin where the work is done on the
    controller."""
    action = PROJECT / "plugins" / "action" / f"{name}.py"
    own = getattr(load_module(name), "OPTIONS", None)
    if own is not None:
        return set(own)
    tree = ast.parse(action.read_text())
    values = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, (ast.Assign, ast.AugAssign))
        and "options" in ast.unparse(one).split()[:1]
    ]
    return {key.value for value in values if isinstance(value, ast.Dict) for key in value.keys}
