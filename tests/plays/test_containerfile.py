"""The Containerfile's steps, run in a plain Debian 12 root: their result audits the root itself."""

from __future__ import annotations

import shutil

from container_steps import plain_root, play, steps_of
from four_nodes import CACHE
from installed_wheel import PROJECT, build

TRIED = (
    "unhang --version && unhang audit -o name --fail-on critical && test -f"
    " runs/latest/nodes/localhost.json && id -un"
)


def test_its_steps_give_an_unhang_that_audits_as_the_images_user(tmp_path):
    (tmp_path / "dist").mkdir()
    build("wheel", PROJECT, tmp_path / "dist")
    shutil.copy(PROJECT / "requirements.txt", tmp_path)
    assert ("ENTRYPOINT", '["unhang"]') in steps_of(PROJECT / "Containerfile")
    done = play(PROJECT / "Containerfile", tmp_path, plain_root(CACHE.parent / "container"), TRIED)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    output = done.stdout.splitlines()
    assert output[-1] == "unhang"
    assert any(line.startswith("unhang 0.") for line in output)
