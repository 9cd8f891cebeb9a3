"""Each start of Python in the tree is isolated (-I or -P). With -c, -m or a program on standard
input Python imports from the folder in which it starts, which may be anybody's; a program that is
started by its path imports from its own folder instead."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
PLACES = (
    *(".ci", ".github", "awx", "deploy", "inventory/example", "inventory/local", "library"),
    *("module_utils", "playbooks", "plugins", "roles", "tools", "tests/tests.mk", "tests/nightly"),
    *("tests/install-system-packages", "action.yml", "Containerfile", "Makefile"),
    "execution-environment.yml",
)
# python3 -c, "$venv/bin/python" -m, [sys.executable, "-m", [*program, "-c",
# [ansible_playbook_python, '-m', {shlex.quote(python)} -: over quotes, brackets and lines
START = re.compile(
    r"""\b(?:\w*python(?:3(?:\.\d+)?)?|PYTHON3?|UNHANG_PYTHON|\w*interpreter|executable|program)
    ["'\]})]*(?P<options>(?:(?:,\s*|\s+)["']?-[a-zA-Z]+["']?)*?
    (?:,\s*|\s+)["']?-(?:[a-zA-Z]*[cm])?)(?=["'\s,}\]]|$)""",
    re.VERBOSE,
)
ISOLATED = re.compile(r"[\s\"']-[A-Za-z]*[IP]")
# {file: {what follows its start: why it is not isolated}}
OPEN = {
    "plugins/action/smoke_node.py": {
        "-c {shlex.quote(FINDS_TORCH)}": "it takes the folder away itself: the user's PYTHONPATH may"
        " have torch, and a node's Python has no -P"
    },
    "tools/unhang/core/ansible/old_python.py": {
        "-c {shlex.quote(ASK_VERSION)}": "it imports sys alone, from Python 2 on, which has no -I"
    },
    "tools/unhang/smoke/suspects.py": {
        "-c 'import torch'": "a person types it where the job failed, as the job did"
    },
    "tools/unhang/__main__.py": {"-m unhang`": "prose"},
    "tools/unhang/smoke/payload/__main__.py": {"-m unhang.smoke.payload`": "prose"},
}


def starts(text: str) -> list[tuple[str, bool]]:
    """(the options and what follows, whether they isolate it) of each start in a text."""
    whole = text.replace("\\\n", " ")
    return [
        (
            re.sub(r"\s+", " ", whole[found.start("options") : found.end() + 60]).strip(),
            bool(ISOLATED.search(found["options"])),
        )
        for found in START.finditer(whole)
    ]


@pytest.mark.parametrize(
    ("text", "isolated"),
    [
        ('"$UNHANG_PYTHON" -m venv "$RUNNER_TEMP/unhang"', False),
        ('"$UNHANG_PYTHON" -I -m venv "$RUNNER_TEMP/unhang"', True),
        ("\t$(PYTHON3) -m venv --clear build/uv", False),
        ("build/uv/bin/python -Im pip install", True),
        ("build/uv/bin/python -u -m pip install", False),
        ("RUN python3.12 -m venv /opt", False),
        ("argv = [sys.executable, '-c', START]", False),
        ('argv = [\n    sys.executable,\n    "-P",\n    "-m",\n    "unhang",\n]', True),
        ('argv = [*step, "python3", "-c", LOADER]', False),
        ('return [*program, "-c", LOADER]', False),
        ("{{ [ansible_playbook_python, '-m', 'unhang'] }}", False),
        ('return f"{shlex.quote(python)} -"', False),
        ("ssh $n python3 - < program", False),
        ("python3 -I -S \\\n  -c pass", True),
    ],
)
def test_a_start_is_recognised(text, isolated):
    assert [found for _options, found in starts(text)] == [isolated]


@pytest.mark.parametrize(
    "text", ["python3 -I -S /media/unhang-collect.pyz", "$(PYTHON) tools/collector/build.py", "-c"]
)
def test_a_program_that_is_started_by_its_path_is_none(text):
    assert starts(text) == []


def test_every_start_of_the_tree_is_isolated_or_says_why_not():
    listed = subprocess.run(
        ["git", "ls-files", "-z", *PLACES], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    # the catalogue has what jobs and persons start
    texts = {
        name: (HOME / name).read_text(encoding="utf-8")
        for name in filter(None, listed)
        if "/catalogue/" not in name and (HOME / name).is_file()
    }
    found = {name: starts(text) for name, text in texts.items()}
    assert {"action.yml", "Makefile", "roles/smoke_test/vars/main.yml"} <= {
        name for name, of_file in found.items() if of_file
    }
    left = {
        name: {options for options, isolated in of_file if not isolated}
        for name, of_file in found.items()
        if not all(isolated for _options, isolated in of_file)
    }
    known = {
        name: {one for one in of_file if any(known in one for known in OPEN.get(name, {}))}
        for name, of_file in left.items()
    }
    assert left == known
    assert {name: len(of_file) for name, of_file in left.items()} == {
        name: len(reasons) for name, reasons in OPEN.items()
    }
