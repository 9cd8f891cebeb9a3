"""Measures the diagnosis on cases with known causes: top-1, top-3, per class, confusion,
calibration, false alarms, wrong answers.

A case is a folder with log.txt (or any *.log, *.txt) and label.yaml: cause_class, negative,
also_plausible, answerable_from_log, confidence, log_kind; proposed_class is the truth where
cause_class is "other" and the catalogue has a cause of that name.

    python tests/support/diagnosis_scores.py DIR [--leave-one-out] [--json]     DIR: a folder of
    cases, or of batches of them
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from job_diagnosis import diagnose, read_all

from unhang.core.errors import UserError
from unhang.core.strict_yaml import YamlFault, load_yaml
from unhang.jobs.diagnose.diagnosing import document
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.matching.scanning import Sieve
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures

SUBJECTS = (
    "py-spy",
    "with one process",
    "TF_CONFIG",
    "NCCL_P2P_DISABLE",
    "all_reduce_perf",
    "NCCL_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
    "dmesg",
    "ray status",
    "nc -vz",
    "iostat",
    "environ",
    "ss -ltnp",
    "kubectl get pod",
    "scontrol show job",
    "ACSCtl",
    "/dev/shm",
    "getent",
    "ibstat",
    "show_gids",
    "ip -br addr",
    "ulimit -l",
    "/proc/cmdline",
    "/proc/driver/nvidia",
    "LOCAL_RANK",
)
# file in a folder of cases: ids of the signatures and rules that were written or widened after its
# logs had been read
LEARNT = "learnt.txt"
WORDS = ("sure", "likely", "possible")
BINS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01))


@dataclass(frozen=True)
class Scored:
    """One case. found: (cause, score, severity), most likely first. certainty: of the first.
    collect: commands to run next, if the log does not decide."""

    name: str
    truth: str
    negative: bool
    also: tuple[str, ...]
    answerable: str
    confidence: str
    kind: str
    found: tuple[tuple[str, float, str], ...]
    certainty: str = "possible"
    decided: bool = True
    collect: tuple[str, ...] = ()

    @property
    def top1(self) -> bool:
        """The first cause is the true one."""
        return bool(self.found) and self.found[0][0] == self.truth

    @property
    def top3(self) -> bool:
        """One of the first three is."""
        return self.truth in [cause for cause, _, _ in self.found[:3]]

    @property
    def alarm(self) -> bool:
        """A cause above info."""
        return any(severity != "info" for _, _, severity in self.found)


def score_folder(folder: Path, *, leave_one_out: bool = False) -> list[Scored]:
    """Diagnoses every case of the folder, or of its batches. Raises UserError without a case.
    leave_one_out: each batch as if its logs had not been seen: without the signatures whose source
    is one of its threads, and without the signatures and rules in its learnt.txt."""
    batches = sorted(
        {
            path.parent.parent
            for depth in ("*", "*/*")
            for path in folder.glob(f"{depth}/label.yaml")
        }
    )
    if not batches:
        raise UserError(f"{folder}: expected folders with log.txt and label.yaml, found none")
    cases = [
        (batch, case)
        for batch in batches
        for case in _score_batch(batch, leave_one_out=leave_one_out)
    ]
    return [
        case if batch == folder else replace(case, name=f"{batch.name}/{case.name}")
        for batch, case in cases
    ]


def _score_batch(folder: Path, *, leave_one_out: bool) -> list[Scored]:
    labels = sorted(folder.glob("*/label.yaml"))
    answer_of = (
        diagnose_without(*learnt_from(folder, [_label(path) for path in labels]))
        if leave_one_out
        else diagnose
    )
    return [_case(path, answer_of) for path in labels]


def learnt_from(
    folder: Path, labels: Iterable[Mapping[str, Any]]
) -> tuple[frozenset[str], frozenset[str]]:
    """(addresses of the threads of a folder of cases, ids of the signatures and rules that were
    learnt from it). Reads files."""
    listed = folder / LEARNT
    ids = (
        frozenset(
            line.strip()
            for line in listed.read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")
        )
        if listed.is_file()
        else frozenset()
    )
    return frozenset(str(label.get("url")) for label in labels), ids


def diagnose_without(
    urls: frozenset[str], ids: frozenset[str]
) -> Callable[[list[str]], Mapping[str, Any]]:
    """A diagnosis without the signatures whose source is one of these threads, and without these
    signatures and rules."""
    sieve = Sieve(
        [
            row
            for row in load_signatures()
            if row.id not in ids and not urls & {source["url"] for source in row.sources}
        ]
    )

    def answer_of(names: list[str]) -> Mapping[str, Any]:
        inputs, scans, flights = read_all(names, sieve=sieve)
        return document(inputs, gather_facts(scans, flights), without=ids)

    return answer_of


def logs_of(folder: Path) -> list[Path]:
    """The logs of a case."""
    return sorted(one for one in folder.iterdir() if one.name != "label.yaml" and one.is_file())


def _label(path: Path) -> Mapping[str, Any]:
    try:
        return load_yaml(path)[0]
    except YamlFault as problem:
        raise UserError(str(problem)) from None


def _case(path: Path, answer_of: Callable[[list[str]], Mapping[str, Any]]) -> Scored:
    label = _label(path)
    answer = answer_of([str(one) for one in logs_of(path.parent)])
    found = tuple((cause["cause"], cause["score"], cause["severity"]) for cause in answer["causes"])
    return Scored(
        path.parent.name, _truth(label), bool(label.get("negative")),
        tuple(label.get("also_plausible") or ()),
        str(label.get("answerable_from_log", "yes")), str(label.get("confidence", "?")),
        str(label.get("log_kind", "?")), found,
        answer["causes"][0].get("certainty", "possible") if answer["causes"] else "possible",
        bool(answer.get("decided", True)),
        (*answer.get("collect_next", ()), *_checks(answer["causes"])),
    )  # fmt: skip


def _checks(causes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The checks that stand with causes above a remark."""
    return [
        cause["collect"][0]
        for cause in causes
        if cause["severity"] != "info" and cause["certainty"] != "sure" and cause["collect"]
    ]


