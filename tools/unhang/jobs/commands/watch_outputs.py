"""Where `unhang watch` reports beside standard error: hooks and webhooks, syslog, and a file for
the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import (
    add_repeatable,
    add_value,
)
from unhang.core.commands.hooks import Hooks, call_in_a_session, check_hooks, send
from unhang.core.errors import UserError
from unhang.core.run.whole_files import write_named
from unhang.core.terminal import terminal_shape
from unhang.core.text import visible
from unhang.core.verdict.answer import render_evidence
from unhang.jobs.inspect.answer import answer_of
from unhang.jobs.inspect.inspection import Inspection
from unhang.jobs.inspect.rendering import render_inspection
from unhang.jobs.watch.detector import Tick
from unhang.jobs.watch.own_words import OwnWords

DEV_LOG = "/dev/log"
BUNDLE = "UNHANG_BUNDLE"
METRICS_EVERY_S = 10.0
MOST_CHARACTERS = 900  # a syslog message of RFC 3164 has at most 1,024 bytes
Named = set[tuple[Any, Any, Any]]


def add_outputs(parser: argparse.ArgumentParser) -> None:
    form = "as JSON of at most 16 KiB (unhang/evidence-short/1), once for each verdict"
    shown = parser.add_argument_group("where a hang is reported beside standard error")
    add_repeatable(
        shown,
        "--webhook",
        "URL",
        f"POST it to this URL {form}, to Slack and Teams as a message; @FILE reads the URL from"
        " a file",
    )
    add_repeatable(
        shown,
        "--hook",
        "COMMAND",
        f"run this program (no shell) with it on standard input {form}; {BUNDLE} is the path of"
        " all evidence, where --on-hang writes it",
    )
    shown.add_argument(
        "--syslog",
        metavar="SOCKET",
        nargs="?",
        const=DEV_LOG,
        help=f"one line in the system's log (the socket {DEV_LOG}), once for each verdict",
    )
    add_value(
        shown,
        "--textfile",
        "FILE.prom",
        f"metrics for Prometheus' textfile collector, each {METRICS_EVERY_S:g} s",
        Path,
    )
    add_repeatable(
        shown, "--label", "NAME=VALUE", "a label for every series of --textfile: cluster=production"
    )


class WatchOptions(Hooks, frozen=True):
    """command, pid, slurm_job: what is watched; no_progress, every, grace: seconds; on_hang, act:
    what becomes of a hung job; out: the folder of the evidence."""

    command: list[str]
    no_recorder: bool
    pid: int | None
    slurm_job: str | None
    job_comment: bool
    slow: bool
    pods: str | None
    no_progress: float
    every: float
    on_hang: str
    act: bool
    grace: float
    out: Path
    py_spy: str | None
    verbose: bool
    syslog: str | None
    textfile: Path | None
    label: list[str]


@dataclass
class Outputs:
    """What was reported so far, and where to. say: prints a line for people; job: its name among
    several, whose metrics whoever watches them all writes; is_idle: the last look saw an idle
    server; slow_ranks: how many the last two looks of --slow both found, None without; notified:
    the suspects of the last verdict of a hang, whose evidence is in full; left_alone: why the job
    was not ended for it; words: what is written to standard error."""

    options: WatchOptions
    labels: Mapping[str, str]
    say: Callable[[str], None]
    job: str = ""
    words: OwnWords | None = None
    notified: Named | None = None
    full: Path | None = None
    left_alone: str = ""
    hung: bool = False
    is_idle: bool = False
    stalled: tuple[Any, ...] = ()
    looks: int = 0
    hangs: int = 0
    slow_ranks: int | None = None
    written: float | None = None
    last: tuple[Tick, float] | None = None
    ended: str | None = None  # what was ended, why, and where the evidence is

    def sampled(self, tick: Tick, since_s: float) -> None:
        """Takes a moment; since_s: seconds since the last progress, which ends a hang."""
        self.last, self.hung = (tick, since_s), self.hung and since_s > 0
        if self.written is None or time.monotonic() - self.written >= METRICS_EVERY_S:
            self._write()

    def show(self, inspection: Inspection) -> None:
        """Prints what a look found."""
        width, _, plain = terminal_shape(sys.stderr, os.environ)
        screen = render_inspection(inspection, plain, width=width, verbose=self.options.verbose)
        if self.job:
            self.say(screen.rstrip())
        else:
            sys.stderr.write(screen)

    def ranks_left(self) -> int:
        """Ranks that ran in the last moment."""
        return len(self.last[0].alive) if self.last else 0

    def looked(self, inspection: Inspection, named: Named | None, full: Path | None = None) -> str:
        """Takes a verdict; named: the suspects of a hang, None for no hang; full: the bundle with
        all evidence. A hang is reported once for each set of suspects. Returns its headline if it
        is new, else ""."""
        headline = ""
        self.looks, self.hung = self.looks + 1, named is not None
        if named is None:
            self.notified = None
        elif named != self.notified:
            self.notified, self.hangs = named, self.hangs + 1
            answer = answer_of(inspection, by="watch")
            headline = answer.screen.headline
            if self.job:
                headline = f"{self.job}: {headline}"
                answer = replace(answer, screen=replace(answer.screen, headline=headline))
            where = str(full.resolve()) if full else None
            called = partial(call_in_a_session, added={BUNDLE: where} if where else {})
            short = json.loads(render_evidence(replace(answer, full=where)))
            for line in (
                *send(short, self.options, called),
                *_logged(headline, self.options.syslog),
            ):
                self.say(line)
        self._write()
        return headline

    def log(self, headline: str) -> None:
        """Writes what is no hang to the system's log, as a warning."""
        text = f"{self.job}: {headline}" if self.job else headline
        for line in _logged(text, self.options.syslog, logging.WARNING):
            self.say(line)

    def _write(self) -> None:
        path = self.options.textfile
        if path is None or self.last is None or self.job:
            return
        self.written = time.monotonic()
        write_metrics(path, [self], self)


