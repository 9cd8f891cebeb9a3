"""`make described`, which `make check` and CI run, fails for a module that ansible-doc cannot read,
wherever it stands among others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
MODULE = (
    'DOCUMENTATION = """\nmodule: {name}\nshort_description: Reads nothing\ndescription: [It reads'
    ' nothing.]\noptions: {{}}\nauthor: [nobody]\n"""\n'
)
BROKEN = 'DOCUMENTATION = "["\n'


@pytest.mark.parametrize(
    ("modules", "code"),
    [
        ({"first": MODULE, "second": MODULE}, 0),
        ({"first": BROKEN, "second": MODULE}, 2),
        ({"first": MODULE, "second": BROKEN}, 2),
    ],
)
def test_every_module_must_be_read(tmp_path, modules, code):
    (tmp_path / "library").mkdir()
    (tmp_path / "ansible.cfg").write_text("[defaults]\nlibrary = ./library\n")
    for name, text in modules.items():
        (tmp_path / "library" / f"{name}.py").write_text(text.format(name=name))
    for path in ("Makefile", "tests/tests.mk"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / path, tmp_path / path)
    stamp = f"{sys.prefix}/.ready-dev"  # taken as it is: the test builds no environment
    done = subprocess.run(
        ["make", "-o", stamp, f"VENV={sys.prefix}", "described"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
