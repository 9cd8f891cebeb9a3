"""Makes the table of words from solved logs: `python -m unhang.diagnose.learning FOLDER ... > wording.json`.

A folder of cases (log.txt, label.yaml) or of logs by cause (CAUSE/*.log). The examples of the signatures are learnt too, each as a log of its causes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unhang.diagnose.reading import Input, open_input, read_blocks
from unhang.diagnose.scanning import Sieve, scan_blocks
from unhang.diagnose.signatures import Signature, load_causes, load_signatures
from unhang.diagnose.wording import HEALTHY, Wording, words_in
from unhang.strict_yaml import load_yaml

FEWEST = 2  # a word of one log alone says nothing about others
SPEAKING_FOR = ("decisive", "strong", "supporting")
Solved = tuple[str, frozenset[str]]


def words_of_logs(paths: Iterable[Path]) -> frozenset[str]:
    """The words that a diagnosis of these files sees. Reads files."""
    words: set[str] = set()
    for path in paths:
        with open_input(path) as stream:
            words |= scan_blocks(read_blocks(stream, Input(path.name)), path.name, Sieve(())).words
    return frozenset(words)


def solved_cases(folder: Path) -> Iterator[Solved]:
    """(cause, words) of each case of a folder whose cause has a name; HEALTHY for a log in which nothing was wrong. Reads files."""
    causes = load_causes()
    for path in sorted(folder.glob("*/label.yaml")):
        label, _places = load_yaml(path)
        cause = label["cause_class"] if label["cause_class"] in causes else label.get("proposed_class")
        if label.get("negative") or cause in causes:
            yield HEALTHY if label.get("negative") else str(cause), words_of_logs(logs_of(path.parent))


def logs_of(folder: Path) -> list[Path]:
    """The logs of a case."""
    return sorted(one for one in folder.iterdir() if one.name != "label.yaml" and one.is_file())


def solved_by_folder(folder: Path) -> Iterator[Solved]:
    """(cause, words) of each log that stands in a folder with the name of its cause. Reads files."""
    for path in sorted(folder.glob("*/*.log")):
        if path.parent.name in (HEALTHY, *load_causes()):
            yield path.parent.name, words_of_logs([path])


def solved_by_signatures(signatures: Iterable[Signature]) -> Iterator[Solved]:
    """(cause, words) of each example of the signatures that speak for a cause aloud."""
    for signature in signatures:
        for cause, word in signature.for_.items():
            if word in SPEAKING_FOR:
                for line in signature.examples["match"]:
                    yield cause, frozenset(words_in(line.encode()))


def learn(solved: Sequence[Solved]) -> Wording:
    """The table of these solved logs. Values in, value out."""
    counts = Counter(word for _cause, words in solved for word in words)
    table = Wording(len(solved), {word: count for word, count in counts.items() if count >= FEWEST}, {})
    sums: dict[str, dict[str, float]] = {}
    for cause, words in solved:
        own = sums.setdefault(cause, {})
        for word, weight in table.vector(words).items():
            own[word] = own.get(word, 0.0) + weight
    return Wording(table.documents, table.found_in, sums)


def render_wording(table: Wording) -> str:
    """The file of a table, a word a line; weights in thousandths."""
    causes = sorted(table.sums)
    rows = []
    for word in sorted(table.found_in):
        weights = [(number, round(table.sums[cause].get(word, 0.0) * 1000)) for number, cause in enumerate(causes)]
        row = [table.found_in[word], *(value for pair in weights if pair[1] for value in pair)]
        rows.append(f"{json.dumps(word)}:{json.dumps(row, separators=(',', ':'))}")
    head = f'{{"documents":{table.documents},\n"causes":{json.dumps(causes)},\n"words":{{\n'
    return head + ",\n".join(rows) + "\n}}\n"


def all_solved(folders: Iterable[Path]) -> list[Solved]:
    """What is learnt from: the cases and logs of the folders, and the signatures' own examples. Reads files."""
    cases = [one for folder in folders for one in (*solved_cases(folder), *solved_by_folder(folder))]
    return [*cases, *solved_by_signatures(load_signatures())]


if __name__ == "__main__":
    sys.stdout.write(render_wording(learn(all_solved(map(Path, sys.argv[1:])))))
