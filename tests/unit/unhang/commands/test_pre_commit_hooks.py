"""The hooks for pre-commit: their command is one of ours, they take the files that lint reads, and
pass over all others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from unhang import cli

HOOKS = {
    one["id"]: one
    for one in yaml.safe_load(
        (Path(__file__).parents[4] / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    )
}


def test_there_is_a_hook_that_tells_and_one_that_writes():
    assert set(HOOKS) == {"unhang-lint", "unhang-lint-fix"}
    assert all({"name", "entry", "language", "files"} <= set(one) for one in HOOKS.values())
    assert HOOKS["unhang-lint-fix"]["require_serial"]  # two processes never write one file


@pytest.mark.parametrize(
    "name",
    [
        "train.sh",
        "jobs/a.sbatch",
        "k8s/pod.yml",
        "Dockerfile",
        "docker/Dockerfile.gpu",
        "etc/nccl.conf",
        "x.service",
        "Containerfile",
    ],
)
def test_hook_takes_what_lint_reads(name):
    assert all(re.search(one["files"], name) for one in HOOKS.values())


@pytest.mark.parametrize("name", ["train.py", "README.md", "notes/Dockerfile-s/image.png", "a.shx"])
def test_hook_passes_over_what_is_none_of_its_files(name):
    assert not any(re.search(one["files"], name) for one in HOOKS.values())


@pytest.mark.parametrize(
    ("hook", "after"),
    [("unhang-lint", "export nccl_debug=INFO\n"), ("unhang-lint-fix", "export NCCL_DEBUG=INFO\n")],
)
def test_entry_with_the_names_of_changed_files_behind_it_does_what_the_hook_says(
    hook, after, tmp_path, capsys
):
    program, *arguments = HOOKS[hook]["entry"].split()
    script = tmp_path / "a.sh"
    script.write_text("export nccl_debug=INFO\n")
    code = cli.main([*arguments, str(script), str(script)])
    assert (
        program == "unhang" and script.read_text() == after and code == int(hook == "unhang-lint")
    )
    assert "nccl_debug" in capsys.readouterr().out
