"""Reads a file with which a job was started: lint's findings and settings, and properties that are
no fault by themselves. Nothing runs the file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from unhang.core.catalogue.setting_values import whole_number
from unhang.core.quotes import leading_words
from unhang.jobs.job_files import JobFile, Trait
from unhang.jobs.lint.batch import read_batch
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.hcl_nodes import documents_of
from unhang.jobs.lint.launch import Launch, Place, is_loopback
from unhang.jobs.lint.lines import seconds_of, values_in
from unhang.jobs.lint.linting import lint_text, read_script
from unhang.jobs.lint.placed import Text, bytes_of
from unhang.jobs.lint.python_devices import line_of_local_device
from unhang.jobs.lint.python_names import line_of, parse_python, read_names
from unhang.jobs.lint.settings import OF_CONTAINERS, find_settings
from unhang.jobs.lint.yaml_launches import jobs_of
from unhang.jobs.lint.yaml_nodes import Map, parts_of

MOST_TRAITS = 64
_STATE = {"containerStatuses", "lastState", "lastTransitionTime", "lastTimestamp", "phase"}


def read_job_file(name: str, path: Path, kind: str) -> JobFile | None:
    """The findings and properties of a file of the job; None if it is binary. Raises UserError if
    it cannot be read."""
    raw = read_script(path)
    return (
        None
        if raw is None
        else job_file_of(name, raw.encode("utf-8", "replace").decode("utf-8"), kind)
    )


def job_file_of(name: str, text: str, kind: str) -> JobFile:
    """The findings and properties of a script's text."""
    lines = text.splitlines()
    findings = lint_text(text, kind, Context())
    settings = tuple(
        (one.name, one.line)
        for one in find_settings(text, kind)
        if one.lasting and one.value and not (one.own or one.local)
    )
    wanted = {*(one.line for one in findings), *(line for _, line in settings)}
    shown = {line: leading_words(line_of(lines, line), 300) for line in wanted}
    traits = tuple(
        Trait(trait, value, line, leading_words(line_of(lines, line), 300))
        for trait, value, line in islice(dict.fromkeys(_traits(text, kind)), MOST_TRAITS)
    )
    state = has_state(text, kind)
    return JobFile(name, kind, len(lines), tuple(findings), settings, traits, shown, state)


def has_state(text: str, kind: str) -> bool:
    """Whether a file of pods also has their state or events, which can be read like a log."""
    parts = parts_of(Map, *documents_of(text, kind)) if kind == "kubernetes" else ()
    return any(one.keys() & _STATE for one in parts)


def only_starts_a_job(path: Path, kind: str) -> bool:
    """Whether a job's file has nothing that can be read like a log. Raises UserError if it cannot
    be read."""
    return kind != "kubernetes" or not has_state(read_script(path) or "", kind)


def _traits(text: str, kind: str) -> Iterator[tuple[str, str, int]]:
    """(name, value, line) of each property."""
    place, launches = Place(), list[Launch]()
    if kind in OF_CONTAINERS:
        jobs = jobs_of(documents_of(text, kind), lambda _name: "")
        launches = [one for job in jobs for one in job.launches]
    elif kind in ("shell", "slurm"):
        place, launches = read_batch(text)
    elif kind == "python" and (tree := parse_python(text)) is not None:
        nodes = list(ast.walk(tree))
        if at := line_of_local_device(nodes, read_names(nodes)):
            yield "local device", "local rank", at
    if place.nodes and place.nodes > 1:
        yield "nodes", str(place.nodes), place.nodes.line
    for row, one in values_in(text, kind, [place.asked, *(one.options for one in launches)]):
        if row.get("value", one) == one and _FITS.get(row["trait"], Text)(one) is not None:
            yield row["trait"], str(seconds_of(row, one) or one), one.line


_FITS: Mapping[str, Callable[[Text], Any]] = {
    "limit": whole_number,
    "memory": bytes_of,
    "local master": lambda one: is_loopback(one.removeprefix("tcp://")) or None,
}
