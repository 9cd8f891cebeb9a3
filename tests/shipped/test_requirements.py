"""The exact versions of requirements*.txt install with every Python that the set-up takes."""

from __future__ import annotations

import ast
import re
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
OLDEST = (
    ".".join(
        re.search(
            r"sys\.version_info < \((\d+), (\d+)\)",
            (PROJECT / "tools" / "setup" / "venv.sh").read_text(),
        ).groups()
    )
    + ".0"
)


def pins(name):
    """The requirements of a file that its own Python installs, without what it includes."""
    found = [
        Requirement(line.removesuffix("\\"))
        for line in (PROJECT / name).read_text().splitlines()
        if line[:1].isalpha()
    ]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-test.txt", "requirements-dev.txt"]
)
def test_each_pin_installs_with_the_oldest_python_that_the_set_up_takes(name):
    asked = {one.name: metadata(one.name)["Requires-Python"] for one in pins(name)}
    assert len(asked) > 8
    assert OLDEST == "3.11.0"
    too_new = {
        project: versions
        for project, versions in asked.items()
        if versions and OLDEST not in SpecifierSet(versions)
    }
    assert too_new == {}, f"Debian 12 has Python 3.11.2; take a release that runs with {OLDEST}"


@pytest.mark.parametrize(
    "name",
    [f"requirements{kind}.txt" for kind in ("", "-test", "-dev", "-build")],
)
def test_each_pin_has_checksums_and_the_set_up_asks_for_them(name):
    rows = re.findall(
        r"^([A-Za-z][^\n]*)((?:\n {4}--hash=sha256:[0-9a-f]{64}(?: \\)?)*)",
        (PROJECT / name).read_text(),
        re.MULTILINE,
    )
    assert len(rows) > 4
    assert [
        pin for pin, checksums in rows if "==" not in pin or checksums.count("--hash") < 1
    ] == []
    for place in ("tools/setup/venv.sh", "Makefile", "Containerfile", "execution-environment.yml"):
        calls = re.findall(r"^.*\binstall\b.* -r .*$", (PROJECT / place).read_text(), re.MULTILINE)
        assert calls
        assert [
            line for line in calls if "--require-hashes" not in line and "$torch" not in line
        ] == [], place


def test_the_wheel_is_built_with_versions_of_the_development_environment():
    known = {
        (one.name, str(one.specifier))
        for name in ("requirements.txt", "requirements-test.txt", "requirements-dev.txt")
        for one in pins(name)
    }
    assert {(one.name, str(one.specifier)) for one in pins("requirements-build.txt")} < known
    assert "torch" not in {one.name for one in pins("requirements-dev.txt")}, (
        "its CPU build, which tests here use, has no checksum in the index"
    )
    assert [one.name for one in pins("requirements-torch.txt")] == ["torch"]


def imported(path):
    """Top names of what a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_make_test_installs_what_its_tests_import():
    tests = PROJECT / "tests"
    waiting = [tests / "conftest.py", *(tests / "unit").rglob("*.py"), *(tests / "whole").glob("*")]
    waiting = [path for path in waiting if path.suffix == ".py"]
    names = set()
    while waiting:
        new = {*imported(waiting.pop())} - names
        names |= new
        support = [tests / "support" / f"{name}.py" for name in new]
        waiting += [path for path in support if path.is_file()]
    assert "pytest" in names
    installed = {
        one.name for name in ("requirements.txt", "requirements-test.txt") for one in pins(name)
    }
    brought_by = packages_distributions()
    assert {
        name: brought_by[name]
        for name in names & brought_by.keys() - {"unhang", "unhang_node"}
        if not {canonicalize_name(one) for one in brought_by[name]} & installed
    } == {}


def brought(*names):
    """The packages that these need, by their metadata."""
    found, waiting = set(), list(names)
    while waiting:
        for text in requires(waiting.pop()) or ():
            one = Requirement(text)
            name = canonicalize_name(one.name)
            if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(name)
    return found


def test_page_names_what_fabric_brings_and_the_one_file_that_it_is_here_for():
    """Each of the packages is there for fabric alone."""
    ours = [canonicalize_name(one.name) for one in pins("requirements.txt")]
    top = [name for name in ours if name not in brought(*ours)]
    assert "fabric" in top
    others = brought(*[name for name in top if name != "fabric"])
    page = (PROJECT / "docs" / "dependencies.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| fabric |")]
    named = row.partition("brings ")[2].partition(";")[0].replace(" and ", ", ").split(", ")
    assert {canonicalize_name(one) for one in named} == brought("fabric") - others
    [file] = re.findall(r"`(tools/\S+\.py)`", row)
    importers = [
        str(path.relative_to(PROJECT))
        for folder in ("tools", "module_utils", "library", "plugins")
        for path in (PROJECT / folder).rglob("*.py")
        if re.search(
            r"^(?:import|from) (?:fabric|paramiko|invoke)\b", path.read_text(), re.MULTILINE
        )
    ]
    assert importers == [file]
