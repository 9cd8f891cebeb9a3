"""The examples in CONTRIBUTING.md work unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from signature_faults import pattern_faults, shape_faults

import unhang.commands
from unhang.cli import main
from unhang.commands import COMMANDS
from unhang.jobs.diagnose.matching.signatures import load_causes

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.M | re.S)


def example(name):
    """The block whose first line is the comment `# name`, without its indentation."""
    for indent, _language, text in BLOCK.findall(
        (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    ):
        lines = [line.removeprefix(indent) for line in text.splitlines()]
        if lines[0] == f"# {name}":
            return "\n".join(lines) + "\n"
    raise AssertionError(f"CONTRIBUTING.md shows no {name}")


def test_the_rule_passes_the_catalogues_check(tmp_path, capsys):
    (tmp_path / "own.yml").write_text(example("rule"))
    code = main(["catalogue", "check", str(tmp_path)])
    shown = capsys.readouterr()
    assert (code, "1 rule" in shown.out) == (0, True), shown.out + shown.err


def test_a_fault_in_the_rule_is_found(tmp_path, capsys):
    (tmp_path / "own.yml").write_text(
        example("rule").replace("when: limits.numa_balancing ", "when: limits.numa_balancin ")
    )
    assert main(["catalogue", "check", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "numa_balancin" in shown.out + shown.err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10\n", 10),
        ("3000", 3000),
        ("3001", None),
        ("0", None),
        ("-1", None),
        ("", None),
        ("six", None),
        ("٣", None),
    ],
)
def test_the_parser_reads_what_it_says(text, value):
    names = {}
    exec(compile(example("parser"), "parser", "exec"), names)
    assert names["parse_watermark_scale"](text) == value


def test_the_fact_of_the_example_is_none_that_the_collector_reads_already():
    name = re.search(r'"""(vm\.\w+),', example("parser"))[1]
    read = [
        path
        for path in (PROJECT / "module_utils" / "unhang_node").rglob("*.py")
        if name in path.read_text(encoding="utf-8")
    ]
    assert (
        read,
        name
        in (PROJECT / "tools/unhang/core/schemas/node-facts-1.yaml").read_text(encoding="utf-8"),
    ) == ([], False)


def test_the_command_is_found_by_its_name_and_prints_a_runs_nodes(tmp_path, capsys, monkeypatch):
    (tmp_path / "kernels.py").write_text(example("command"))
    monkeypatch.setattr(unhang.commands, "__path__", [*unhang.commands.__path__, str(tmp_path)])
    monkeypatch.setitem(COMMANDS, "kernels", "list the nodes of a run with their kernels")
    (tmp_path / "run" / "nodes").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    for host, facts in (("gpu001", {"kernel": {"release": "6.8.0-31-generic"}}), ("gpu002", None)):
        (tmp_path / "run" / "nodes" / f"{host}.json").write_text(
            json.dumps({"host": host, "facts": facts})
        )
    assert main(["kernels", str(tmp_path / "run"), "-o", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["host,kernel", "gpu001,6.8.0-31-generic", "gpu002,"]
    assert main(["kernels", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.splitlines() == ["gpu001  6.8.0-31-generic", "gpu002  -"]
    assert main(["kernels", str(tmp_path / "none")]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_the_signature_proves_itself():
    (row,) = yaml.safe_load(example("signature"))["signatures"]
    assert list(shape_faults(row)) == []
    assert list(pattern_faults(row["pattern"])) == []
    assert set(row["for"]) <= set(load_causes())
    assert [one for one in row["examples"]["match"] if not re.search(row["pattern"], one)] == []
    assert [one for one in row["examples"]["near_miss"] if re.search(row["pattern"], one)] == []


@pytest.mark.parametrize(
    "path",
    re.findall(
        r"\]\(([^)#:]+?)(?:#[^)]*)?\)", (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    ),
)
def test_a_link_leads_to_a_page(path):
    assert (PROJECT / path).is_file()


NAMED = r"`((?:tools|tests|library|module_utils|roles|playbooks|awx|docs)/[^`*<>\s]+)`"


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(NAMED, (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")))),
)
def test_what_is_named_is_there(path):
    # the writer puts the name of a section
    assert (PROJECT / path.partition("SECTION")[0]).exists()
