"""A file that a command is given is read with limits on bytes and time: a pipe to which nobody
writes, a device, and eight GiB end with 2 and a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import fleets
import pytest

PLACES = ("pipe", "large", "/dev/zero")
COMMANDS = (
    "judge FILE", "judge run --policy FILE", "judge run --rules rules-FILE", "report FILE",
    "report run --host @FILE",
    "plan FILE", "remediate FILE",
    "audit --limit @FILE", "audit --webhook @FILE",
    "policy --from run --smoke FILE", "preprovision --verify FILE --key FILE", "history diff FILE run",
    "inspect --evidence FILE",
)  # fmt: skip
MOST_BYTES = 3 << 30
# One process for all: [[command, exit code, what it printed], …] on its standard output.
CHILD = """
import contextlib, io, json, resource, sys
from unhang.cli import main
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
ended = []
for command in json.load(sys.stdin):
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        try:
            code = main(command.split())
        except SystemExit as end:
            code = end.code
    ended.append([command, code, printed.getvalue()])
json.dump(ended, sys.__stdout__)
"""


@pytest.fixture
def folder(tmp_path):
    """A run, the files, and folders of rules with one of them each."""
    finding = fleets.finding("xid-fatal", "gpu007", "critical", "t", "e", "f", owner="vendor")
    fleets.write_run(
        tmp_path / "run",
        fleets.document([finding], {"ok": 1}),
        [fleets.node("gpu007", ["all"], fleets.h200())],
    )
    for name in ("pipe", "rules-pipe/a.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    for name in ("large", "rules-large/a.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with (tmp_path / name).open("wb") as target:
            target.truncate(8 << 30)
    (tmp_path / "rules-").mkdir()
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_a_file_without_end_is_refused_by_each_command_that_is_given_one(folder, place):
    commands = [
        one.replace("FILE", place)
        for one in COMMANDS
        if "rules-" not in one or place != "/dev/zero"
    ]
    environment = {
        **os.environ,
        "UNHANG_RUNS": str(folder / "runs"),
        "HOME": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(MOST_BYTES)],
        cwd=folder,
        env=environment,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    ended = json.loads(done.stdout)
    assert len(ended) == len(commands)
    assert {command: code for command, code, _ in ended if code != 2} == {}
    assert [
        one for one in ended if "fault of unhang itself" in one[2] or "unhang: " not in one[2]
    ] == []
