"""Every module of the project has complete documentation: options, return values, examples, and its behaviour in check mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (PROJECT / "library").glob("*.py"))
DEADLINE_S = 240


@pytest.fixture(scope="module")
def documented():
    """{module: its documentation by ansible-doc}; plugins/doc_fragments has the parts that modules share."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    command = [str(Path(sys.executable).parent / "ansible-doc"), "--type", "module", "--json", *MODULES]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_tells_its_options_what_it_returns_and_what_check_mode_does(documented, name):
    found = documented[name]
    assert found["doc"]["short_description"]
    assert found["doc"]["author"]
    runs_on_a_node = "argument_spec={}" not in (PROJECT / "library" / f"{name}.py").read_text()  # otherwise the file documents an action plugin
    assert not runs_on_a_node or "check_mode" in found["doc"]["attributes"]
    assert yaml.safe_load(found["examples"]) and f"{name}:" in found["examples"]
    assert found["return"] and all(row.get("description") and row.get("type") for row in found["return"].values())


@pytest.mark.parametrize("name", MODULES)
def test_options_that_are_documented_are_those_that_a_module_takes(documented, name):
    source = (PROJECT / "library" / f"{name}.py").read_text().partition("AnsibleModule")[2]
    action = PROJECT / "plugins" / "action" / f"{name}.py"  # reads a module's options itself, where the work is done on the controller
    source += action.read_text() if action.exists() else ""
    for option in documented[name]["doc"].get("options", {}):
        assert f'"{option}"' in source or f"{option}=" in source, f"{option} is documented and not taken"
