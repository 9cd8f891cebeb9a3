"""`.ci/tier`: what a record of a pass covers, in a project of its own with a virtual environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import venv

import pytest
from support.audits import PROJECT

READS = """
import pathlib, subprocess, sys
sys.path.insert(0, "code")
import used
print(sorted(path.name for path in pathlib.Path("rules").iterdir()), pathlib.Path("rules/read.yml").read_text())
subprocess.run(["ls", "named"], check=True)
"""


@pytest.fixture
def tier(tmp_path):
    """Runs the tier `t` of a small project, and gives what was printed."""
    files = {
        "run.py": READS, "code/used.py": "", "code/other.py": "", "rules/read.yml": "1", "rules/unread.yml": "1", "rules/page.md": "1", "named/below/file": "1",
        "listed.txt": "1", ".ci/tiers/t": "listed.txt\n", ".gitignore": ".venv\n__pycache__\n",
    }  # fmt: skip
    for path, text in files.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for name in ("tier", "recording.py"):
        shutil.copy(PROJECT / ".ci" / name, tmp_path / ".ci" / name)
    venv.create(tmp_path / ".venv", symlinks=True, with_pip=False)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def run(*command):
        program = command or (".venv/bin/python", "run.py")
        environment = {name: value for name, value in os.environ.items() if name != "UNHANG_ALL_TIERS"}
        played = subprocess.run([sys.executable, ".ci/tier", "t", "60", *program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return played.returncode, played.stdout + played.stderr

    run.folder = tmp_path
    return run


def test_what_a_pass_read_is_on_record_and_the_same_content_is_passed_over(tier):
    code, printed = tier()
    assert code == 0 and "commit .ci/passed/t.json" in printed, printed
    record = json.loads((tier.folder / ".ci/passed/t.json").read_text())
    assert {"run.py", "code/used.py", "rules/read.yml", "named"} <= set(record["files"])
    assert set(record["content"]) == {
        "run.py",
        "code/used.py",
        "rules/read.yml",
        "named/below/file",
        "listed.txt",
        ".ci/tiers/t",
        "rules/read.yml in rules",
        "rules/unread.yml in rules",
    }
    code, printed = tier()
    assert code == 0 and "passed over" in printed


@pytest.mark.parametrize("path", ["run.py", "code/used.py", "rules/read.yml", "named/below/file", "listed.txt", "rules/new.yml", "named/new"])
def test_a_change_that_a_tier_can_see_runs_it(tier, path):
    tier()
    (tier.folder / path).write_text(READS + "\n" if path == "run.py" else "# 2", encoding="utf-8")
    code, printed = tier()
    assert code == 0 and "t runs" in printed and path in printed, printed


@pytest.mark.parametrize("path", ["code/other.py", "rules/unread.yml", "rules/page.md", "rules/another.md", "elsewhere.txt"])
def test_a_change_that_a_tier_cannot_see_does_not(tier, path):
    tier()
    (tier.folder / path).write_text("changed", encoding="utf-8")
    code, printed = tier()
    assert code == 0 and "passed over" in printed, printed


def test_a_file_that_is_gone_runs_it(tier):
    tier()
    (tier.folder / "named/below/file").unlink()
    assert "named/below/file is gone" in tier()[1]


def test_a_run_that_fails_leaves_no_record_and_says_so_twice(tier):
    code, printed = tier(".venv/bin/python", "-c", "raise SystemExit(3)")
    assert code == 1 and "FAILED ON ITS SECOND TRY TOO" in printed and not (tier.folder / ".ci/passed/t.json").exists()


def test_a_tier_without_its_list_is_used_wrongly(tier):
    (tier.folder / ".ci/tiers/t").unlink()
    code, printed = tier()
    assert code == 2 and "expected .ci/tier NAME SECONDS" in printed
