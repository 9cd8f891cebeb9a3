"""The man pages that are written from the commands' own parsers, as man reads them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from unhang.commands import COMMANDS

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{name: file}."""
    spec = importlib.util.spec_from_file_location(
        "man_pages", PROJECT / "tools" / "release" / "man_pages.py"
    )
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    folder = tmp_path_factory.mktemp("man")
    (folder / "unhang-gone.1").write_text("of an earlier release")
    written = writer.write_pages(folder, writer.released())
    assert sorted(written) == sorted(folder.iterdir())
    return {path.stem: path for path in written}


def shown(page):
    """The page as man shows it, in lines of 120 columns."""
    command = ["groff", "-man", "-Kutf8", "-Tutf8", "-P-c", "-ww", "-rLL=120n", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stderr == ""
    return re.sub(r".\x08", "", done.stdout)


def test_there_is_a_page_for_unhang_and_for_each_command(pages):
    assert set(pages) == {"unhang", *(f"unhang-{name.replace(' ', '-')}" for name in COMMANDS)}


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here: apt-get install groff")
@pytest.mark.parametrize("name", ["unhang", "unhang-audit", "unhang-history", "unhang-smoke"])
def test_a_page_is_read_without_a_warning_and_keeps_the_lines_of_its_examples(pages, name):
    text = shown(pages[name])
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
        assert f"\n{part}\n" in text, part
    assert f"{name} - " in text
    if name == "unhang":
        assert re.search(r"^ +audit +read every node of an inventory", text, re.MULTILINE)
