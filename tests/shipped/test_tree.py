"""The tree is as docs/architecture.md describes it, tests are in the folders of the modules that
they test, and generated files are marked."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_layers import CONTROLLER, NODE, all_imports

HOME = Path(__file__).resolve().parents[2]
PAGE = (HOME / "docs" / "architecture.md").read_text(encoding="utf-8")
HOUSES = ("core", "judge", "jobs", "audit", "act", "smoke")  # what wings share, and the wings
PACKAGES = (
    "tools/unhang",
    *(f"tools/unhang/{house}" for house in HOUSES),
    "module_utils/unhang_node",
    *(f"module_utils/unhang_node/{part}" for part in ("facts", "change")),
)
MIRRORED = {
    "unhang": "tools/unhang",
    "unhang_node": "module_utils/unhang_node",
    "bench": "tests/bench",
    "collector": "tools/collector",
    "payload": "tools/unhang/smoke/payload",
}


def floor_plan() -> Iterator[str]:
    """Every path that the page's first block names, relative to the checkout."""
    block = PAGE.partition("## The floor plan")[2].partition("\n\n")[2].partition("\n\n")[0]
    above: list[str] = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 4 - 1
        names = re.split(r"  ", line.strip())[0].split()
        above = above[:depth]
        first = "/".join([*above, names[0].rstrip("/")])
        yield first
        yield from ("/".join([*first.split("/")[:-1], name.rstrip("/")]) for name in names[1:])
        above.append(names[0].rstrip("/"))


def packages(folder: str) -> list[str]:
    return sorted(path.parent.name for path in (HOME / folder).glob("*/__init__.py"))


def test_what_the_floor_plan_names_is_there():
    assert [path for path in floor_plan() if not (HOME / path).exists()] == []


def test_no_code_is_a_link():
    """A checkout or an archive without links has a text in its place."""
    listing = ["git", "ls-files", "-s", "library", "module_utils", "plugins", "roles", "tools"]
    staged = subprocess.run(
        listing, cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert staged and [line for line in staged if line.startswith("120000")] == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_package_stands_in_the_floor_plan(folder):
    named = set(floor_plan())
    assert [
        name for name in packages(folder) if name != "commands" and f"{folder}/{name}" not in named
    ] == []


def test_the_page_names_the_parts_that_the_layer_test_orders():
    for label, order in (("tools/unhang", CONTROLLER), ("unhang_node", NODE)):
        line = re.search(
            rf"^    {label}  +(\S.*)$", PAGE.partition("Inside each of the two")[2], re.MULTILINE
        ).group(1)
        named = re.findall(r"\w+", line)
        assert set(named) - {"cli"} == set(
            packages("tools/unhang" if "/" in label else "module_utils/unhang_node")
        )
        assert set(named) - {"cli"} == {
            name.split(".")[0]
            for line in order.split("|")
            for name in line.split()
            if "." in name or name in named
        } - {"cli"}


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_says_what_comes_in_what_goes_out_what_to_read_first_and_its_tests(house):
    folder = HOME / "tools" / "unhang" / house
    page = (folder / "README.md").read_text(encoding="utf-8")
    tests = re.search(
        r"^\| tests \| `make test-unit TEST_ARGS=(\S+)` \(\d+ s\) \|$", page, re.MULTILINE
    )
    first = re.findall(r"^- \[(\S+)\]\(\1\): \S", page, re.MULTILINE)
    assert re.search(r"^\| in \| \S.*\n\| out \| \S", page, re.MULTILINE)
    assert (HOME / tests.group(1)).exists()
    assert first
    assert [name for name in first if not (folder / name).is_file()] == []
    assert len(page.split()) < 200


def test_units_lie_in_the_folders_of_what_they_test():
    folders = {
        path.parent.relative_to(HOME / "tests" / "unit")
        for path in (HOME / "tests" / "unit").rglob("test_*.py")
    } - {Path()}
    places = {
        folder: HOME / MIRRORED.get(folder.parts[0], folder.parts[0]) / Path(*folder.parts[1:])
        for folder in folders
    }
    assert [str(folder) for folder, place in places.items() if not place.is_dir()] == []


# What some tests import instead: the judge loads the catalogue's data, the command line calls the
# commands, support reads sections of recorded nodes.
DOORS = {
    "unhang.core.catalogue": {
        "unhang.judge.rules.compiled_catalogue",
        "unhang.judge.rules.examples",
        "unhang.judge.rules.node_rules",
        "unhang.core.schemas.shapes",
    },
    "unhang.judge.fleet": {"changed_nodes"},  # a recorded node with a fault, judged
    "unhang.commands": {"unhang.cli"},
    "unhang.jobs.diagnose": {"job_diagnosis"},  # files in, the diagnosis out
    "unhang.jobs.inspect": {"inspected"},  # evidence in, the verdict out
    "unhang_node.facts.sections": {"recorded_roots"},
}


def imported_modules(test: Path) -> set[str]:
    """Dotted names of the modules that a test imports, of the project and of the tests' support."""
    tops = [HOME / "tools", HOME / "module_utils", HOME / "tests" / "support"]
    imported = all_imports("test", ast.parse(test.read_text(encoding="utf-8")), "")
    named = imported | {name.rpartition(".")[0] for name in imported}
    return {
        name
        for name in named
        if any((top / f"{name.replace('.', '/')}.py").is_file() for top in tops if name)
    }


def is_in_its_folder(test: Path, package: str) -> bool:
    """A test lies with the module that it is named after, the command that it runs, or a module
    that it imports; the top folder has only tests of its own."""
    if (
        HOME
        / MIRRORED[package.split(".")[0]]
        / Path(*package.split(".")[1:])
        / test.name.removeprefix("test_")
    ).is_file():
        return True
    modules = imported_modules(test)
    leaf = package.rpartition(".")[2]
    if "unhang.cli" in modules and (
        leaf == "commands" or [*(HOME / "tools" / "unhang").glob(f"*/commands/{leaf}.py")]
    ):
        return True
    folders = {name.rpartition(".")[0] for name in modules}
    too_high = "." not in package and any(folder.startswith(f"{package}.") for folder in folders)
    return bool(DOORS.get(package, set()) & modules) or (package in folders and not too_high)


@pytest.mark.parametrize("top", ["unhang", "unhang_node"])
def test_a_unit_lies_in_the_folder_of_the_modules_that_it_tests(top):
    units = HOME / "tests" / "unit"
    tests = {
        path: ".".join(path.parent.relative_to(units).parts)
        for path in (units / top).rglob("test_*.py")
    }
    assert len(tests) > 30
    assert [
        str(path.relative_to(units))
        for path, package in tests.items()
        if not is_in_its_folder(path, package)
    ] == []


def test_nothing_was_added_in_a_version_that_is_not_out():
    version = re.search(
        r'VERSION = "([0-9.]+)"',
        (HOME / "module_utils" / "unhang_node" / "base" / "version.py").read_text(),
    ).group(1)
    texts = {
        path: path.read_text()
        for folder in ("library", "plugins")
        for path in (HOME / folder).rglob("*.py")
    }
    added = {
        (path.name, one)
        for path, text in texts.items()
        for one in re.findall(r"version_added: [\"']?([0-9.]+)", text)
    }
    assert added
    assert [
        name for name, one in added if [*map(int, one.split("."))] > [*map(int, version.split("."))]
    ] == []
