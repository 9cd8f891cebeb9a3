"""`unhang signature check`: the catalogue's own have no fault, and a row that names an unknown
cause, or stands twice, is refused with its file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from unhang.core.catalogue.kept_yaml import PACKAGE

HOME = PACKAGE.parents[1]
FILE = "tools/unhang/jobs/catalogue/signatures/nccl/own.yml"
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


def checked(top):
    """(exit code, lines) of the command in a checkout of one's own."""
    folders = [str(top / name) for name in ("tools", "module_utils")]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "unhang", "signature", "check", str((top / FILE).parent)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders),
        "XDG_CACHE_HOME": str(top / "cache")},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "shm_too_small",
            "shm_to_small",
            "signature own-row: for: there is no cause shm_to_small (did you mean shm_too_small?)",
        ),
        ('near_miss: ["a segment 7"]', 'near_miss: ["no such segment 8"]', "matches its near miss"),
        ("", "", ""),
    ],
)
def test_a_row_with_a_fault_is_named_with_its_file(tmp_path, old, new, fault):
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("tools/unhang", "module_utils"):
        shutil.copytree(HOME / name, tmp_path / name, ignore=ignored)
    (tmp_path / FILE).write_text(ROW.replace(old, new, 1) if old else ROW)
    code, lines = checked(tmp_path)
    assert code == int(bool(fault))
    assert (fault in lines[0] and FILE in lines[0]) if fault else "no fault" in lines[0]
