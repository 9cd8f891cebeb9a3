"""The catalogue of the slow tests has the rules and rows as they are shipped, and takes the place of the shipped one where UNHANG_CATALOGUE names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from small_catalogue import FOLDER, PROJECT, RULES, small_catalogue


def unhang(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNHANG_CATALOGUE": str(folder)}
    return subprocess.run([sys.executable, "-P", "-m", "unhang", *arguments], env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_what_the_slow_tests_judge_with_is_what_is_shipped():
    text = {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.yml")}
    assert text == small_catalogue(), "next: python tests/support/small_catalogue.py"


def test_it_takes_the_place_of_the_whole_catalogue():
    assert unhang(FOLDER, "rule", "check", str(FOLDER)).stdout.startswith(f"{FOLDER}: {len(RULES)} rules, ")
    assert unhang(FOLDER, "explain", "xid-fatal").returncode == 0
    assert "nothing is known of 'numa-balancing-on-many-gpus'" in unhang(FOLDER, "explain", "numa-balancing-on-many-gpus").stderr


def test_a_folder_without_rules_is_refused(tmp_path):
    done = unhang(tmp_path, "catalogue")
    assert done.returncode == 2
    assert done.stderr.startswith(f"unhang: {tmp_path}: expected a catalogue with a folder rules, found none; unset UNHANG_CATALOGUE")
