"""The catalogue of the slow tests has the rules and rows as they are shipped, and takes the place of the shipped one where UNHANG_CATALOGUE names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_catalogue import FOLDER, PROJECT, RULES, small_catalogue

SLOW = ("nodes", "packages", "roles", "torch", "vm", "vm-fleet")


def unhang(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNHANG_CATALOGUE": str(folder)}
    return subprocess.run([sys.executable, "-P", "-m", "unhang", *arguments], env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_what_the_slow_tests_judge_with_is_what_is_shipped():
    text = {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.yml")}
    assert text == small_catalogue(), "next: python tests/support/small_catalogue.py, which makes the slow tiers run again"


def test_it_takes_the_place_of_the_whole_catalogue():
    assert unhang(FOLDER, "rule", "check", str(FOLDER)).stdout.startswith(f"{FOLDER}: {len(RULES)} rules, ")
    assert unhang(FOLDER, "explain", "xid-fatal").returncode == 0
    assert "nothing is known of 'numa-balancing-on-many-gpus'" in unhang(FOLDER, "explain", "numa-balancing-on-many-gpus").stderr


def test_a_folder_without_rules_is_refused(tmp_path):
    done = unhang(tmp_path, "catalogue")
    assert done.returncode == 2
    assert done.stderr.startswith(f"unhang: {tmp_path}: expected a catalogue with a folder rules, found none; unset UNHANG_CATALOGUE")


@pytest.mark.parametrize("tier", SLOW)
def test_a_slow_tier_judges_with_it_and_reads_no_page_and_no_shipped_rule(tier):
    assert "\njudge_with_it()\n" in (PROJECT / "tests" / tier.partition("-")[0] / "conftest.py").read_text(encoding="utf-8")
    paths = [line for line in (PROJECT / ".ci" / "tiers" / f"test-{tier}").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    proved = subprocess.run(["git", "ls-files", "--", *paths], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    assert "tests/fixtures/catalogue/rules/rules.yml" in proved
    assert [path for path in proved if path.endswith(".md") or re.match(r"docs/|tools/unhang/core/catalogue/.*yml$", path)] == []
