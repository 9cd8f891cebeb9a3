"""The tree is as docs/architecture.md describes it, tests are in the folders of the modules that they test, and generated files are marked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_layers import CONTROLLER, NODE, all_imports

HOME = Path(__file__).resolve().parents[2]
PAGE = (HOME / "docs" / "architecture.md").read_text(encoding="utf-8")
HOUSES = ("audit", "base", "jobs", "prove", "repair", "run", "show")
PACKAGES = ("tools/unhang", *(f"tools/unhang/{house}" for house in HOUSES), "module_utils/unhang_node", "module_utils/unhang_node/change")
MIRRORED = {
    "unhang": "tools/unhang",
    "unhang_node": "module_utils/unhang_node",
    "bench": "tests/bench",
    "collector": "tools/collector",
    "payload": "tools/payload",
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


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_package_stands_in_the_floor_plan(folder):
    named = set(floor_plan())
    assert [name for name in packages(folder) if f"{folder}/{name}" not in named] == []


@pytest.mark.parametrize(("label", "order", "folder"), [("tools/unhang", CONTROLLER, "tools/unhang"), ("unhang_node", NODE, "module_utils/unhang_node")])
def test_the_page_has_the_order_that_the_layer_test_holds(label, order, folder):
    heights = {name.removeprefix("change."): height for height, line in enumerate(order.split("|")) for name in line.split()}
    found = re.search(rf"^    {label}  +(.*(?:\n {{20,}}.*)*)", PAGE.partition("Inside each of the two")[2], re.MULTILINE)
    named = [name for name in re.findall(r"\w+", found.group(1)) if name in packages(folder)]
    assert set(named) == set(packages(folder)) - {"change"} | ({"change"} & set(named))
    assert [heights[name] for name in named if name in heights] == sorted(heights[name] for name in named if name in heights)


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_says_what_comes_in_what_goes_out_what_to_read_first_and_its_tests(house):
    folder = HOME / "tools" / "unhang" / house
    page = (folder / "README.md").read_text(encoding="utf-8")
    tests = re.search(r"^\| tests \| `make test-unit TEST_ARGS=(\S+)` \(\d+ s\) \|$", page, re.MULTILINE)
    first = re.findall(r"^- \[(\S+)\]\(\1\): \S", page, re.MULTILINE)
    assert re.search(r"^\| in \| \S.*\n\| out \| \S", page, re.MULTILINE)
    assert (HOME / tests.group(1)).exists()
    assert first
    assert [name for name in first if not (folder / name).is_file()] == []
    assert len(page.split()) < 200


def test_units_lie_in_the_folders_of_what_they_test():
    folders = {path.parent.relative_to(HOME / "tests" / "unit") for path in (HOME / "tests" / "unit").rglob("test_*.py")} - {Path()}
    places = {folder: HOME / MIRRORED.get(folder.parts[0], folder.parts[0]) / Path(*folder.parts[1:]) for folder in folders}
    assert [str(folder) for folder, place in places.items() if not place.is_dir()] == []


# What some tests import instead: the judge loads the catalogue's data, the command line calls the commands, support reads sections of recorded nodes.
DOORS = {
    "unhang.catalogue": {"unhang.rules.compiled_catalogue", "unhang.rules.examples", "unhang.rules.node_rules", "unhang.schemas.shapes"},
    "unhang.commands": {"unhang.cli"},
    "unhang_node.sections": {"recorded_roots"},
}


def imported_modules(test: Path) -> set[str]:
    """Dotted names of the modules that a test imports, of the project and of the tests' support."""
    tops = [HOME / "tools", HOME / "module_utils", HOME / "tests" / "support"]
    imported = all_imports("test", ast.parse(test.read_text(encoding="utf-8")), "")
    named = imported | {name.rpartition(".")[0] for name in imported}
    return {name for name in named if any((top / f"{name.replace('.', '/')}.py").is_file() for top in tops if name)}


def is_in_its_folder(test: Path, package: str) -> bool:
    """A test lies with the module that it is named after, the command that it runs, or a module that it imports; the top folder has only tests of its own."""
    if (HOME / MIRRORED[package.split(".")[0]] / Path(*package.split(".")[1:]) / test.name.removeprefix("test_")).is_file():
        return True
    modules = imported_modules(test)
    command = HOME / "tools" / "unhang" / "commands" / f"{package.rpartition('.')[2]}.py"
    if command.is_file() and "unhang.cli" in modules:
        return True
    folders = {name.rpartition(".")[0] for name in modules}
    too_high = "." not in package and any(folder.startswith(f"{package}.") for folder in folders)
    return bool(DOORS.get(package, set()) & modules) or (package in folders and not too_high)


@pytest.mark.parametrize("top", ["unhang", "unhang_node"])
def test_a_unit_lies_in_the_folder_of_the_modules_that_it_tests(top):
    units = HOME / "tests" / "unit"
    tests = {path: ".".join(path.parent.relative_to(units).parts) for path in (units / top).rglob("test_*.py")}
    assert len(tests) > 30
    assert [str(path.relative_to(units)) for path, package in tests.items() if not is_in_its_folder(path, package)] == []


def test_every_generated_file_is_marked():
    marked = {line.split()[0] for line in (HOME / ".gitattributes").read_text().splitlines() if "linguist-generated" in line}
    assert {"roles/smoke_test/files/unhang_smoke.py", "roles/smoke_test/files/unhang_burn_in.py"} <= marked
    assert [path for path in marked if not (HOME / path).is_file()] == []


def test_nothing_was_added_in_a_version_that_is_not_out():
    version = re.search(r'VERSION = "([0-9.]+)"', (HOME / "module_utils" / "unhang_node" / "version.py").read_text()).group(1)
    texts = {path: path.read_text() for folder in ("library", "plugins") for path in (HOME / folder).rglob("*.py")}
    added = {(path.name, one) for path, text in texts.items() for one in re.findall(r"version_added: [\"']?([0-9.]+)", text)}
    assert added
    assert [name for name, one in added if [*map(int, one.split("."))] > [*map(int, version.split("."))]] == []


def test_no_two_test_modules_of_a_run_have_the_same_name():
    """Pytest collects only the first of them."""
    for folder in (path for path in (HOME / "tests").iterdir() if path.is_dir()):
        names = [path.name for path in folder.rglob("test_*.py")]
        assert [name for name in set(names) if names.count(name) > 1] == [], folder
