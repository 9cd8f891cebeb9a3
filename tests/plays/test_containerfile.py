"""The steps of the two Containerfiles, run in a plain Debian 12 root: the first's result audits the
root itself, the second's has what the scripts of the pods start."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from container_steps import plain_root, play, steps_of
from four_nodes import CACHE
from installed_wheel import PROJECT, build

TRIED = (
    "unhang --version && unhang audit -q --fail-on critical && test -f"
    " runs/latest/nodes/localhost.json && id -un"
)


@pytest.fixture
def tree(tmp_path):
    """A folder with the wheel and what it requires."""
    (tmp_path / "dist").mkdir()
    build("wheel", PROJECT, tmp_path / "dist")
    shutil.copy(PROJECT / "requirements.txt", tmp_path)
    return tmp_path


def printed(containerfile, tree, tried):
    done = play(containerfile, tree, plain_root(CACHE.parent / "container"), tried)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_its_steps_give_an_unhang_that_audits_as_the_images_user(tree):
    assert ("ENTRYPOINT", '["unhang"]') in steps_of(PROJECT / "Containerfile")
    output = printed(PROJECT / "Containerfile", tree, TRIED).splitlines()
    assert output[-1] == "unhang"
    assert any(line.startswith("unhang 0.") for line in output)


IN_PODS = (
    "command -v cat chroot cp cut date env find ln mv rm sleep stat python3 >/dev/null"
    " && /opt/unhang/unhang-collect.pyz >/tmp/node.json"
    " && { /opt/unhang/unhang-quick.pyz --facts /tmp/node.json --as kubernetes >&2 || [ $? = 1 ]; }"
    " && cat /tmp/node.json"
)


def test_the_image_of_the_pods_has_what_their_scripts_start(tree):
    programs = {"build.py": "collect", "quick.py": "quick", "job.py": "inspect"}
    for script, name in programs.items():
        target = tree / "dist" / f"unhang-{name}.pyz"
        made = [sys.executable, PROJECT / "tools" / "collector" / script, target]
        subprocess.run(made, check=True, capture_output=True)
    containerfile = PROJECT / "deploy" / "kubernetes" / "Containerfile"
    said = printed(containerfile, tree, IN_PODS)
    document = said[said.index('{"schema"') :]
    assert json.loads(document)["schema"] == "unhang/node-facts/1"
