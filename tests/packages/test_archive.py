"""The tests' own repository leaves no agent of gpg behind, neither after signing nor when the run
is killed during it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from archive import Repository

SIGN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from archive import Repository
repository = Repository(Path(sys.argv[2]), [], Path(sys.argv[3]))
print("ready", flush=True)
while True:
    repository.index()
"""
DEADLINE_S = 120


def processes_of(home):
    """Command lines that name the folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(home) in command:
            found.append(command)
    return found


def test_signing_leaves_no_agent_even_when_it_is_killed(tmp_path):
    repository = Repository(tmp_path / "own", [], tmp_path / "own.db")
    assert (
        (repository.folder / "InRelease")
        .read_text()
        .startswith("-----BEGIN PGP SIGNED MESSAGE-----")
    )
    assert processes_of(repository.home) == []

    argv = [
        sys.executable,
        "-c",
        SIGN,
        str(Path(__file__).parent),
        str(tmp_path / "other"),
        str(tmp_path / "other.db"),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as signing:
        assert signing.stdout.readline() == "ready\n"
        until = time.monotonic() + DEADLINE_S
        while not any("gpg-agent" in command for command in processes_of(tmp_path / "other.gnupg")):
            assert time.monotonic() < until, "expected an agent of gpg while it signs, found none"
        signing.kill()
    # the one call that was in progress ends by itself
    while processes_of(tmp_path / "other.gnupg"):
        assert time.monotonic() < until, processes_of(tmp_path / "other.gnupg")
        time.sleep(0.1)
