"""Logs in the forms in which users' systems deliver them: with prefixes of launchers and
collectors, as JSON, cut, redrawn, repeated, mixed with other output.

`python tests/support/wrapped_logs.py [-v]` prints for each form how many logs of all fixtures keep
their first answer.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from job_diagnosis import diagnose

FIXTURES = Path(__file__).parents[1] / "fixtures"
Lines = Sequence[str]
_RANK = re.compile(r"\[(?:[Rr]ank ?|default|1,)(\d{1,4})\]|:\d+:\d+ \[(\d)\] NCCL")
HEALTHY_LINES = 5000


def every_log() -> list[Path]:
    """The logs of all fixtures: batches, cases by cause, failures made on GPUs."""
    batches = [
        one
        for path in (FIXTURES / "diagnose_batches").glob("*/*/label.yaml")
        for one in path.parent.iterdir()
        if one.suffix in (".txt", ".log")
    ]
    return sorted(
        [
            *batches,
            *(FIXTURES / "diagnose").glob("*/*.log"),
            *(FIXTURES / "diagnose_real").glob("*.txt"),
        ]
    )


def first_answer(path: Path | str) -> tuple[str, str]:
    """(first cause above info, else the conclusion's word; its severity)."""
    found: Mapping[str, Any] = diagnose([str(path)])
    loud = [cause for cause in found["causes"] if cause["severity"] != "info"]
    return (loud[0]["cause"], loud[0]["severity"]) if loud else (found["outcome"]["word"], "info")


def _moments() -> Iterator[datetime]:
    moment = datetime(2026, 11, 21, 10, 0, 0)
    while True:
        yield moment
        moment += timedelta(milliseconds=20)


def _each(form: Callable[[str], str]) -> Callable[[Lines], str]:
    return lambda lines: "".join(form(line) + "\n" for line in lines)


def _timed(form: Callable[[str, datetime], str]) -> Callable[[Lines], str]:
    return lambda lines: "".join(
        form(line, moment) + "\n" for line, moment in zip(lines, _moments(), strict=False)
    )


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds") + "789Z"


def _cut(columns: int) -> Callable[[Lines], str]:
    """A copy from a terminal of this many columns: long lines continue in the next one."""
    return lambda lines: "".join(
        line[at : at + columns] + "\n" for line in lines for at in range(0, len(line) or 1, columns)
    )


def _interleaved(lines: Lines) -> str:
    """Each rank's lines in their order, the ranks mixed at random; a line without rank stays with
    the line before it."""
    noise, ranks, rank = random.Random(7), {}, ""
    for line in lines:
        if found := _RANK.search(line):
            rank = found[1] or found[2]
        ranks.setdefault(rank, []).append(line)
    order = [name for name, own in ranks.items() for _ in own]
    noise.shuffle(order)
    streams = {name: iter(own) for name, own in ranks.items()}
    return "".join(next(streams[name]) + "\n" for name in order)


def _after_training(lines: Lines) -> str:
    noise = random.Random(3)
    made = [
        f"{{'loss': {9 - step / HEALTHY_LINES:.4f}, 'grad_norm': {noise.random():.3f},"
        f" 'learning_rate': 1e-05, 'epoch': {step / 900:.2f}}}"
        for step in range(HEALTHY_LINES)
    ]
    return "".join(f"{line}\n" for line in (*made, *lines))


def _redrawn(lines: Lines) -> str:
    bar = "\r".join(
        f"Epoch 1:  {at}%|{'█' * (at // 10)}{' ' * (10 - at // 10)}| {at}/100"
        f" [00:{at % 60:02d}<00:10,  3.10it/s]"
        for at in range(10, 60, 10)
    )
    return "".join(f"{bar}\r{line}\n" for line in lines)


WRAPS: dict[str, Callable[[Lines], str]] = {
    "torch's rank: [rank3]: ": _each(lambda line: f"[rank3]: {line}"),
    "torchrun: [default3]:": _each(lambda line: f"[default3]:{line}"),
    "kubectl logs --prefix": _each(lambda line: f"[pod/train-worker-0/pytorch] {line}"),
    "docker compose": _each(lambda line: f"trainer-1  | {line}"),
    "srun -l": _each(lambda line: f" 3: {line}"),
    "journal or syslog": _timed(lambda line, at: f"{at:%b %d %H:%M:%S} gpu-a train[4711]: {line}"),
    "container runtime (CRI)": _timed(lambda line, at: f"{_iso(at)} stderr F {line}"),
    "docker logs -t, kubectl logs --timestamps": _timed(lambda line, at: f"{_iso(at)} {line}"),
    "docker's JSON file": _timed(
        lambda line, at: json.dumps({"log": line + "\n", "stream": "stderr", "time": _iso(at)})
    ),
    "JSON with message": _timed(
        lambda line, at: json.dumps(
            {"@timestamp": _iso(at), "level": "info", "kubernetes": {"pod": "w-0"}, "message": line}
        )
    ),
    "colours": _each(
        lambda line: f"\x1b[36m[\x1b[0m\x1b[1;31m{line[:12]}\x1b[0m{line[12:]}\x1b[K"[10:]
    ),
    "CRLF": _each(lambda line: f"{line}\r"),
    "cut at 80 columns": _cut(80),
    "cut at 120 columns": _cut(120),
    "cut at 200 columns": _cut(200),
    "progress bars redrawn": _redrawn,
    "a tab in front": _each(lambda line: f"\t{line}"),
    "quoted: > ": _each(lambda line: f"> {line}"),
    "four spaces in front": _each(lambda line: f"    {line}"),
    "ranks interleaved": _interleaved,
    "each line eight times": lambda lines: "".join(f"{line}\n" * 8 for line in lines),
    "after 5,000 lines of training": _after_training,
    "the last 60 %": lambda lines: "".join(f"{line}\n" for line in lines[len(lines) * 2 // 5 :]),
    "without the first 20 %": lambda lines: "".join(
        f"{line}\n" for line in lines[len(lines) // 5 :]
    ),
}
LOSSY = ("the last 60 %", "without the first 20 %")  # the deciding lines may be missing


def lines_of(path: Path) -> list[str]:
    """The lines of a log, without line ends."""
    return (
        path.read_text(encoding="utf-8", errors="replace")
        .replace("\r\n", "\n")
        .rstrip("\n")
        .split("\n")
    )


def wrapped_answer(lines: Lines, wrap: str, folder: Path) -> tuple[str, str]:
    """The first answer to the log in one of the forms."""
    log = folder / "job.log"
    log.write_text(WRAPS[wrap](lines), encoding="utf-8", newline="")
    return first_answer(log)


def _measure(ways: Sequence[str], *, every: int, verbose: bool) -> None:
    logs = {path: (lines_of(path), first_answer(path)) for path in every_log()[::every]}
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            kept = 0
            for path, (lines, before) in logs.items():
                after = wrapped_answer(lines, way, Path(folder))
                kept += after[0] == before[0]
                if verbose and after[0] != before[0]:
                    sys.stdout.write(f"    {path.relative_to(FIXTURES)}: {before} -> {after}\n")
            sys.stdout.write(f"| {way} | {kept} of {len(logs)} | {kept / len(logs):.3f} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    chosen = next((int(one) for one in sys.argv[1:] if one.isdigit()), 1)
    _measure(
        [one for one in sys.argv[1:] if one in WRAPS] or list(WRAPS),
        every=chosen,
        verbose="-v" in sys.argv,
    )
