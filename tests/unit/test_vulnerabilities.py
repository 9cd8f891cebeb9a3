""".ci/vulnerabilities.py with the answers of pip-audit: what is known fails, and what could not be
looked up is said and is no silent pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
KNOWN = {
    "name": "jinja2",
    "version": "3.1.4",
    "vulns": [
        {"id": "PYSEC-2024-1", "fix_versions": ["3.1.5"], "aliases": [], "description": "a hole"}
    ],
}
SKIPPED = {
    "name": "wrapt",
    "skip_reason": "Dependency not found on PyPI and could not be audited: wrapt (2.5.2)",
}
NOT_LOOKED_UP = "== WARNING: known vulnerabilities were NOT looked up: "


def asked(tmp_path, answer, code=0, errors=""):
    """(exit code, output) with a stand-in for pip-audit that prints this."""
    (tmp_path / "answer").write_text(answer)
    program = tmp_path / "pip-audit"
    program.write_text(f'#!/bin/sh\ncat "{tmp_path}/answer"\necho "{errors}" >&2\nexit {code}\n')
    program.chmod(0o755)
    command = [sys.executable, PROJECT / ".ci" / "vulnerabilities.py", program, "requirements.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def rows(*given):
    return json.dumps({"dependencies": given, "fixes": []})


def test_what_is_known_fails_with_the_version_that_repairs_it(tmp_path):
    code, output = asked(tmp_path, rows(CLEAN, KNOWN), code=1)
    assert (code, output) == (
        1,
        (
            "jinja2 3.1.4: PYSEC-2024-1, fixed in 3.1.5\n2 packages looked up, 1 known"
            " vulnerabilities\n"
        ),
    )


def test_nothing_known_passes_and_each_package_that_was_not_looked_up_is_named(tmp_path):
    code, output = asked(tmp_path, rows(CLEAN, SKIPPED))
    assert code == 0
    assert output.splitlines() == [
        f"== WARNING: wrapt was not looked up: {SKIPPED['skip_reason']}",
        "1 packages looked up, 0 known vulnerabilities",
    ]


@pytest.mark.parametrize(
    ("answer", "code", "errors", "reason"),
    [
        (rows(SKIPPED), 0, "", SKIPPED["skip_reason"]),
        (rows(), 0, "", "pip-audit read no package"),
        (
            "",
            1,
            "ConnectionError: Name or service not known",
            "ConnectionError: Name or service not known",
        ),
        ("", 127, "", "code 127"),
        ("{", 0, "", "Expecting property name"),
    ],
)
def test_a_database_that_does_not_answer_is_a_warning(tmp_path, answer, code, errors, reason):
    found, output = asked(tmp_path, answer, code, errors)
    assert (found, output.startswith(NOT_LOOKED_UP + reason)) == (0, True), output


def test_ci_asks_for_the_pinned_versions():
    made = (PROJECT / "Makefile").read_text()
    files = " ".join(f"requirements{name}.txt" for name in ("", "-test", "-dev"))
    assert f".ci/vulnerabilities.py build/pip-audit/bin/pip-audit {files}\n" in made