def outputs_of(options: WatchOptions, say: Callable[[str], None]) -> Outputs:
    """Checks the options before a job is started. Raises UserError."""
    check_hooks(options)
    if options.label and not options.textfile:
        raise UserError("--label needs --textfile, whose series it is for")
    if options.textfile and not options.textfile.parent.is_dir():
        raise UserError(f"--textfile: there is no folder at {options.textfile.parent}")
    if options.syslog:
        try:
            # logging's handler does not say that nobody listens
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                probe.connect(options.syslog)
        except OSError as problem:
            raise UserError(
                f"--syslog: there is no log socket to write to at {visible(options.syslog, 200)}:"
                f" {problem.strerror}; it would be missed at a hang"
            ) from None
    return Outputs(options, _labels(options.label), say)


def _labels(given: list[str]) -> Mapping[str, str]:
    if not given:
        return {}
    # with all that judges a fleet: a watcher is to stay small on a node that trains
    from unhang.core.labels import parse_labels

    return parse_labels(given)


def _logged(headline: str, path: str | None, level: int = logging.ERROR) -> Iterator[str]:
    """Writes the verdict to the log; yields why that failed."""
    if not path:
        return
    try:
        handler = _Strict(path, SysLogHandler.LOG_DAEMON)
        handler.ident = "unhang-watch: "
        text = visible(headline, MOST_CHARACTERS)
        handler.emit(
            logging.makeLogRecord(
                {"msg": "%s", "args": (text,), "levelname": logging.getLevelName(level)}
            )
        )
        handler.close()
    except OSError as problem:
        yield f"syslog at {visible(path, 200)}: {problem.strerror or problem}"


class _Strict(SysLogHandler):
    """logging prints a traceback of its own where a message cannot be sent."""

    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704 -- it is called where the error is handled


def write_metrics(path: Path, watches: Sequence[Outputs], of: Outputs) -> None:
    """Writes the series of these watches into one file. of: who has the labels, and says why that
    failed."""
    try:
        write_named(path, render_metrics(watches, of.labels, time.time()))
    except OSError as problem:  # a full disk ends no watch
        of.say(f"the metrics could not be written: {problem}")


def render_metrics(watches: Sequence[Outputs], labels: Mapping[str, str], now_s: float) -> str:
    """The series of the watches that have a sample, in the text format of Prometheus. Prometheus
    has a label `job` of its own: the job is in `watched_job`, where there may be several."""
    # the import takes 0.1 s, and no other output needs it
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()

    def add(name: str, meaning: str, value: float, of: Mapping[str, str]) -> None:
        if name not in gauges:
            gauges[name] = Gauge(f"unhang_{name}", meaning, tuple(of), registry=registry)
        (gauges[name].labels(*of.values()) if of else gauges[name]).set(value)

    for watch in watches:
        of = {**labels, "watched_job": watch.job} if watch.job else labels
        for name, meaning, value in _series(watch):
            add(name, meaning, value, of)
    written = "When this was written, seconds since 1970."
    add("watch_timestamp_seconds", written, round(now_s, 1), labels)
    return generate_latest(registry).decode()


def _series(outputs: Outputs) -> Iterator[tuple[str, str, float]]:
    if outputs.last is None:
        return
    tick, since_s = outputs.last
    alive = outputs.ranks_left()
    yield from (
        (
            "watch_hung",
            "1 from the look that called the job hung until its next progress.",
            int(outputs.hung),
        ),
        (
            "watch_seconds_without_progress",
            "Seconds since a rank, a GPU, a file or the log moved.",
            round(since_s, 1),
        ),
        ("watch_ranks", "Ranks of the job that run here.", alive),
        ("watch_ranks_ended", "Ranks of the job that have ended here.", len(tick.ranks) - alive),
        ("watch_looks", "Looks at the job since the watch began.", outputs.looks),
        ("watch_hangs", "Hangs reported since the watch began.", outputs.hangs),
    )
    if outputs.slow_ranks is not None:
        meaning = "Ranks that the last two looks of --slow both reported as slow."
        yield "watch_slow_ranks", meaning, outputs.slow_ranks
