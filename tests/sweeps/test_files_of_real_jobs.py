"""Logs that were made on GPUs, with the script and the command that made them: these files change
no right answer, and raise no alarm."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose
from test_real_failures import ANSWERED, HEALTHY, RIGHT, SCENES, TESTS, yaml

DOCUMENTS = {
    folder: yaml.safe_load((TESTS / "bench" / name).read_text(encoding="utf-8"))
    for folder, name in SCENES.items()
}

# These simulate two nodes on one machine, with localhost as the master: a real job of two nodes
# would fail with it, and the diagnosis reports that.
PLAYED = {"missing-node", "accelerate-two-machines-one-comes", "rdzv-min-nodes-not-there"}


def loud(path, folder):
    """(first cause above info or the outcome's word, the loud causes) of a log beside its script
    and its command."""
    every = DOCUMENTS[path.parent.name]
    scene = every["scenes"][path.stem]
    settings = "".join(f"export {name}='{value}'\n" for name, value in scene.get("env", {}).items())
    (folder / "train.py").write_text(every["head"] + scene["body"])
    (folder / "run.sh").write_text(
        f"#!/bin/bash\n{settings}{scene.get('launch', every['launch']).replace('{f}', 'train.py')}\n"
    )
    found = diagnose([str(path), str(folder / "train.py"), str(folder / "run.sh")])
    assert [one["kind"] for one in found["inputs"]] == ["log", "job", "job"]
    causes = [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]
    return causes[0] if causes else found["outcome"]["word"], causes


@pytest.mark.parametrize("path", ANSWERED, ids=lambda path: path.stem)
def test_right_answer_stays_right_beside_the_files_of_the_job(path, tmp_path):
    right = ["dns_hostname"] if path.stem in PLAYED else RIGHT[path]
    assert loud(path, tmp_path)[0] in right


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_healthy_job_stays_silent_beside_its_files(path, tmp_path):
    assert loud(path, tmp_path)[1] == []
