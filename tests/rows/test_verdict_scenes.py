"""The recorded jobs of make bench-verdicts are whole, small and nameless, and its counting counts
what it says."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
ARCHIVES = sorted((TESTS / "fixtures" / "verdicts").glob("*.tar.xz"))
OF_A_MACHINE = re.compile(
    rb"/root/|/tmp/|/opt/torch|GPU-[0-9a-f]{8}|(?<![\d.])(?!127\.0\.0\.1)\d+\.\d+\.\d+\.\d+<"
)
HUNG = {"healthy": False, "kind": "never", "faulted": [5], "may_wait_for": []}
HEALTHY = {"healthy": True, "kind": "healthy-saving", "faulted": [], "may_wait_for": [0]}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"verdict_{name}", TESTS / "bench" / "verdicts" / f"{name}.py"
    )
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # its dataclasses look there
    spec.loader.exec_module(loaded)
    return loaded


score, scenes, answers = module("score"), module("scenes"), module("answers")


def document(waited=None, where=(), says="", certainty="likely", behind=(), cause="some_cause"):
    """Of the form of unhang/diagnosis/1, as far as it is read."""
    causes = [{"cause": cause, "certainty": certainty, "severity": "error", "where": list(where),
               "evidence": [{"says": says}]}] if where or says else []  # fmt: skip
    groups = {"groups": [{"behind": list(behind)}]}
    ranks = {"not_arrived": [], "silent": []}
    row = {"waited_for": waited} if waited else {}
    return {**row, "causes": causes, "facts": {"ranks": ranks, "flight_recorder": groups}}


def waited(*ranks: int, certainty: str = "likely") -> dict[str, object]:
    named = [{"rank": rank} for rank in ranks]
    return {"named": named, "roots": {"count": len(ranks)}, "certainty": certainty, "waits": []}


def test_each_scene_is_recorded_with_its_truth():
    known = {scene.name: scene for scene in scenes.all_scenes(8)}
    assert {path.name.removesuffix(".tar.xz") for path in ARCHIVES} == set(known)
    assert sum(scene.faulted is not None for scene in known.values()) >= 24
    assert sum(scene.faulted is None for scene in known.values()) == 12
    for path in ARCHIVES:
        scene = known[path.name.removesuffix(".tar.xz")]
        with tarfile.open(path) as archive:
            told = json.load(archive.extractfile("truth.json"))
        assert {key: told[key] for key in scenes.truth(scene)} == scenes.truth(scene)
        assert (told["backend"], told["world"]) == ("nccl", 8)


def test_a_fault_has_every_kind_of_evidence_and_a_watchdog_that_fired():
    for path in ARCHIVES:
        if "healthy" in path.name:
            continue
        with tarfile.open(path) as archive:
            names = archive.getnames()
            log = archive.extractfile("log.txt").read()
        assert {"ras.txt", "ras.json"} <= set(names), path.name
        assert sum(name.startswith("dumps/") for name in names) >= 5, path.name
        assert sum(name.endswith((".txt", ".json")) and "stacks" in name for name in names) >= 14
        assert b"Watchdog caught collective operation timeout" in log, path.name


def test_the_set_is_small_and_names_no_machine():
    assert sum(path.stat().st_size for path in ARCHIVES) < 4 << 20
    for path in ARCHIVES:
        assert path.stat().st_size < 60 << 10, path.name
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member).read()
                assert not OF_A_MACHINE.search(content), (path.name, member.name)


@pytest.mark.parametrize(
    ("told", "outcome", "wrong"),
    [
        (document(waited(5)), "right", False),
        (document(waited(5, 2)), "right", False),
        (document(waited(5, 2, 3)), "other", False),
        (document(waited(2), where=["rank 5"]), "other", False),
        (document(waited(2, certainty="sure")), "other", True),
        (document(waited(5, certainty="sure")), "right", False),
        (document(where=["rank 5"]), "right", False),
        (document(says="all differ: ranks 0-2, 5", certainty="sure"), "other", False),
        (document(says="all differ: ranks 0-2", certainty="sure"), "other", True),
        (document(where=["rank 5"], certainty="sure", cause=score.DESYNC), "right", True),
        (document(where=["process 886"]), "right", False),
        (document(where=["process 887"]), "silent", False),
        (document(behind=[5]), "right", False),
        (document(), "silent", False),
    ],
)
def test_a_fault_is_counted_by_whom_is_named_first(told, outcome, wrong):
    answer = answers.answer_of(told, {"886": 5})
    assert score.outcome_of(answer, HUNG) == outcome
    assert score.is_sure_and_wrong(answer, HUNG) == wrong


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (document(), "right"),
        (document(waited(0)), "right"),
        (document(waited(0, certainty="sure")), "accused"),
        (document(waited(1)), "accused"),
        (document(says="it failed"), "accused"),
    ],
)
def test_a_healthy_job_may_be_said_to_wait_for_who_saves_and_nothing_else(told, outcome):
    assert score.outcome_of(answers.answer_of(told), HEALTHY) == outcome


def test_no_log_answer_of_ras_or_stack_of_a_healthy_job_accuses_it():
    names = {path.name.removesuffix(".tar.xz") for path in ARCHIVES if "healthy" in path.name}
    asked = 0
    for folder in score.scenes_in(score.SCENES, names):
        truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        for evidence in ("log", "ras", "ras-json", "stacks", "stacks-json"):
            if files := score.files_of(folder, evidence):
                answer = answers.ask_unhang(files, truth["pids"])
                assert score.outcome_of(answer, truth) == "right", (folder.name, evidence)
                asked += 1
    assert asked == 12 + 4 * 8


def test_of_torchfrtrace_the_first_finding_counts_before_files_that_are_missing():
    lines = ["Missing dump files from ranks {6}", "missing ranks: {9}", "Culprit rank 3; x"]
    assert answers.torch_answer(lines).named == (9,)
    assert answers.torch_answer(lines[:1]).named == (6,)
    assert answers.torch_answer(["error msg: Culprit rank 7; a, Culprit rank 5; b"]).named == (7, 5)
