"""Text from elsewhere stays data: each writer of a file, a command or a variable stands in
docs/security.md, and no name in a shared folder can be foreseen."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hostile import TEXTS
from msgspec.structs import replace

from unhang.act.plan.policy_from_nodes import (
    Draft,
    Pin,
    Undecided,
    policy_from_nodes,
    render_policy,
)
from unhang.core.ansible.plain_data import data_for_ansible
from unhang.core.baselines import bandwidth_rows
from unhang.core.errors import UserError
from unhang.core.smoke_result import Collective, Group
from unhang.core.text import cell_for_csv
from unhang.smoke import programs as smoke_programs
from unhang.smoke.bootstrap import carried
from unhang.smoke.result import judge

HOME = Path(__file__).resolve().parents[2]
TOPS = ("tools/unhang", "plugins", "library", "module_utils")
WRITES = {
    "write_text",
    "write_bytes",
    "write_atomically",
    "write_named",
    "write_document",
    "NamedTemporaryFile",
    "mkstemp",
    "mkdtemp",
    "TemporaryDirectory",
}
# the first opens a file of a run folder
WRITES |= {
    "open_private",
    "symlink",
    "symlink_to",
    "hardlink_to",
    "copy2",
    "copyfile",
    "copyfileobj",
    "copytree",
}
FOR_ANSIBLE = {"set_variable", "data_for_ansible"}
MARKS = ("{{", "{%", "{#")


def calls(tree: ast.AST) -> Iterator[tuple[str, str, ast.Call]]:
    """(module or object, function, call) of each call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            of = node.func
            base = (
                of.value.id
                if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name)
                else ""
            )
            yield base, of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", ""), node


def opens_to_write(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [
        one.value
        for one in given
        if isinstance(one, ast.Constant)
        and isinstance(one.value, str)
        and re.fullmatch("[rwaxbt+]{1,3}", one.value)
    ]
    return any(set(mode) & set("wax+") for mode in modes)


def is_writer(source: str) -> bool:
    tree = ast.parse(source)
    if any(isinstance(node, ast.Attribute) and node.attr == "O_CREAT" for node in ast.walk(tree)):
        return True
    return any(
        name in WRITES | FOR_ANSIBLE
        or (base == "shlex" and name in ("quote", "join"))
        or (base == "shutil" and name in ("copy", "move"))
        or (base == "os" and name == "link")
        or (name == "open" and opens_to_write(call))
        for base, name, call in calls(tree)
    )


def sources() -> list[Path]:
    return [path for top in TOPS for path in sorted((HOME / top).rglob("*.py"))]


def test_each_writer_stands_in_the_table_of_its_reader():
    page = (HOME / "docs" / "security.md").read_text(encoding="utf-8")
    table = page.partition("## Writers")[2].partition("\n## ")[0]
    listed = {
        name
        for row in table.splitlines()
        if row.startswith("|")
        for name in re.findall(r"`(\w+)`", row.split("|")[3])
    }
    found = {path.stem for path in sources() if is_writer(path.read_text(encoding="utf-8"))}
    assert sorted(found - listed) == [], (
        "say in docs/security.md who reads what it writes, and what keeps text of a node data there"
    )
    assert sorted(listed - found) == []


def test_each_row_of_the_threats_names_tests_that_there_are():
    page = (HOME / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [
        row.split("|")
        for row in page.partition("## Threats")[2].partition("\n## ")[0].splitlines()
        if row.startswith("|")
    ][2:]
    there = {path.stem for path in (HOME / "tests").rglob("test_*.py")}
    named = [re.findall(r"test_\w+", row[4]) for row in rows]
    assert all(named) and len(rows) > 20
    assert sorted({name for names in named for name in names} - there) == []


def test_no_name_in_a_shared_folder_can_be_foreseen():
    """mkstemp and mkdtemp choose names; whoever joins a name of his own to /tmp gives others the
    time to be there first."""
    shared = re.compile(r"gettempdir\(\)|[\"']/(?:var/)?tmp/[^\"']|[\"']/dev/shm/[^\"']")
    looked_at = {"leftovers", "limits", "nccl_profile", "flights"}
    paths = [*sources(), *sorted((HOME / "tools" / "collector").rglob("*.py"))]
    assert [
        str(path)
        for path in paths
        if path.stem not in looked_at and shared.search(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_policy_holds_text_of_a_node_as_data_or_not_at_all(text):
    nodes = {
        name: {
            "gpus": {"model": text},
            "kernel": {"release": text},
            "driver": {"loaded": {"flavour": text}},
        }
        for name in ("a", text)
    }
    draft = policy_from_nodes(nodes)
    shown = render_policy(draft, [f"from {text}", text])
    assert set(yaml.safe_load(shown)) == {"unhang_policy"}
    assert not any(
        mark in line.partition(" # ")[0]
        for line in shown.splitlines()
        if not line.lstrip().startswith("#")
        for mark in MARKS
    )
    assert all(line.startswith(("#", "unhang_policy:", "  ")) for line in shown.split("\n") if line)
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "text", [text for text in TEXTS.values() if not text.isprintable() or "{{" in text]
)
def test_what_ansible_would_run_is_refused_wherever_it_stands(text):
    for value in (text, [text], {"a": [{"b": text}]}, {text: 1}):
        with pytest.raises(UserError, match="Ansible reads this text, and it"):
            data_for_ansible(value)
    with pytest.raises(UserError):
        render_policy(Draft((Pin("gpu", "model", text, "why"),), (Undecided("a", "b"),)), [])


def test_a_result_of_a_smoke_test_brings_no_template_into_the_policy():
    group = Group("{{ lookup('pipe', 'id') }}", 8, False, "IB")
    row = Collective("all_reduce", 1 << 30, 100.0, measures="bandwidth")
    result = replace(judge([]), verdict="pass", group=group, collectives=[row])
    with pytest.raises(UserError, match=r"--smoke .*template"):
        bandwidth_rows([result])


@pytest.mark.parametrize("module", ["base64", "zlib", "tempfile", "json"])
def test_the_smoke_test_imports_nothing_from_the_folder_that_it_starts_in(tmp_path, module):
    """/tmp, under srun: anybody on the node may have left a base64.py there."""
    (tmp_path / f"{module}.py").write_text("open('imported', 'w').close()\n")
    subprocess.run(
        carried([sys.executable], b"import os, shutil; shutil.rmtree(os.path.dirname(__file__))"),
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    line = smoke_programs.program_line(sys.executable)
    text = smoke_programs.program_text("print(json.dumps({'place': 1}))", {})
    subprocess.run(line, shell=True, cwd=tmp_path, input=text, check=False, capture_output=True)
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    "text", ["=1+1", "@x", "-1", "a;=cmd|' /C calc'!A0", "a;  +1", "a\t@x", "x|=1"]
)
def test_no_part_of_a_cell_is_a_formula_whatever_sign_splits_cells(text):
    cell = cell_for_csv(text)
    assert not [
        part for part in re.split(r"[;\t|]", cell) if part.strip()[:1] in ("=", "+", "-", "@")
    ]
    assert cell.replace("'", "") == text.replace("'", "")
