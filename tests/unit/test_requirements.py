"""The exact versions of requirements*.txt install with every Python that the set-up takes."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PROJECT = Path(__file__).resolve().parents[2]
OLDEST = ".".join(re.search(r"sys\.version_info < \((\d+), (\d+)\)", (PROJECT / "tools" / "setup" / "venv.sh").read_text()).groups()) + ".0"


def pins(name):
    """The requirements of a file that its own Python installs, without what it includes."""
    lines = [line.partition("#")[0].strip() for line in (PROJECT / name).read_text().splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return [one for one in found if one.marker is None or one.marker.evaluate()]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_each_pin_installs_with_the_oldest_python_that_the_set_up_takes(name):
    asked = {one.name: metadata(one.name)["Requires-Python"] for one in pins(name)}
    assert len(asked) > 10
    assert OLDEST == "3.11.0"
    too_new = {project: versions for project, versions in asked.items() if versions and OLDEST not in SpecifierSet(versions)}
    assert too_new == {}, f"Debian 12 has Python 3.11.2; take a release that runs with {OLDEST}"