def _truth(label: Mapping[str, Any]) -> str:
    truth, proposed = str(label["cause_class"]), label.get("proposed_class")
    return str(proposed) if truth == "other" and proposed in load_causes() else truth


def summary(cases: Sequence[Scored]) -> dict[str, Any]:
    """The numbers for --format json."""
    failures = [case for case in cases if not case.negative]
    clear = [case for case in failures if case.answerable != "weak"]
    negatives = [case for case in cases if case.negative]
    by_class: dict[str, list[Scored]] = defaultdict(list)
    for case in failures:
        by_class[case.truth].append(case)
    return {
        "cases": len(cases),
        "answerable": _rates(clear),
        "weak": _rates([case for case in failures if case.answerable == "weak"]),
        "all_failures": _rates(failures),
        "by_log_kind": {kind: _rates([case for case in failures if case.kind == kind]) for kind in sorted({case.kind for case in failures})},
        "by_confidence": {word: _rates([case for case in failures if case.confidence == word]) for word in sorted({case.confidence for case in failures})},
        "per_class": {cause: _rates(alike) for cause, alike in sorted(by_class.items())},
        "confusion": _confusion(failures),
        "calibration": _calibration(failures),
        "at_error_level": _at_error_level(failures, negatives),
        "by_certainty": _by_certainty(failures),
        "undecided": _undecided(failures),
        "healthy": {"cases": len(negatives), "false_alarms": sum(case.alarm for case in negatives)},
        "missed": [
            {"case": case.name, "truth": case.truth, "found": [cause for cause, _,
            _ in case.found[:3]], "answerable": case.answerable}
            for case in failures if not case.top1
        ],
        "alarmed": [{"case": case.name,
        "found": [list(one) for one in case.found[:3]]} for case in negatives if case.alarm],
    }  # fmt: skip


def _by_certainty(failures: Sequence[Scored]) -> list[dict[str, Any]]:
    """For each certainty: number of first answers above info, and of right ones."""
    named = [case for case in failures if case.found and case.found[0][2] != "info"]
    rows = [(word, [case for case in named if case.certainty == word]) for word in WORDS]
    return [
        {"word": word, "cases": len(alike), "right": sum(case.top1 for case in alike)}
        for word, alike in rows
    ]


def _at_error_level(failures: Sequence[Scored], negatives: Sequence[Scored]) -> dict[str, Any]:
    """Number of first answers at error level or above, and of wrong ones; a wrong cause that the
    label calls plausible is counted separately."""
    loud = [
        case
        for case in (*failures, *negatives)
        if case.found and case.found[0][2] in ("error", "critical")
    ]
    wrong = [case for case in loud if not case.top1]
    return {
        "answers": len(loud),
        "wrong": len(wrong),
        "of_these_plausible": sum(case.found[0][0] in case.also for case in wrong),
    }


def _undecided(failures: Sequence[Scored]) -> dict[str, int]:
    """Cases that the log does not decide, or that were missed with commands to run next, and in how
    many of them a command is one of the true cause's."""
    asked = [case for case in failures if case.collect and not case.decided]
    causes = load_causes()
    wanted = {cause: _subjects(row["collect"]) for cause, row in causes.items()}
    return {
        "cases": len(asked),
        "would_decide": sum(
            bool(_subjects(case.collect) & wanted.get(case.truth, set())) for case in asked
        ),
    }


def _subjects(commands: Sequence[str]) -> set[str]:
    """What commands look at: the known programs, files and variables in them, and the commands
    themselves."""
    return {word for one in commands for word in SUBJECTS if word in one}.union(commands)


