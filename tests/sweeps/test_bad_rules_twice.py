"""What the tests of the catalogue refuse: a list of bad rules goes through them, in a copy of the
project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from case_rows import case_rows

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("tools", "module_utils", "roles", "tests", "docs", "playbooks")
TESTS = ("tests/rows/test_rules_prove_themselves.py", "tests/rows/test_healthy_nodes.py",
    "tests/sweeps/test_rules_keep_apart.py")  # fmt: skip
ROWS = case_rows(__file__)
GOOD, BAD = ROWS["GOOD"], ROWS["BAD"]


def told_apart(row, number):
    """The row about another value, so that no other one fires on its examples."""
    return json.loads(
        json.dumps(row)
        .replace("'99'", f"'{number}'")
        .replace('"99"', f'"{number}"')
        .replace("'98'", "'198'")
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the bad rules and a good one in its catalogue."""
    copy = tmp_path_factory.mktemp("project")
    for name in COPIED:
        shutil.copytree(
            PROJECT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "ansible.cfg"):
        shutil.copy(PROJECT / name, copy)
    rows = [
        told_apart({"id": f"bad-{name}", **GOOD, **change}, number)
        for number, (name, (change, _)) in enumerate(BAD.items(), 200)
    ]
    folder = copy / "tools/unhang/judge/catalogue/rules/limits/twice"
    folder.mkdir()
    (folder / "bad.yml").write_text(
        json.dumps({"rules": [*rows, told_apart({"id": "good-one", **GOOD}, 100)]})
    )
    return copy


def output_of(project, *argv):
    """(exit code, output) of a Python module in the copy."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{project}/tools:{project}/module_utils",
        "UNHANG_RUNS": str(project / "runs"),
    }
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_tests_of_the_catalogue_refuse_each_bad_rule(project):
    code, lines = output_of(
        project,
        "pytest",
        "-vv",
        "-p",
        "no:cacheprovider",
        "-k",
        "bad or good or fault or lie or healthy_node",
        *TESTS,
    )
    failed = [line for line in lines.splitlines() if line.startswith(("FAILED", "E  "))]
    assert code == 1 and not any("good-one" in line for line in failed)
    assert {name for name in BAD if not any(f"bad-{name}" in line for line in failed)} == set(), (
        lines
    )
