"""The hook for pre-commit: its command is one of ours, it takes the files that lint reads, and
passes over all others."""

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


def test_there_is_one_hook():
    assert set(HOOKS) == {"unhang-lint"}
    assert all({"name", "entry", "language", "files"} <= set(one) for one in HOOKS.values())


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


def test_entry_with_the_names_of_changed_files_behind_it_reports_and_writes_nothing(
    tmp_path, capsys
):
    program, *arguments = HOOKS["unhang-lint"]["entry"].split()
    script = tmp_path / "a.sh"
    script.write_text(before := "export nccl_debug=INFO\n")
    assert cli.main([*arguments, str(script), str(script)]) == 1
    assert program == "unhang" and script.read_text() == before
    assert "nccl_debug" in capsys.readouterr().out
