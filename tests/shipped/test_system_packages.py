"""tests/install-system-packages where two tiers start at once on a machine that lacks the packages
of both, as .ci/run starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "install-system-packages"
APT_GET = """#!/bin/sh
# As apt: it ends at once where another one runs.
mkdir "$STAND_INS/apt-runs" || exit 100
sleep 0.3
echo "$@" >>"$STAND_INS/apt-ran"
rmdir "$STAND_INS/apt-runs"
"""
STAND_INS = {
    "apt-get": APT_GET,
    "dpkg-query": "#!/bin/sh\nexit 1\n",
    "id": "#!/bin/sh\necho 0\n",
    "uname": "#!/bin/sh\necho Linux\n",
}


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not on this machine")
def test_two_installations_at_once_wait_for_each_other(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "STAND_INS": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    lists = []
    for package in ("one", "two", "three"):
        lists.append(tmp_path / f"{package}.txt")
        lists[-1].write_text(f"{package}  # a comment\n")
    running = [
        subprocess.Popen(["sh", SCRIPT, path], env=environment, stderr=subprocess.PIPE, text=True)
        for path in lists
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    assert [code for _, code in ended] == [0, 0, 0], ended
    ran = (tmp_path / "apt-ran").read_text().splitlines()
    assert sorted(line.split()[-1] for line in ran if " install " in line) == [
        "one",
        "three",
        "two",
    ]
    assert sum(line == "-q update" for line in ran) == 3
