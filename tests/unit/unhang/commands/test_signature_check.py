"""`unhang signature check`: the catalogue's own have no fault, and a row that names an unknown cause, or stands twice, is refused with its file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from unhang.core.catalogue.kept_yaml import BUILT_IN

FILE = "signatures/nccl/own.yml"
ROW = """signatures:
  - id: own-row
    kind: error
    program: NCCL
    anchors: ["no such segment"]
    pattern: 'no such segment \\d{1,5}'
    says: a segment is missing
    for: {shm_too_small: strong}
    confidence: documented
    sources: [{url: "https://example.org/", says: so}]
    examples: {match: ["no such segment 7"], near_miss: ["a segment 7"]}
"""


def checked(folder):
    """(exit code, lines) of the command over a catalogue of one's own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "unhang", "signature", "check", str(folder / "signatures" / "nccl")],
        env={**os.environ, "UNHANG_CATALOGUE": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("shm_too_small", "shm_to_small", "signature own-row: for: there is no cause shm_to_small (did you mean shm_too_small?)"),
        ('near_miss: ["a segment 7"]', 'near_miss: ["no such segment 8"]', "matches its near miss"),
        ("", "", ""),
    ],
)
def test_a_row_with_a_fault_is_named_with_its_file(tmp_path, old, new, fault):
    folder = tmp_path / "catalogue"
    shutil.copytree(BUILT_IN, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / FILE).write_text(ROW.replace(old, new, 1) if old else ROW)
    code, lines = checked(folder)
    assert code == int(bool(fault))
    assert (fault in lines[0] and FILE in lines[0]) if fault else "no fault" in lines[0]
