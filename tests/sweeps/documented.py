"""Symptoms that vendors' pages document (tests/fixtures/diagnose_documented), and how many of their
causes a diagnosis names.

`python tests/sweeps/documented.py` prints the counts by file; with `-v` also each case whose cause
is not first, and each harmless one with an alarm.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_documented"
AMONG = 3


@dataclass(frozen=True)
class Answer:
    """What the diagnosis says about one case. causes: the id and severity of each, the most
    probable first."""

    case: dict[str, Any]
    causes: tuple[tuple[str, str], ...]

    @property
    def is_first(self) -> bool:
        return bool(self.causes) and self.causes[0][0] == self.case["cause"]

    @property
    def is_among(self) -> bool:
        return self.case["cause"] in [cause for cause, _ in self.causes[:AMONG]]

    @property
    def is_remark(self) -> bool:
        """Whether nothing in it is more than a remark."""
        return all(severity == "info" for _, severity in self.causes)

    @property
    def is_wrong_error(self) -> bool:
        return (
            bool(self.causes) and not self.is_first and self.causes[0][1] in ("error", "critical")
        )

    @property
    def is_plausible(self) -> bool:
        """Whether the first answer is one that the label calls plausible."""
        return bool(self.causes) and self.causes[0][0] in self.case.get("also", [])


def read_cases() -> list[tuple[str, dict[str, Any]]]:
    """(file, case) of all files."""
    return [
        (path.stem, case) for path in sorted(FOLDER.glob("*.yml")) for case in load_yaml(path)[0]
    ]


def answer(case: dict[str, Any], folder: Path) -> Answer:
    """The diagnosis of a log with only this text."""
    log = folder / "job.log"
    log.write_text(case["text"], encoding="utf-8")
    causes = diagnose([str(log)])["causes"]
    return Answer(case, tuple((cause["cause"], cause["severity"]) for cause in causes))


def _measure(*, verbose: bool) -> None:
    names = (
        "cases",
        "first",
        "first, more than a remark",
        "among three",
        "at most a remark",
        "wrong at error level",
        "of them plausible",
        "harmless",
        "with an alarm",
    )
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in read_cases():
            given = answer(case, Path(folder))
            harmless = case["cause"] is None
            if harmless:
                found = [0] * 7 + [1, not given.is_remark]
            else:
                kept = (
                    1,
                    given.is_first,
                    given.is_first and not given.is_remark,
                    given.is_among,
                    given.is_remark,
                    given.is_wrong_error,
                )
                found = [*map(int, kept), int(given.is_wrong_error and given.is_plausible), 0, 0]
            counts[name] = [
                a + b for a, b in zip(counts.get(name, [0] * len(names)), found, strict=True)
            ]
            if verbose and (not given.is_remark if harmless else not given.is_first):
                plausible = " (plausible)" if given.is_plausible else ""
                sys.stdout.write(
                    f"{case['id']}: {case['cause']}{plausible} | {given.causes[:AMONG]}\n"
                )
    for at, title in enumerate(names):
        by_file = ", ".join(f"{name} {values[at]}" for name, values in counts.items())
        sys.stdout.write(f"{title}: {sum(values[at] for values in counts.values())} ({by_file})\n")


if __name__ == "__main__":
    _measure(verbose="-v" in sys.argv)
