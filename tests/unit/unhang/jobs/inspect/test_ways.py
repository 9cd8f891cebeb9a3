"""What Slurm's own commands print is shown without secrets: srun repeats arguments and variables of a site."""

from __future__ import annotations

import pytest

from unhang.core.errors import UserError
from unhang.jobs.inspect import ways
from unhang.jobs.inspect.ways import end_of, nodes_of, slurm_documents
from unhang.jobs.watch import of_slurm
from unhang.jobs.watch.of_slurm import cancel, slurm_samples

SECRET = "hf_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
SAID = f"slurmstepd: error: execve(): HF_TOKEN={SECRET}: no such file"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """name, lines of a shell: a command on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for module in (ways, of_slurm):
        monkeypatch.setattr(module, "program_bytes", lambda: b"")

    def make(name, *lines):
        (tmp_path / name).write_text("\n".join(("#!/bin/sh", *lines, "")))
        (tmp_path / name).chmod(0o755)

    make("squeue", "echo 1")
    make("srun", f"echo '{SAID}' >&2; exit 1")
    make("scancel", f"echo '{SAID}' >&2; exit 1")
    return make


def refused(action):
    with pytest.raises(UserError) as problem:
        action()
    return str(problem.value)


@pytest.mark.parametrize("padding", [0, 220, 260, 290])
@pytest.mark.parametrize("action", [lambda: slurm_documents("7", []), lambda: list(slurm_samples("7", 1.0)), lambda: cancel("7")])
def test_no_part_of_a_secret_is_shown_wherever_it_is_cut(commands, action, padding):
    for name in ("srun", "scancel"):
        commands(name, f"echo '{SAID}{' x' * (padding // 2)}' >&2; exit 1")
    text = refused(action)
    assert not [part for part in (SECRET[at : at + 8] for at in range(len(SECRET) - 8)) if part in text]
    assert "no such file" in text or padding


def test_what_squeue_prints_is_masked_too(commands):
    commands("squeue", f"echo '{SAID}' >&2; exit 1")
    text = refused(lambda: nodes_of("7"))
    assert "expected a job that runs, found slurmstepd: error" in text
    assert SECRET[:12] not in text


def test_the_last_words_of_a_command_that_printed_without_end_are_shown():
    assert end_of(b"first\n" * 100_000 + b"last words\n", 10) == "last words"
