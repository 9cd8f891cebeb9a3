"""The payload is zipped when it is sent: the same bytes each time, small enough for a command line,
and with nothing in it that old or foreign Pythons lack."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import zipfile

import pytest
import smoke_runs
from smoke_runs import DEADLINE_S, PAYLOAD, PROJECT

from unhang.smoke import programs as smoke_programs
from unhang.smoke.bootstrap import carried, packed
from unhang.smoke.payload_zip import NAME, PACKAGE, payload_bytes

MOST_ARGUMENT_BYTES = 128 * 1024  # one word of a command line; Linux calls it MAX_ARG_STRLEN
PARTS = {
    name: text.decode()
    for archive in [zipfile.ZipFile(PAYLOAD)]
    for name, text in ((name, archive.read(name)) for name in archive.namelist())
}


def survey_of(argv, folder, **options):
    """The answer of a survey for which nothing remains in the folder of temporary files."""
    place = {
        "env": {"TMPDIR": str(folder), "PATH": "/usr/bin:/bin"},
        "cwd": folder,
        "timeout": DEADLINE_S,
        "check": True,
    }
    done = subprocess.run(argv, capture_output=True, **place, **options)
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


def test_the_same_modules_make_the_same_bytes_in_any_process():
    code = (
        "import sys; sys.path[:0] ="
        f" {[str(PROJECT / name) for name in ('tools', 'module_utils')]!r}\nfrom"
        " unhang.smoke.payload_zip import *\n"
    )
    code += "sys.stdout.buffer.write(payload_bytes())"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            timeout=DEADLINE_S,
            check=True,
            env={"PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"},
        )
        assert done.stdout == payload_bytes()


def test_it_fits_into_one_word_of_a_command_line_with_room_to_grow():
    assert len(packed(payload_bytes())) < MOST_ARGUMENT_BYTES * 3 // 4


def test_a_command_line_and_the_playbooks_standard_input_run_it_and_leave_nothing(tmp_path):
    assert (
        survey_of(carried([sys.executable], payload_bytes(), "survey", "--remove-self"), tmp_path)[
            "e"
        ]
        == "survey"
    )
    program = smoke_programs.program_text(
        smoke_programs.SURVEY, {"name": NAME, "payload": smoke_programs.packed(payload_bytes())}
    )
    assert survey_of([sys.executable, "-I", "-"], tmp_path, input=program)["e"] == "survey"


@pytest.mark.parametrize("name", PARTS)
def test_a_part_needs_torch_when_it_runs_and_else_the_standard_library_of_python_3_8(name):
    tree = ast.parse(PARTS[name], feature_version=(3, 8))
    absolute = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
    ]
    roots = {
        path.split(".")[0]: node
        for node in absolute
        for path in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
    }
    assert set(roots) <= {
        *sys.stdlib_module_names,
        "torch",
        *([PACKAGE] if name == "__main__.py" else []),
    }
    assert roots.get("torch") not in tree.body, "the agent must start without torch"


@pytest.mark.parametrize("name", [name for name in PARTS if name != "__main__.py"])
def test_each_part_has_one_concern_and_stays_short(name):
    assert len(PARTS[name].splitlines()) < 330
    assert ast.get_docstring(ast.parse(PARTS[name]))


def test_it_holds_every_module_and_nothing_else():
    names = {f"{PACKAGE}/{path.name}" for path in (PROJECT / "tools").glob("unhang/*/payload/*.py")}
    assert set(zipfile.ZipFile(io.BytesIO(payload_bytes())).namelist()) == {"__main__.py", *names}


def test_it_can_be_loaded_without_torch():
    folder = str(PROJECT / "tests" / "support")
    code = (
        f"import sys; sys.path[:0] = {[folder, *sys.path]!r}; import smoke_runs;"
        " smoke_runs.load_payload(); sys.exit('torch' in sys.modules)"
    )
    assert smoke_runs.PAYLOAD.is_file()
    subprocess.run([sys.executable, "-c", code], timeout=DEADLINE_S, check=True)