def _rates(cases: Sequence[Scored]) -> dict[str, Any]:
    count = len(cases)
    top1, top3 = sum(case.top1 for case in cases), sum(case.top3 for case in cases)
    plausible = sum(bool(case.found) and case.found[0][0] in case.also for case in cases)
    return {
        "cases": count, "top1": top1, "top3": top3, "plausible": plausible,
        "top1_rate": round(top1 / count, 3) if count else None,
        "top3_rate": round(top3 / count, 3) if count else None,
    }  # fmt: skip


def _confusion(cases: Sequence[Scored]) -> list[dict[str, Any]]:
    pairs = Counter(
        (case.truth, case.found[0][0] if case.found else "nothing")
        for case in cases
        if not case.top1
    )
    return [
        {"truth": truth, "found": found, "cases": count}
        for (truth, found), count in pairs.most_common()
    ]


def _calibration(cases: Sequence[Scored]) -> list[dict[str, Any]]:
    """For each range of the first cause's score: number of right answers."""
    rows = []
    for low, high in BINS:
        inside = [case for case in cases if case.found and low <= case.found[0][1] < high]
        right = sum(case.top1 for case in inside)
        rows.append({
            "from": low, "to": min(high, 1.0), "cases": len(inside), "right": right,
            "mean_score": round(sum(case.found[0][1] for case in inside) / len(inside),
            3) if inside else None,
            "right_rate": round(right / len(inside), 3) if inside else None,
        })  # fmt: skip
    return rows


def render_score(numbers: Mapping[str, Any]) -> str:
    """The table for people."""
    lines = [f"{'':<32}{'cases':>6}{'top-1':>7}{'top-3':>7}   rate"]
    for name, rates in (
        ("answerable from the log", numbers["answerable"]),
        ("weak logs", numbers["weak"]),
        ("all failures", numbers["all_failures"]),
    ):
        lines.append(_row(name, rates))
    lines += [_row(f"log kind: {kind}", rates) for kind, rates in numbers["by_log_kind"].items()]
    lines += [_row(f"label: {word}", rates) for word, rates in numbers["by_confidence"].items()]
    lines += [
        "",
        "per class",
        *(_row(f"  {cause}", rates) for cause, rates in numbers["per_class"].items()),
    ]
    healthy = numbers["healthy"]
    lines += [
        "",
        f"healthy logs: {healthy['cases']}, with a cause above info: {healthy['false_alarms']}",
    ]
    loud, asked = numbers["at_error_level"], numbers["undecided"]
    rate = (
        f", rate {loud['wrong'] / loud['answers']:.3f},"
        f" {(loud['wrong'] - loud['of_these_plausible']) / loud['answers']:.3f} outright"
        if loud["answers"]
        else ""
    )
    lines += [
        f"first answers at error level: {loud['answers']}, wrong: {loud['wrong']} (plausible by the"
        f" label: {loud['of_these_plausible']}){rate}"
    ]
    lines += [
        f"{row['word']}: {row['right']} of {row['cases']} right" for row in numbers["by_certainty"]
    ]
    lines += [f"undecided: {asked['cases']}, what to run next would decide {asked['would_decide']}"]
    lines += [
        "",
        "confusion (truth -> first answer)",
        *(f"  {one['truth']} -> {one['found']}: {one['cases']}" for one in numbers["confusion"]),
    ]
    lines += ["", "calibration of the first answer's score"]
    lines += [
        f"  {row['from']:.1f} to {row['to']:.1f}: {row['right']} of {row['cases']} right, mean"
        f" score {row['mean_score']}"
        for row in numbers["calibration"]
    ]
    missed = [
        f"  {one['case']} ({one['answerable']}): {one['truth']}, found"
        f" {', '.join(one['found']) or 'nothing'}"
        for one in numbers["missed"]
    ]
    lines += ["", "missed", *missed]
    return "\n".join(lines) + "\n"


def _row(name: str, rates: Mapping[str, Any]) -> str:
    rate = (
        ""
        if rates["top1_rate"] is None
        else f"   {rates['top1_rate']:.2f} / {rates['top3_rate']:.2f}"
    )
    return f"{name:<32}{rates['cases']:>6}{rates['top1']:>7}{rates['top3']:>7}{rate}"


def main() -> None:
    """Prints the scores of a folder."""
    parser = argparse.ArgumentParser(
        description="Diagnose labelled cases, and print how many causes were right."
    )
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument(
        "--leave-one-out",
        action="store_true",
        help="score each batch without what was learnt from its own logs",
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    numbers = summary(score_folder(asked.folder, leave_one_out=asked.leave_one_out))
    sys.stdout.write(json.dumps(numbers, indent=1) + "\n" if asked.json else render_score(numbers))


if __name__ == "__main__":
    main()
