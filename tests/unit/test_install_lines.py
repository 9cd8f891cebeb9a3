"""No index has unhang, so a line that installs it names a path or an address: in every file of the
project, and where a command prints it. tests/plays/test_base_install.py types what is printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from unhang.commands import EXTRAS
from unhang.core.project import install_line

HOME = Path(__file__).resolve().parents[2]
# `unhang`, `unhang.ops` or `unhang==1` as a word of an installer, and `unhang[fleet]` anywhere
BARE = re.compile(
    r"\b(?:pip[3x]?|uv tool|uv pip|uvx|ansible-galaxy|podman|docker)\b[^`;|&#,)]*?"
    r"""[\s'"](?<!runpip )unhang(?:\.ops)?(?=$|[\s'"`=<>~!,;)])(?! @ )"""
    r"|(?<!/)\bunhang\[[\w,{}]+\](?! @ )"
)


def bare_names(text: str) -> list[str]:
    """The lines of a text that install what an index has under a name of ours."""
    return [line for line in text.replace("\\\n", " ").splitlines() if BARE.search(line)]


@pytest.mark.parametrize(
    "line",
    [
        "advice = 'install unhang again: pip install --force-reinstall unhang'",
        "or `pipx install 'unhang[fleet]'` in an environment",
        "it comes with: pip install 'unhang[mcp]'",
        "- `pip install unhang` has inspect",
        "the Python package `unhang[fleet]`, whose commands start them",
        "RUN /opt/unhang/bin/pip install --quiet \\\n    unhang==0.1.0",
        "uv tool install unhang",
        "$ uvx unhang inspect",
        "ansible-galaxy collection install unhang.ops",
        "$ podman run --rm -v x:/y unhang audit",
        "podman build --build-arg BASE=x -t unhang .",
    ],
)
def test_a_name_of_an_index_is_seen(line):
    assert len(bare_names(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "$ pipx install .                       # or: uv tool install . ; unhang inspect",
        "pip install 'unhang[fleet] @ git+https://git.example/unhang@1a2b'",
        "/opt/unhang/bin/pip install --no-deps /opt/unhang-wheel/*.whl && ln -s /opt/unhang x",
        "pipx runpip unhang install '/srv/unhang[fleet]'",
        "| `pip install .`, `unhang inspect` |",
        "ansible-galaxy collection install dist/unhang-ops-0.1.0.tar.gz",
        "podman run --rm localhost/unhang audit",
    ],
)
def test_a_path_or_an_address_is_none(line):
    assert bare_names(line) == []


def test_no_file_of_the_project_names_one():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = {
        name: lines
        for name in filter(None, listed)
        if not name.startswith("tests/fixtures/")
        and (path := HOME / name) != Path(__file__)
        and path.is_file()
        and (lines := bare_names(path.read_bytes().decode("utf-8", "replace")))
    }
    assert found == {}


def test_extras_are_those_of_the_package():
    """A package that a plain installation brings is no reason for an extra."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.match(r"[\w-]+", one)[0].replace("-", "_") for one in project["dependencies"]}
    assert not needed & set(EXTRAS) and "jinja2" in needed
    for package, extra in EXTRAS.items():
        brought = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        assert package in brought or extra == "mcp"  # its SDK brings anyio


def printed(site: Path, extra: str) -> str:
    """The line that a copy of unhang in that folder of packages prints."""
    program = f"from unhang.core.project import install_line; print(install_line({extra!r}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {program}"],
        cwd=site, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def site(tmp_path):
    """A folder of packages with what prints the line, as a wheel puts it there."""
    folder = tmp_path / "lib" / "python3" / "site-packages"
    for name in ("__init__.py", "core/project.py", "core/errors.py"):
        target = folder / "unhang" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOME / "tools" / "unhang" / name, target)
    return folder


PIP = [sys.executable, "-P", "-m", "pip", "install"]


def origin(site: Path, document: object) -> None:
    metadata = site / "unhang-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unhang\nVersion: 0.1.0\n")
    (metadata / "direct_url.json").write_text(json.dumps(document))


def test_the_path_that_was_installed_is_printed_with_the_extra(site, tmp_path):
    wheel = tmp_path / "a b" / "unhang-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    origin(site, {"url": wheel.as_uri(), "archive_info": {}})
    assert shlex.split(printed(site, "fleet")) == [*PIP, f"{wheel}[fleet]"]
    assert shlex.split(printed(site, "")) == [*PIP, "--force-reinstall", str(wheel)]


def test_the_commit_that_was_installed_is_printed_with_the_extra(site):
    url = "https://git.example/team/unhang.git"
    origin(site, {"url": url, "vcs_info": {"vcs": "git", "commit_id": "1a2b3c"}})
    assert shlex.split(printed(site, "mcp")) == [*PIP, f"unhang[mcp] @ git+{url}@1a2b3c"]


def test_the_address_of_an_archive_is_printed_with_the_extra(site):
    url = "https://files.example/unhang-0.1.0-py3-none-any.whl"
    origin(site, {"url": url, "archive_info": {}})
    assert shlex.split(printed(site, "mcp")) == [*PIP, f"unhang[mcp] @ {url}"]


@pytest.mark.parametrize("document", [None, {"url": "file:///gone/unhang", "dir_info": {}}])
def test_without_a_known_origin_the_line_is_for_a_checkout(site, document):
    if document is not None:
        origin(site, document)
    place, line = printed(site, "fleet").split(": ")
    assert (place, shlex.split(line)) == ("in a checkout of unhang", [*PIP, ".[fleet]"])


def test_a_checkout_prints_its_own_path():
    assert shlex.split(install_line("mcp")) == [*PIP, "--editable", f"{HOME}[mcp]"]
