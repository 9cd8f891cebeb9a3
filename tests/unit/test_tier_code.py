"""What counts of a Python file when .ci/tier compares it with the file that a tier of tests passed with: its code, not its comments and docstrings."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

TIER = Path(__file__).parents[2] / ".ci" / "tier"


@pytest.fixture(scope="module")
def code_of():
    loader = importlib.machinery.SourceFileLoader("ci_tier", str(TIER))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ci_tier", loader))
    loader.exec_module(module)
    return lambda text: module.code_of(text.encode("utf-8"))


SOURCE = '''#!/usr/bin/python3
"""What it is for."""

import os  # why

TEXT = """# no comment

"""


class One:
    """A docstring
    of two lines."""

    size = 1

    # alone on its line
    def f(self):
        "Another."
        return [self.size,  # one
                2]
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it is for.", "What it does."),
        ("A docstring\n    of two lines.", "One line."),
        ('        "Another."\n', ""),
        ("  # why", ""),
        ("    # alone on its line\n", ""),
        ("# one", "# other"),
    ],
)
def test_comments_and_docstrings_do_not_count(code_of, old, new):
    assert old in SOURCE
    assert code_of(SOURCE.replace(old, new, 1)) == code_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size = 1", "size = 2"),
        ("size = 1", 'size = 1\n    """Of an attribute, which no program finds as a docstring."""'),
        ("# no comment\n\n", "# no comment\n"),
        ("# no comment", "# other"),
        ("python3", "python4"),
        ("import os", "import os, sys"),
        ("return [", "return not ["),
        ("    # alone on its line\n", "    __doc__ = 1\n"),
        ("class One:", "class One(:"),
        ("        return", "    return"),
    ],
)
def test_all_else_counts(code_of, old, new):
    assert old in SOURCE
    assert code_of(SOURCE.replace(old, new, 1)) != code_of(SOURCE)


@pytest.mark.parametrize("text", ['"""One."""\nprint(__doc__)\n', "class One(:  # no Python\n", "x = 1\f # a form feed\n"])
def test_a_file_that_uses_docstrings_or_is_not_understood_counts_whole(code_of, text):
    assert code_of(text) == text.encode("utf-8")
