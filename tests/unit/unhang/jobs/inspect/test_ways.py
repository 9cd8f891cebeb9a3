"""What Slurm's own commands print is shown without secrets: srun repeats arguments and variables of
a site."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest
from inspected import EVIDENCE, inspection_of, render_details, write_bundle

from unhang.core.errors import UserError
from unhang.jobs.commands.watch import _of_slurm
from unhang.jobs.commands.watch_one import FOR_SLOW
from unhang.jobs.inspect import ways
from unhang.jobs.inspect.bundle import read_documents
from unhang.jobs.inspect.evidence import host_of
from unhang.jobs.inspect.ways import end_of, nodes_of, slurm_documents
from unhang.jobs.watch import of_slurm
from unhang.jobs.watch.of_slurm import cancel, slurm_samples
from unhang_node.job.look_options import add_look_options, chosen_look_options

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

    make("squeue", "echo '7|7|RUNNING|0|1|'")
    make("srun", f"echo '{SAID}' >&2; exit 1")
    make("scancel", f"echo '{SAID}' >&2; exit 1")
    return make


def refused(action):
    with pytest.raises(UserError) as problem:
        action()
    return str(problem.value)


@pytest.mark.parametrize("padding", [0, 220, 260, 290])
@pytest.mark.parametrize(
    "action",
    [lambda: slurm_documents("7", []), lambda: list(slurm_samples("7", 1.0)), lambda: cancel("7")],
)
def test_no_part_of_a_secret_is_shown_wherever_it_is_cut(commands, action, padding):
    for name in ("srun", "scancel"):
        commands(name, f"echo '{SAID}{' x' * (padding // 2)}' >&2; exit 1")
    text = refused(action)
    assert not [
        part for part in (SECRET[at : at + 8] for at in range(len(SECRET) - 8)) if part in text
    ]
    assert "no such file" in text or padding


@pytest.fixture
def nodes(commands, tmp_path, monkeypatch):
    """answers, one for each node of a job: a Slurm whose srun runs the real loader on each, for a
    program that prints the node's."""
    program = (
        f"import os, pathlib; print((pathlib.Path({str(tmp_path)!r}) /"
        " os.environ['SLURMD_NODENAME']).read_text())"
    )
    monkeypatch.setattr(ways, "program_bytes", program.encode)

    def make(*answers):
        for number, answer in enumerate(answers):
            (tmp_path / f"gpu0{number}").write_text(answer)
        names = " ".join(f"{number}" for number, answer in enumerate(answers) if answer)
        commands("squeue", f"echo '7|7|RUNNING|0|{len(answers)}|'")
        commands(
            "srun",
            "while [ $1 != python3 ]; do shift; done; shift",
            f"cat > {tmp_path}/program",
            f'for n in {names}; do SLURMD_NODENAME=gpu0$n {sys.executable} "$@" <'
            f' {tmp_path}/program | sed "s/^/$n: /"; done',
            "echo 'srun: error: gpu: task failed' >&2",
        )

    return make


def real_look(scene):
    return (EVIDENCE / f"{scene}-RAS-and-stacks.json").read_text()


REFUSED = {
    "no JSON": ('{"schema": ', "gpu01", "JSON"),
    "another schema": (
        '{"schema": "unhang/evidence/9"}',
        "gpu01",
        "is not a document unhang/evidence/1",
    ),
    "a field of another type": (
        None,
        "gpu01",
        "unhang/evidence/1: collector.as_root: this must be",
    ),
    "no document": ("Traceback (most recent call last):", "task1", "JSON"),
    "none": ("", "task1", "srun: error: gpu: task failed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_a_node_whose_answer_is_none_costs_no_other_node(nodes, tmp_path, case):
    answer, name, why = REFUSED[case]
    wrong = json.dumps(
        {
            **(look := json.loads(real_look("healthy"))),
            "collector": {**look["collector"], "as_root": "yes"},
        }
    )
    nodes(real_look("never"), wrong if answer is None else answer)
    documents = slurm_documents("7", [])
    found = inspection_of(documents)
    assert (found["state"], found["suspects"][0]["rank"]) == ("hung", 1)
    assert [(row["host"], bool(row["problem"])) for row in found["hosts"]] == [
        ("gpu00", False),
        (name, True),
    ]
    assert why in found["hosts"][1]["problem"] and f"{name}: no answer: " in render_details(found)
    write_bundle(tmp_path / "b.tar.gz", documents, found)
    assert [host_of(document) for document in read_documents([tmp_path / "b.tar.gz"])] == [
        "gpu00",
        name,
    ]


def test_what_squeue_prints_is_masked_too(commands):
    commands("squeue", f"echo 'error: what led to it\n{SAID}' >&2; exit 1")
    text = refused(lambda: nodes_of("7"))
    assert "does not name one job that Slurm knows: slurmstepd: error" in text
    assert SECRET[:12] not in text


def test_the_program_for_the_nodes_is_there_without_a_build_of_its_own(tmp_path):
    program = tmp_path / "look.pyz"
    program.write_bytes(ways.program_bytes())
    assert b"--slurm-job" in subprocess.check_output([sys.executable, "-I", program, "--help"])


def test_the_last_words_of_a_command_that_printed_without_end_are_shown():
    assert end_of(b"first\n" * 100_000 + b"last words\n", 10) == "last words"


def test_the_watcher_and_a_look_of_any_kind_give_a_step_its_arguments(commands, tmp_path):
    """All ways to a step of Slurm hand over the same options."""
    commands("srun", f'echo "$@" >> {tmp_path}/asked; exit 1')
    job = _of_slurm("7", argparse.Namespace(every=2.0, py_spy="/opt/py-spy"))
    for options in ({}, FOR_SLOW):
        with pytest.raises(UserError):
            job.look(options)
    parser = argparse.ArgumentParser()
    add_look_options(parser)
    chosen = chosen_look_options(parser.parse_args(["--slow", "--gap", "2"]))
    with pytest.raises(UserError):
        slurm_documents("7", ways.arguments_of(chosen))
    watched, for_slow, slow = (tmp_path / "asked").read_text().split("--slurm-job 7")[1:]
    assert "--py-spy=/opt/py-spy" in watched and "--slow" not in watched
    assert "--without stacks" in for_slow and "--slow --py-spy=/opt/py-spy" in for_slow
    assert slow.split()[:2] == ["--slow", "--gap=2.0"]
