"""How often the first steps of an undecided answer look at what decided the report:  python tests/support/next_step_scores.py

Of each report it is known what decided it (tests/fixtures/what_decided_reports.yml), in the words of ASKS. A step looks at what its row of `next_steps` asks
for. Steps of a line's own words (`error_words`) and of the conclusion have no row and count as misses, so the scores are lower bounds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(PROJECT / "tools"), str(PROJECT / "module_utils")]

from unhang.core import catalogue  # noqa: E402
from unhang.core.strict_yaml import load_yaml  # noqa: E402
from unhang.jobs.diagnose.diagnosing import diagnose_text  # noqa: E402

LABELS = PROJECT / "tests" / "fixtures" / "what_decided_reports.yml"
REPORTS = PROJECT / "tests" / "fixtures" / "diagnose_reports"
# What a row asks for -> what it looks at.
ASKS = {
    "accounting": "scheduler memory", "alone": "code", "batch": "code data", "compile": "config", "data": "data", "device": "container",
    "differs": "versions driver", "engine": "config", "file": "environment container data", "given": "launch environment", "group": "config",
    "kernel": "driver memory", "late": "stacks otherlog code", "launcher": "launch", "layers": "code", "leftovers": "environment", "load": "data driver",
    "memory": "memory", "nccl": "network paths", "nodes": "driver environment", "numbers": "code config", "output": "otherlog", "pairs": "paths driver",
    "paths": "paths", "peer": "otherlog memory", "picture": "otherlog", "placement": "scheduler", "pods": "scheduler container", "ports": "network",
    "power": "driver", "pull": "container", "python": "environment versions", "release": "release versions", "script": "launch environment",
    "settings": "config environment", "stacks": "stacks code", "storage": "data", "times": "patience",
}  # fmt: skip
ROWS = {  # rows that look at more, or at other things, than their word says
    "failed-containers": "network", "failed-given": "launch config environment container", "failed-in-container": "container memory network",
    "failed-native": "versions", "failed-windows": "config", "fewer-used": "launch scheduler environment", "fails-with-more-gpus": "memory paths",
    "nccl-shm": "memory container", "nodes-any": "network paths", "nodes-cpu": "network", "nodes-given": "launch network", "nodes-tests": "network paths",
    "preparing-locks": "environment data", "serving-given": "launch network", "slow-network": "network", "slow-tests": "network paths",
    "slow-transport": "network paths", "tf-tasks": "launch network",
}  # fmt: skip
AS_SHOWN = 60  # characters of a command that tell its row; the library's name may follow


class Answer(NamedTuple):
    """An undecided answer to a report. hits: for each step whether it looks at one of the two things that decided best."""

    report: str
    outcome: str
    label: Mapping[str, Any]
    hits: tuple[bool, ...]


def looked_at(step: str) -> set[str]:
    """The words that a step looks at; none if it has no row."""
    row = next((row for row in catalogue.table("next_steps").values() if step.startswith(row["run"][:AS_SHOWN])), None)
    return set((ROWS.get(row["id"]) or ASKS[row["asks"]]).split()) if row else set()


def undecided_answers() -> Iterator[Answer]:
    """The answers to all reports of which no cause is likely."""
    for name, labels in load_yaml(LABELS)[0].items():
        texts = {row["id"]: row["text"] for row in load_yaml(REPORTS / f"{name}.yml")[0]["reports"]}
        for report, label in labels.items():
            answer = diagnose_text(texts[report])
            named = any(cause["severity"] != "info" and cause["certainty"] != "possible" for cause in answer["causes"])
            if answer["outcome"]["word"] in ("failure", "no_end") and not named:
                decided = set(label["decides"][:2])
                yield Answer(report, answer["outcome"]["word"], label, tuple(bool(decided & looked_at(step)) for step in answer["collect_next"]))


def shares(answers: list[Answer]) -> list[float]:
    """The share of answers with a hit among the first one, two, three and four steps."""
    return [sum(any(answer.hits[:most]) for answer in answers) / len(answers) for most in (1, 2, 3, 4)]


if __name__ == "__main__":
    found = list(undecided_answers())
    groups = {"all": found} | {
        shows: [one for one in found if one.label["shows"] == shows] for shows, _ in Counter(a.label["shows"] for a in found).most_common()
    }
    sys.stdout.write("report shows  answers  first step  two  three  four\n")
    for shows, answers in groups.items():
        sys.stdout.write(f"{shows:12} {len(answers):8}  {'  '.join(f'{share:.2f}' for share in shares(answers))}\n")
