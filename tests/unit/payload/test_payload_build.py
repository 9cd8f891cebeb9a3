"""The payload is assembled from parts: the committed file equals the assembled one, and parts that cannot be combined are refused."""

from __future__ import annotations

import ast

import pytest
from smoke_runs import PAYLOAD

from payload import build
from unhang.smoke.bootstrap import packed

MOST_ARGUMENT_BYTES = 128 * 1024  # one word of a command line; Linux calls it MAX_ARG_STRLEN
MAIN = '"""The command line."""\n\nfrom .work import one\n\n\ndef main():\n    return one()\n'
WORK = '"""Work."""\n\nimport os\n\nfrom .base import TWO\n\n\ndef one():\n    return os.sep * TWO\n'
BASE = '"""Base."""\n\n# Why two.\nTWO = 2\n'
GOOD = {"__init__": '"""What it is."""\n', "main": MAIN, "work": WORK, "base": BASE}


def laid(folder, **changed):
    """The whole of a small set of parts; None leaves one out."""
    for name, text in {**GOOD, **changed}.items():
        if text is not None:
            (folder / f"{name}.py").write_text(text)
    return build.assemble(folder)


@pytest.mark.parametrize("last", build.TARGETS)
def test_the_committed_file_is_what_the_parts_make(last):
    assert build.assemble(last=last) == build.TARGETS[last].read_text("utf-8"), "run: .venv/bin/python tools/payload/build.py"


def test_each_part_has_one_concern_and_stays_short():
    for path in build.PARTS.glob("*.py"):
        lines = path.read_text("utf-8").splitlines()
        assert len(lines) < 300, path.name
        assert ast.get_docstring(ast.parse("\n".join(lines))), path.name


def test_the_payload_fits_into_one_word_of_a_command_line():
    assert len(packed(PAYLOAD.read_bytes())) < MOST_ARGUMENT_BYTES


def test_parts_come_after_what_they_need_and_keep_their_lines(tmp_path):
    whole = laid(tmp_path)
    assert whole.index("TWO = 2") < whole.index("def one") < whole.index("def main")
    assert "# Why two.\nTWO = 2" in whole
    assert "from ." not in whole
    assert whole.count("import os") == 1
    space = {}
    exec(compile(whole, "whole", "exec"), space)
    assert space["main"]() == "//"


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"base": BASE + "\n\ndef one():\n    return 1\n"}, "expected a name of its own, found one"),
        ({"base": BASE + "\n\nos = 3\n"}, "found os, which work has too"),
        ({"work": WORK.replace("import TWO", "import THREE")}, "expected THREE in base, found it in no part"),
        ({"work": WORK.replace("import TWO", "import TWO as B")}, "under their own names"),
        ({"work": WORK.replace(".base import TWO", ". import base")}, "expected `from .part import name`"),
        ({"work": WORK.replace("import os", "import torch")}, "the standard library alone"),
        ({"work": WORK + "\n\ndef two():\n    from .base import TWO\n    return TWO\n"}, "found one in line 13"),
        ({"base": '"""Base."""\n\nfrom .main import main\n\nTWO = 2\n'}, "expected no circle, found main -> work -> base -> main"),
        ({"more": '"""More."""\n\nFOUR = 4\n'}, "more: expected to be imported by some part"),
        ({"base": "TWO = 2\n"}, "expected a docstring"),
        ({"base": None}, "expected TWO in base, found it in no part"),
    ],
)
def test_parts_that_cannot_be_laid_together_are_refused(tmp_path, changed, message):
    with pytest.raises(build.Unsound, match=message.replace("[", r"\[")):
        laid(tmp_path, **changed)
