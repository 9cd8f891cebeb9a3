"""A file that its parser refuses is reported: no rule that needs the parsed text was applied to
it."""

from __future__ import annotations

import pytest

from unhang import cli
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text

OLD_PYTHON = (
    "import torch.distributed as dist\nrank = dist.get_rank()\nprint 'rank', rank\nif rank == 0:\n "
    "   dist.barrier()\n"
)


def found_in(text, kind):
    return [
        (one.line, one.rule, one.severity, one.found) for one in lint_text(text, kind, Context())
    ]


@pytest.mark.parametrize(
    ("kind", "text", "line", "severity", "found"),
    [
        ("python", OLD_PYTHON, 3, "warning", "print 'rank', rank"),
        ("python", "print 'no word of ranks'\n", 1, "warning", "print 'no word of ranks'"),
        ("python", "x = 1\nname = {{ name }}: 1\n", 2, "info", "name = {{ name }}: 1"),
        ("python", "x = '\udcff'\n", 1, "info", "the whole file"),
        ("python", f"x = 1{' ' * 400_000}\n", 1, "info", "the whole file"),
        ("python", "(" * 1000, 1, "info", "the whole file"),
        ("kubernetes", "a: [1\nb: }\n", 2, "warning", "b: }"),
        ("kubernetes", "a: b\n---\nc: 3 }\nd: : :\n", 4, "warning", "d: : :"),
        ("kubernetes", "a: [1\n", 1, "warning", "a: [1"),
        ("kubernetes", "a: {{ .V }}\n{{- if .W }}\nb: 1\n{{- end }}\n", 3, "info", "b: 1"),
        ("kubernetes", "[" * 5000, 1, "info", "the whole file"),
        ("kubernetes", "b: &x 1\nc: &x 2\n", 1, "info", "the whole file"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_parsed_is_a_finding(kind, text, line, severity, found):
    assert found_in(text, kind) == [(line, "not-parsed", severity, found)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("python", "print('x')\n"), ("python", ""), ("kubernetes", ""),
        ("kubernetes", "a: !own {b: &c d}\n---\nb: &x 1\nc: *x\n"),
        ("kubernetes", "a: é\nb: '{{ .V }}'\n"), ("shell", "print 'x'\n"),
        ("python", f"{OLD_PYTHON.splitlines()[2]}  # unhang: ignore\n"),
    ],
)  # fmt: skip
def test_text_that_is_parsed_or_meant_is_left_alone(kind, text):
    assert found_in(text, kind) == []


def test_person_and_exit_code_are_told_that_a_file_was_not_read(tmp_path, capsys):
    (tmp_path / "old.py").write_text(f"import os\n{OLD_PYTHON}")
    assert cli.main(["lint", str(tmp_path / "old.py")]) == 1
    assert "is no valid Python (line 4), so that not all of it was read" in capsys.readouterr().out
    (tmp_path / "old.py").write_text(
        OLD_PYTHON.replace("print 'rank', rank", "print('rank', rank)")
    )
    cli.main(["lint", str(tmp_path / "old.py")])
    assert "collective-on-some-ranks" in capsys.readouterr().out


def test_commands_of_a_notebook_are_left_out():
    notebook = (
        "!pip install torch\n%%time\nfor one in names:\n    !ls {one}\ndist.barrier() if"
        " dist.get_rank() == 0 else None\n"
    )
    assert "not-parsed" not in {one.rule for one in lint_text(notebook, "python", Context())}
    assert "not-parsed" in {
        one.rule for one in lint_text(notebook + "def f(:\n", "python", Context())
    }
    assert lint_text("x = (y\n     % 2)\n", "python", Context()) == []
