"""Messages of programs (tests/fixtures/diagnose_messages), in the forms in which they reach a log,
and how many of them a diagnosis recognises.

`python tests/support/messages.py` prints the coverage by file; with `-v` also each message that is
not recognised.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.diagnosing import read_all

FOLDER = Path(__file__).parents[1] / "fixtures" / "diagnose_messages"
AMONG = 3
# The forms in which each kind of program's lines arrive: alone, and after the prefixes of
# launchers, loggers and collectors. {} is the message.
FORMS: Mapping[str, tuple[str, ...]] = {
    "nccl": (
        "gpu-a:811:902 [3] {at}:480 NCCL {level} {line}",
        "[2026-01-18 08:16:03] gpu-a:811:902 [3] {at}:480 NCCL {level} {line}",
        (
            "(RayWorkerWrapper pid=811, ip=198.51.100.7) gpu-a:811:902 [3] {at}:480 NCCL {level}"
            " {line}"
        ),
        "2026-01-18T08:16:03.123456789Z gpu-a:811:902 [3] {at}:480 NCCL {level} {line}",
    ),
    "kernel": (
        "[12345.678901] {line}",
        "Jan 18 08:16:03 gpu-a kernel: {line}",
        "[Sun Jan 18 08:16:03 2026] {line}",
        "2026-01-18T08:16:03.123456+00:00 gpu-a kernel: [12345.678901] {line}",
    ),
    "program": (
        "{line}",
        "[rank3]: {line}",
        "(RayWorkerWrapper pid=811, ip=198.51.100.7) {line}",
        "3: {line}",
        "2026-01-18T08:16:03.123456789Z {line}",
    ),
    "output": ("{line}", "{line}\r"),
    "daemon": (
        "{line}",
        "Jan 18 08:16:03 gpu-a {program}[911]: {line}",
        "2026-01-18T08:16:03.123456+00:00 gpu-a {program}[911]: {line}",
    ),
}


@dataclass(frozen=True)
class MessageDiagnosis:
    """The diagnosis of one message in one form. causes: the first ones, and whether they are more
    than a remark."""

    form: str
    causes: tuple[tuple[str, bool], ...]

    def is_first(self, row: Mapping[str, Any]) -> bool:
        """Whether it finds the row's cause, or none where the row has none."""
        if row["cause"] is None:
            return not any(aloud for _, aloud in self.causes)
        return (
            bool(self.causes)
            and self.causes[0][0] == row["cause"]
            and (self.causes[0][1] or bool(row.get("info")))
        )

    def is_among(self, row: Mapping[str, Any]) -> bool:
        """Whether the row's cause is among the first three."""
        return self.is_first(row) or row["cause"] in [cause for cause, _ in self.causes[:AMONG]]


def read_messages() -> list[tuple[str, dict[str, Any]]]:
    """(family, row) of all files. A file's first row may be {defaults: ...}: forms and program of
    all its rows."""
    rows = []
    for path in sorted(FOLDER.glob("*.yml")):
        first, *more = load_yaml(path)[0]
        defaults = first.get("defaults", {})
        rows += [
            (path.stem, {**defaults, **row}) for row in ([first] if not defaults else []) + more
        ]
    return rows


def forms_of(row: Mapping[str, Any]) -> Iterator[str]:
    """The message as it may appear in a log."""
    for form in FORMS[row.get("forms", "program")]:
        yield form.format(
            line=row["line"],
            at=row.get("at", ""),
            level=row.get("level", "WARN"),
            program=row.get("program", "app"),
        )


def diagnoses_of(row: Mapping[str, Any], folder: Path) -> Iterator[MessageDiagnosis]:
    """The diagnosis of a log with only this message, for each form."""
    log = folder / "job.log"
    for form in forms_of(row):
        log.write_text(f"{form}\n", encoding="utf-8")
        causes = diagnose([str(log)])["causes"]
        yield MessageDiagnosis(
            form, tuple((cause["cause"], cause["severity"] != "info") for cause in causes)
        )


def is_known(row: Mapping[str, Any], folder: Path) -> bool:
    """Whether a signature matches the message in each form."""
    log = folder / "job.log"
    for form in forms_of(row):
        log.write_text(f"{form}\n", encoding="utf-8")
        if not read_all([str(log)])[1][0].events:
            return False
    return True


def _measure(*, verbose: bool) -> None:
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family, row in read_messages():
            diagnoses = list(diagnoses_of(row, Path(folder)))
            silent = row["cause"] is None
            good = (
                1,
                is_known(row, Path(folder)),
                all(one.is_among(row) for one in diagnoses),
                all(one.is_first(row) for one in diagnoses),
            )
            kept = [0, 0, 0, 0, 1, good[3]] if silent else [*map(int, good), 0, 0]
            counts[family] = [a + b for a, b in zip(counts.get(family, [0] * 6), kept, strict=True)]
            if verbose and not good[3]:
                worst = next(one for one in diagnoses if not one.is_first(row))
                sys.stdout.write(
                    f"{family}: {row['cause']}{' (info)' if row.get('info') else ''} | {worst.form}"
                    f" | {worst.causes[:AMONG]}\n"
                )
    sys.stdout.write(
        "family              messages  recognised  among three  first   deciding nothing  silent\n"
    )
    for family, (all_, known, among, first, none, quiet) in counts.items():
        sys.stdout.write(f"{family:20}{all_:8}{known:12}{among:13}{first:7}{none:19}{quiet:8}\n")
    sys.stdout.write(f"together: {[sum(row[at] for row in counts.values()) for at in range(6)]}\n")


if __name__ == "__main__":
    _measure(verbose="-v" in sys.argv)
