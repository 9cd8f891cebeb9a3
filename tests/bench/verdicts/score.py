"""Gives the recorded scenes to `unhang diagnose`, each kind of evidence alone and all together, and
counts whom it names. torchfrtrace reads the same dumps.

    python3 tests/bench/verdicts/score.py [--jobs FOLDER] [--public FOLDER] [--misses]
    [--only NAME,...]

Prints the tables of docs/verdicts.md. --jobs: another round of record.py. --public (or
UNHANG_PUBLIC_DUMPS): a folder of sets of dumps, each with fault_injection.log. Exit code 1 when an
aim is missed. What is right stands in truth.json of each scene, written by the injector (scenes.py)
before any answer was seen:

right       the first rank that is named is the one with the fault, with at most one other
other       another rank comes first
silent      no rank is named
sure        said with certainty and wrong: another rank, or unlike operations where all were alike
first line  how many ranks of the screen's first line are not those with the fault
accused     a healthy job gets a cause above info, or a rank that is waited for; that rank 0 is,
            while it saves, is allowed
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from answers import Answer, ask_torch, ask_unhang, named_at_first, unfolded

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "tests" / "fixtures" / "verdicts"
EVIDENCE = {
    "dumps": ("dumps/*",),
    "log": ("log.txt",),
    "ras": ("ras.txt",),
    "ras-json": ("ras.json",),
    "stacks": ("stacks/*.txt",),
    "stacks-json": ("stacks/*.json",),
    "all": ("dumps/*", "log.txt", "ras.txt", "stacks/*.txt"),
}
TORCH = "torchfrtrace"
UNLIKE = ("operation", "size", "peer", "order")
DESYNC = "rank_desync_app"
COLUMNS = ("evidence", "right", "share", "other rank first", "silent", "sure and wrong",
    "first line: wrong ranks of all", "healthy, accused",
)  # fmt: skip
AIMS = {"alone": 0.9, "all": 0.95}


@dataclass(frozen=True)
class Scored:
    scene: str
    evidence: str
    truth: dict[str, Any]
    outcome: str
    sure_and_wrong: bool
    first_line: tuple[int, ...] = ()

    @property
    def can_show(self) -> bool:
        return self.evidence not in self.truth["cannot_show"]


def outcome_of(answer: Answer, truth: dict[str, Any]) -> str:
    faulted = truth["faulted"]
    if truth["healthy"]:
        harmless = set(answer.named) <= set(truth["may_wait_for"]) and answer.named
        return "accused" if answer.found and not (harmless and not answer.sure) else "right"
    if not answer.named:
        return "silent"
    is_right = answer.named[0] in faulted and len(answer.named) <= max(2, 2 * len(faulted))
    return "right" if is_right else "other"


def is_sure_and_wrong(answer: Answer, truth: dict[str, Any]) -> bool:
    for ranks, cause in answer.sure:
        if truth["healthy"] or (ranks and not set(ranks) & set(truth["faulted"])):
            return True
        if cause == DESYNC and truth["kind"] not in UNLIKE:
            return True
    return False


def files_of(folder: Path, evidence: str) -> list[Path]:
    return [path for pattern in EVIDENCE[evidence] for path in sorted(folder.glob(pattern))]


def score_scene(folder: Path) -> list[Scored]:
    name = folder.name
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    scored = []
    for evidence in EVIDENCE:
        if files := files_of(folder, evidence):
            answer = ask_unhang(files, truth["pids"])
            wrong = is_sure_and_wrong(answer, truth)
            outcome, first = outcome_of(answer, truth), named_at_first(files)
            scored.append(Scored(name, evidence, truth, outcome, wrong, first))
    answer = ask_torch(folder / "dumps")
    return [*scored, Scored(name, TORCH, truth, outcome_of(answer, truth), False)]


def public_truth(folder: Path) -> dict[str, Any]:
    text = (folder / "fault_injection.log").read_text(encoding="utf-8")
    ranks = unfolded(text.partition("[")[2].partition("]")[0])
    return {"healthy": False, "kind": "public", "faulted": list(ranks), "cannot_show": []}


def score_public(folder: Path) -> list[str]:
    """Rows of a table; the files stay where they are."""
    rows = ["| public set | injected | unhang | sure and wrong | torchfrtrace |"]
    rows.append("| --- | --- | --- | --- | --- |")
    for place in sorted(path.parent for path in folder.glob("*/fault_injection.log")):
        truth = public_truth(place)
        ours, theirs = ask_unhang(sorted(place.glob("_dump_*"))), ask_torch(place)
        told = [
            f"{outcome_of(answer, truth)} ({', '.join(map(str, answer.named[:6])) or 'nobody'})"
            for answer in (ours, theirs)
        ]
        injected = ", ".join(map(str, truth["faulted"]))
        wrong = "yes" if is_sure_and_wrong(ours, truth) else "no"
        rows.append(
            f"| {place.name.replace('_', ' ')} | {injected} | {told[0]} | {wrong} | {told[1]} |"
        )
    return rows


def table(scored: list[Scored]) -> list[str]:
    rows = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for evidence in (*EVIDENCE, TORCH):
        of = [row for row in scored if row.evidence == evidence]
        faults = [row for row in of if not row.truth["healthy"]]
        shown = Counter(row.outcome for row in faults if row.can_show)
        healthy = [row for row in of if row.truth["healthy"]]
        accused = sum(row.outcome == "accused" for row in healthy)
        total = shown.total()
        first = [rank in row.truth["faulted"] for row in faults for rank in row.first_line]
        rows.append(
            f"| {evidence} | {shown['right']} of {total} | {shown['right'] / (total or 1):.2f} |"
            f" {shown['other']} | {shown['silent']} | {sum(row.sure_and_wrong for row in of)} |"
            f" {first.count(False)} of {len(first)} | {accused} of {len(healthy)} |"
        )
    return rows


def misses_of(scored: list[Scored]) -> list[str]:
    """What is below the aims."""
    misses = []
    for evidence in EVIDENCE:
        rows = [row for row in scored if row.evidence == evidence]
        faults = [row for row in rows if not row.truth["healthy"] and row.can_show]
        share = sum(row.outcome == "right" for row in faults) / (len(faults) or 1)
        aim = AIMS["all" if evidence == "all" else "alone"]
        if share < aim:
            misses.append(f"{evidence}: {share:.2f} right, aim {aim}")
        for row in rows:
            if row.sure_and_wrong or row.outcome == "accused":
                misses.append(
                    f"{row.scene} by {evidence}: {row.outcome}, sure: {row.sure_and_wrong}"
                )
    return misses


def scenes_in(place: Path, only: set[str]) -> Iterator[Path]:
    """Each scene, unpacked in a folder that is gone afterwards."""
    for archive in sorted(place.glob("*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        if not only or name in only:
            with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as packed:
                packed.extractall(Path(folder) / name)  # our own; 3.11.2 has no filter
                yield Path(folder) / name


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--public", default=os.environ.get("UNHANG_PUBLIC_DUMPS"), type=Path)
    parser.add_argument("--jobs", default=SCENES, type=Path, help="a folder of archives")
    parser.add_argument("--only", default="", help="names of scenes with commas")
    parser.add_argument("--misses", action="store_true", help="list each answer that is not right")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    scored = [row for folder in scenes_in(given.jobs, only) for row in score_scene(folder)]
    lines = table(scored)
    if given.public and given.public.is_dir():
        lines += ["", *score_public(given.public)]
    if given.misses:
        wrong = (row for row in scored if row.outcome != "right" and row.can_show)
        lines += ["", *(f"{row.scene} by {row.evidence}: {row.outcome}" for row in wrong)]
    misses = misses_of(scored)
    sys.stdout.write("\n".join([*lines, "", *(f"missed: {text}" for text in misses[:20]), ""]))
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
