"""The builder of the smoke test's file, run as a program."""

from __future__ import annotations

import subprocess
import sys

from smoke_runs import PAYLOAD, PROJECT

from payload import build

MAIN = '"""The command line."""\n\nfrom .work import one\n\n\ndef main():\n    return one()\n'
WORK = '"""Work."""\n\nimport os\n\nfrom .base import TWO\n\n\ndef one():\n    return os.sep * TWO\n'
BASE = '"""Base."""\n\n# Why two.\nTWO = 2\n'
GOOD = {"__init__": '"""What it is."""\n', "main": MAIN, "work": WORK, "base": BASE}


def laid(folder, **changed):
    """All files of a small set of parts; None leaves one out."""
    for name, text in {**GOOD, **changed}.items():
        if text is not None:
            (folder / f"{name}.py").write_text(text)
    return build.assemble(folder)


def test_the_builder_says_so_when_the_file_is_stale(tmp_path):
    stale = tmp_path / "unhang_smoke.py"
    argv = [sys.executable, str(PROJECT / "tools" / "payload" / "build.py"), str(stale)]
    stale.write_text(PAYLOAD.read_text("utf-8") + "# by hand\n")
    assert subprocess.run([*argv, "--check"], check=False).returncode == 1
    assert subprocess.run(argv, check=False, capture_output=True).returncode == 0
    assert subprocess.run([*argv, "--check"], check=False).returncode == 0
    assert stale.read_bytes() == PAYLOAD.read_bytes()


def test_the_same_parts_make_the_same_bytes_in_any_process():
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PROJECT / 'tools')!r}); from payload import build; print(build.assemble(), end='')"]
    answers = {subprocess.run(argv, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert answers == {PAYLOAD.read_text("utf-8")}
