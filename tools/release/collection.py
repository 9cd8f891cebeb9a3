"""Builds dist/unhang-ops-VERSION.tar.gz, the Ansible collection unhang.ops, from this tree.

    python -P tools/release/collection.py [TARGET]

TARGET: the folder of the file (default: dist). The folders of the checkout are copied to the
places of a collection; tools/release/qualified_names.py changes the names in them.
ansible-galaxy packs the result.

The collection has the controller's code (tools/unhang) and uses it before an installed one: the
roles' filters import 3 to 26 of its modules, and a Python package as a requirement would bring
twelve packages and a second version in one process. The tree keeps short names, so that a checkout
and an AWX project run their playbooks without a built collection.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from release.qualified_names import NAMESPACE, Names, qualified
from unhang import __version__

PROJECT = Path(__file__).resolve().parents[2]
# {folder or file of the checkout: its place in the collection}. The plugins find the controller's
# package in tools/, as in a checkout.
PARTS = {
    "library": "plugins/modules",
    "module_utils/unhang_node": "plugins/module_utils/unhang_node",
    "plugins/action": "plugins/action",
    "plugins/callback": "plugins/callback",
    "plugins/doc_fragments": "plugins/doc_fragments",
    "plugins/filter": "plugins/filter",
    "plugins/inventory": "plugins/inventory",
    "roles": "roles",
    "playbooks": "playbooks",
    "tools/unhang": "tools/unhang",
    "tools/collector": "tools/collector",
    "LICENSE": "LICENSE",
    "CHANGELOG.md": "CHANGELOG.md",
}
PACK = ("-P", "-m", "ansible", "galaxy", "collection", "build")
PAGE = "docs/collection.md"  # becomes README.md
# What one line each gives ansible-builder and pip: the packages of an audit.
REQUIREMENTS = "requirements.txt"


def build_collection(target: Path) -> Path:
    """Writes the archive into the folder `target`. Raises SystemExit where it cannot."""
    with tempfile.TemporaryDirectory() as stage:  # one each, as several may build at once
        stage_collection(Path(stage))
        done = subprocess.run(
            [sys.executable, *PACK, stage, "--force", "--output-path", target],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the collection was not built: {done.stderr.strip()}")
    return target / f"{NAMESPACE.replace('.', '-')}-{__version__}.tar.gz"


def stage_collection(stage: Path) -> None:
    """Writes the files of the collection into an empty folder."""
    names = Names.of(PROJECT)
    for source, place in PARTS.items():
        _copy(PROJECT / source, stage / place)
    _link(stage / "playbooks" / "callback_plugins", "../plugins/callback")
    # nvidia-ml-py, whose file begins with its licence, travels to the nodes with the modules
    shutil.copyfile(_pynvml(), stage / "plugins" / "module_utils" / "pynvml.py")
    for path in [*stage.rglob("*.py"), *stage.rglob("*.yml")]:
        if not path.is_symlink():
            place = path.relative_to(stage).as_posix()
            path.write_text(qualified(place, path.read_text("utf-8"), names), "utf-8")
    for place, text in generated(PROJECT).items():
        (stage / place).parent.mkdir(parents=True, exist_ok=True)
        (stage / place).write_text(text, "utf-8")


def generated(project: Path) -> Mapping[str, str]:
    """{place: text} of the files that only a collection has, and of the pages."""
    settings = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*settings["dependencies"], *settings["optional-dependencies"]["fleet"]]
    core = next(one for one in needs if one.startswith("ansible-core"))
    packages = [one for one in needs if one != core]
    changelog = releases((project / "CHANGELOG.md").read_text("utf-8"))
    pages = {
        f"docs/{path.name}": path.read_text("utf-8") for path in (project / "docs").glob("*.md")
    }
    return {
        **pages,
        "README.md": at_the_top((project / PAGE).read_text("utf-8")),
        "galaxy.yml": yaml.safe_dump(description_of(settings), sort_keys=False),
        REQUIREMENTS: "".join(f"{one}\n" for one in packages),
        "meta/execution-environment.yml": yaml.safe_dump(
            {"version": 1, "dependencies": {"python": REQUIREMENTS}}
        ),
        "meta/runtime.yml": yaml.safe_dump({"requires_ansible": _three_numbers(core)}),
        "changelogs/changelog.yaml": yaml.safe_dump({"ancestor": None, "releases": changelog}),
    }


def description_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """galaxy.yml. settings: the table [project] of pyproject.toml."""
    namespace, name = NAMESPACE.split(".")
    return {
        "namespace": namespace,
        "name": name,
        "version": __version__,
        "readme": "README.md",
        "authors": ["the unhang authors"],
        "description": settings["description"],
        "license": [settings["license"], "BSD-3-Clause"],  # the second: nvidia-ml-py
        "tags": ["linux", "gpu", "nvidia", "nccl", "slurm", "kubernetes"],
        "dependencies": {},
    }


def releases(changelog: str) -> dict[str, Any]:
    """The releases of a CHANGELOG.md, as changelogs/changelog.yaml has them."""
    found: dict[str, Any] = {}
    for version, date, text in re.findall(
        r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    ):
        summary, *points = re.split(r"^- ", text, flags=re.MULTILINE)
        changes = {"minor_changes": [" ".join(one.split()) for one in points]}
        if summary.strip():
            changes |= {"release_summary": " ".join(summary.split())}  # type: ignore[dict-item]
        found[version] = {"release_date": date, "changes": changes}
    return found


def at_the_top(page: str) -> str:
    """A page of docs/ with its links as they are from the folder above it."""
    moved = re.sub(r"\]\((?!\.\./|[a-z]+:|#)", "](docs/", page)
    return moved.replace("](../", "](")


def _three_numbers(requirement: str) -> str:
    """ansible-core's range with three numbers in each bound, as meta/runtime.yml has to."""
    bounds = requirement.removeprefix("ansible-core").split(",")
    return ",".join(f"{one}.0" if one.count(".") == 1 else one for one in bounds)


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "callback_plugins")
        shutil.copytree(source, place, ignore=ignored)
    else:
        shutil.copyfile(source, place)


def _link(path: Path, target: str) -> None:
    path.symlink_to(target)


def _pynvml() -> str:
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise SystemExit(f"nvidia-ml-py is not installed for {sys.executable}: run make setup")
    return spec.origin


def main(argv: Sequence[str]) -> int:
    """0."""
    target = Path(argv[0]) if argv else PROJECT / "dist"
    target.mkdir(parents=True, exist_ok=True)
    print(build_collection(target))  # noqa: T201 -- a script
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
