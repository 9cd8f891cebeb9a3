"""Trains the word model on solved logs: `python -m unhang.jobs.diagnose.train_word_model > word_model.json`, in a checkout.

It is trained on folders of cases (log.txt, label.yaml), of logs by cause (CAUSE/*.log) and of logs with their labels (labels.yml). It is also trained on
the examples of the signatures; each counts as a log of its causes.

The classifier is a passive-aggressive one (Crammer et al., Online Passive-Aggressive Algorithms, JMLR 7, 2006; PA-I for several classes), averaged over
its passes. It uses integers, and a fixed order of the logs: the table is the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from unhang.base.strict_yaml import load_yaml
from unhang.jobs.diagnose.logs.reading import Input, open_input, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import Signature, load_causes, load_signatures
from unhang.jobs.diagnose.word_model import FAILED, HEALTHY, Wording, words_in

FIXTURES = Path(__file__).resolve().parents[4] / "tests" / "fixtures"  # of a checkout
FEWEST = 2  # a word that only one log has is not evidence for others
PASSES = 10
BOLDEST = 0.3  # maximum change of the weights by one log, because labels of threads are sometimes wrong
SCALE = 1_000_000  # scale of the integers while learning; the table has hundredths
LIGHTEST = 15  # hundredths; smaller weights change almost no answer and are most of the table
SPEAKING_FOR = ("decisive", "strong", "supporting")
Solved = tuple[str, frozenset[str]]


@cache
def words_of_logs(paths: tuple[Path, ...]) -> frozenset[str]:
    """The words of these files, read as by a diagnosis. Reads files."""
    words: set[str] = set()
    for path in paths:
        with open_input(path) as stream:
            words |= scan_blocks(read_blocks(stream, Input(path.name)), path.name, Sieve(())).words
    return frozenset(words)


def solved_cases(folder: Path) -> Iterator[Solved]:
    """(cause, words) of each case of a folder whose cause has a name; HEALTHY for a log without a fault. Reads files."""
    causes = load_causes()
    for path in sorted(folder.glob("*/label.yaml")):
        label, _places = load_yaml(path)
        cause = label["cause_class"] if label["cause_class"] in causes else label.get("proposed_class")
        if label.get("negative") or cause in causes:
            yield HEALTHY if label.get("negative") else _named(str(cause)), words_of_logs(tuple(logs_of(path.parent)))


def logs_of(folder: Path) -> list[Path]:
    """The logs of a case."""
    return sorted(one for one in folder.iterdir() if one.name != "label.yaml" and one.is_file())


def solved_by_folder(folder: Path) -> Iterator[Solved]:
    """(cause, words) of each log in a folder with the name of its cause. Reads files."""
    for path in sorted(folder.glob("*/*.log")):
        if path.parent.name in (HEALTHY, *load_causes()):
            yield path.parent.name, words_of_logs((path,))


def solved_by_labels(folder: Path) -> Iterator[Solved]:
    """(cause, words) of each log with a list of labels beside it, by its best answer; without logs that just stop. Reads files."""
    listed = folder / "labels.yml"
    rows = load_yaml(listed)[0] if listed.is_file() else {}
    for name, row in rows.items():
        cause = row["right"][0]
        if cause in (HEALTHY, FAILED, *load_causes()):
            yield _named(cause), words_of_logs((folder / f"{name}.txt",))


def _named(cause: str) -> str:
    """The name under which a cause is learnt: a failed rank is a program that failed by itself."""
    return FAILED if cause == "rank_failed" else cause


def solved_by_signatures(signatures: Iterable[Signature]) -> Iterator[Solved]:
    """(cause, words) of each example of the signatures that strongly support a cause; not of those that read only statements, whose words any ticket has."""
    for signature in signatures:
        if signature.is_statement:
            continue
        for cause, word in signature.for_.items():
            if word in SPEAKING_FOR:
                for line in signature.examples["match"]:
                    yield _named(cause), frozenset(words_in(line.encode()))


def learn(solved: Sequence[Solved]) -> Wording:
    """The table of these solved logs. Values in, value out."""
    counts = Counter(word for _cause, words in solved for word in words)
    rarity = {word: math.log((1 + len(solved)) / (1 + count)) + 1 for word, count in counts.items() if count >= FEWEST}
    causes = sorted({cause for cause, _words in solved})
    logs = [(causes.index(cause), known) for cause, words in solved if (known := sorted(words & rarity.keys()))]
    weights = _averaged_weights(logs, rarity, len(causes))
    return Wording(tuple(causes), {word: _row(rarity[word], weights[word]) for word in sorted(rarity)})


def _averaged_weights(logs: Sequence[tuple[int, Sequence[str]]], rarity: Mapping[str, float], causes: int) -> dict[str, list[int]]:
    """word -> its weight for each cause, times its rarity and SCALE, summed over the passes."""
    weights = {word: [0] * causes for word in rarity}
    summed = {word: [0] * causes for word in rarity}
    for place in range(PASSES):
        for number in sorted(range(len(logs)), key=lambda one: hashlib.sha256(f"{place} {one}".encode()).digest()):
            _learn_log(*logs[number], rarity, weights)
        for word, row in weights.items():
            summed[word] = list(map(int.__add__, summed[word], row))
    return summed


def _learn_log(cause: int, known: Sequence[str], rarity: Mapping[str, float], weights: Mapping[str, list[int]]) -> None:
    """Changes the weights so that the log's own cause is ahead of the nearest other one by 1, at most by BOLDEST."""
    length = math.sqrt(math.fsum(rarity[word] ** 2 for word in known))
    near = list(map(sum, zip(*(weights[word] for word in known), strict=True)))
    other = max((number for number in range(len(near)) if number != cause), key=near.__getitem__, default=cause)
    missing = 1 - (near[cause] - near[other]) / (SCALE * length)
    if missing > 0 and other != cause:
        for word in known:
            step = round(SCALE * min(BOLDEST, missing / 2) * rarity[word] ** 2 / length)
            weights[word][cause] += step
            weights[word][other] -= step


def _row(rarity: float, weights: Sequence[int]) -> tuple[int, ...]:
    rounded = [(number, round(weight * 100 / (SCALE * PASSES))) for number, weight in enumerate(weights)]
    return (round(rarity * 100), *(value for pair in rounded if abs(pair[1]) >= LIGHTEST for value in pair))


def render_wording(table: Wording) -> str:
    """The file of a table, a word a line."""
    rows = [f"{json.dumps(word)}:{json.dumps(row, separators=(',', ':'))}" for word, row in table.rows.items()]
    return f'{{"causes":{json.dumps(table.causes)},\n"words":{{\n' + ",\n".join(rows) + "\n}}\n"


def project_folders() -> list[Path]:
    """The folders from which the project's own table is learnt; [] without a checkout."""
    return [*sorted((FIXTURES / "diagnose_batches").glob("*")), *sorted(FIXTURES.glob("diagnose*"))]


def all_solved(folders: Iterable[Path], without: Collection[str] = ()) -> list[Solved]:
    """The training data: the cases and logs of the folders, and the examples of all signatures except these. Reads files."""
    cases = [one for folder in folders for one in (*solved_cases(folder), *solved_by_folder(folder), *solved_by_labels(folder))]
    rows = sorted((row for row in load_signatures() if row.id not in without), key=lambda row: row.id)  # a row that moves to another file changes nothing
    return [*cases, *solved_by_signatures(rows)]


if __name__ == "__main__":
    sys.stdout.write(render_wording(learn(all_solved(project_folders()))))
