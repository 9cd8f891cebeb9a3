"""Lint of files: read, find settings, check, and show."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from typing import Any

from unhang.core.errors import UserError
from unhang.core.path_arguments import PIPE_PATIENCE_S, PatientPipe
from unhang.core.secrets_in_text import cut_without_secrets
from unhang.core.text import counted, visible
from unhang.core.together import NOT_READ, Together
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.batch import check_directives, read_batch
from unhang.jobs.lint.checks import Context, check_settings
from unhang.jobs.lint.hcl_nodes import documents_of, read_hcl
from unhang.jobs.lint.job_faults import check_jobs
from unhang.jobs.lint.knowledge import Findings, said
from unhang.jobs.lint.launch_faults import check_launches, meeting_points
from unhang.jobs.lint.lines import (
    RCCL,
    check_fits,
    check_lines,
    values_in,
    versions_in,
)
from unhang.jobs.lint.python_names import line_of, read_python
from unhang.jobs.lint.python_ranks import check_python
from unhang.jobs.lint.settings import OF_CONTAINERS, find_settings, ignored_lines, kind_of
from unhang.jobs.lint.yaml_launches import jobs_of
from unhang.jobs.lint.yaml_nodes import read_yaml

SCHEMA = "unhang/lint/1"
LARGEST = 8 * 1024 * 1024
MOST_FILES = 100_000  # of a folder
MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S = 1 << 30, 600
SHOWN_NOTES = 50
LONGEST_FOUND = 160
SEVERITIES = ("error", "warning", "info")
STDIN = "-"
PIPED_WIDTH = 100  # as the tables of a run have it
_SCRIPTS = re.compile(
    r"\.(?:sh|bash|sbatch|slurm|ya?ml|service|conf|py|dockerfile|env|job|nomad|hcl)$|^\.?[^.]*$|^(?:docker|container)file"
)
_TEMPLATE = re.compile(r"\{\{|\{%|<%")
_LANGUAGES: Mapping[str, tuple[Any, str, str]] = {
    "python": (read_python, "Python", "https://docs.python.org/3/reference/"),
    "kubernetes": (read_yaml, "YAML", "https://yaml.org/spec/1.2.2/"),
    "nomad": (read_hcl, "HCL", "https://developer.hashicorp.com/nomad/docs/job-specification/hcl2"),
}
_LOGS = {".log", ".out", ".err"}


def lint(
    names: Sequence[str],
    context: Context,
    kind: str | None = None,
    together: Together | None = None,
) -> dict[str, Any]:
    """The lint document of files and folders. Reads files. Raises UserError if one is missing or
    none could be read. together: the limits of all files."""
    together = together or Together(MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S)
    answers = [_lint_file(file, context, kind, together) for file in find_files(names)]
    if all(answer["kind"] == "skipped" for answer in answers):
        raise UserError(
            f"{answers[0]['file']} {answers[0]['note']}, so nothing was read; unhang lint reads"
            " scripts and configuration files"
        )
    findings = [
        {"file": answer["file"], **finding}
        for answer in answers
        for finding in answer.pop("findings")
    ]
    return {
        "schema": SCHEMA,
        "files": answers,
        "findings": findings,
        "totals": totals_of(findings),
    }


def totals_of(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of findings of each severity."""
    return {word: sum(one["severity"] == word for one in findings) for word in SEVERITIES}


def is_whole(document: Mapping[str, Any]) -> bool:
    """Whether every file was read, and none left out because of the limits of all."""
    return not any((one["note"] or "").startswith(NOT_READ) for one in document["files"])


def find_files(names: Sequence[str]) -> list[Path]:
    """The named files, and those in folders by their endings. Raises UserError if one is missing,
    or there are none."""
    files = [one for name in names for one in _files(name)]
    if not files:
        raise UserError(
            f"{', '.join(names)} has no scripts or configuration files; name a file itself to have"
            " it read whatever its ending is"
        )
    return files


def _files(name: str) -> list[Path]:
    path = Path(name)
    if name == STDIN:
        return [path]
    if not path.exists():
        raise UserError(f"{name} does not exist; name a script, a configuration file or a folder")
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(one for one in folders if one != ".git")
        found += [
            one
            for one in map(Path(folder).joinpath, files)  # by its ending, or as Dockerfile.gpu
            if _SCRIPTS.search(one.name.lower()) and one.is_file()
        ]
        if len(found) > MOST_FILES:
            raise UserError(f"{name}: holds more than {MOST_FILES:,} files; name those that matter")
    return sorted(found)


def _lint_file(
    path: Path, context: Context, kind: str | None, together: Together
) -> dict[str, Any]:
    answer = {"file": "(stdin)" if str(path) == STDIN else str(path), "kind": "skipped"}
    if over := together.reached():
        return {**answer, "note": over, "findings": []}
    text = read_script(path)
    together.bytes += len(text or "")
    if text is None:
        return {**answer, "note": "is binary or larger than 8 MiB", "findings": []}
    answer["kind"] = kind or kind_of(str(path), text)

    def beside(name: str) -> str:
        there = path.parent / PurePath(name).name
        return (read_script(there) or "") if there.is_file() and str(path) != STDIN else ""

    here = replace(context, beside=beside)
    found = [asdict(one) for one in lint_text(text, answer["kind"], here)]
    note = "has the name of a log but was read as a script; unhang diagnose reads logs"
    is_odd = not found and path.suffix.lower() in _LOGS
    return {**answer, "note": note if is_odd else None, "findings": found}


def read_script(path: Path) -> str | None:
    """The text without a byte order mark; None for a file that is binary or larger than 8 MiB.
    Raises UserError."""
    try:
        data = _read(path)
    except OSError as problem:
        raise UserError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    return (
        None
        if len(data) > LARGEST or b"\0" in data[:8000]
        else data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    )


def _read(path: Path) -> bytes:
    """At most LARGEST + 1 bytes. Raises OSError, also for a pipe without data."""
    if str(path) == STDIN:
        return sys.stdin.buffer.read(LARGEST + 1)
    if not path.is_fifo():
        with path.open("rb") as source:
            return source.read(LARGEST + 1)
    data, pipe = b"", PatientPipe(path, PIPE_PATIENCE_S)
    try:
        while len(data) <= LARGEST and (more := pipe.read(LARGEST + 1 - len(data))):
            data += more
    finally:
        pipe.close()
    return data


def lint_text(text: str, kind: str, context: Context) -> list[Finding]:
    """The findings of one file's text. Text in, values out."""
    nccl, torch = versions_in(text)
    jobs = jobs_of(documents_of(text, kind), context.beside) if kind in OF_CONTAINERS else []
    launches = [one for job in jobs for one in job.launches]
    found: list[Finding] = []
    if kind == "python":
        found += check_python(text)
    elif kind in ("shell", "slurm"):
        place, launches = read_batch(text, context.beside)
        found += [*check_launches(launches), *check_directives(place.asked, text)]
    silent = set()
    if jobs and not any(role.host_network for job in jobs for role in job.roles):
        silent.add("guessed")  # eth0 is the interface of a pod's own network
    if any(
        "standalone" in one.options or "1" in (str(one.waits), one.place.asked.get("nodes"))
        for one in launches
    ) and not any(one.is_wide for one in launches):
        silent |= {"own_machine", "hides_between"}
    here = Context(
        context.nccl or nccl,
        context.torch or torch,
        context.platform,
        RCCL.search(text) is not None,
        silent,
        context.beside,
    )
    found += check_settings(find_settings(text, kind), here)
    found += [*check_fits(text), *check_parsed(text, kind)]
    found += check_jobs(jobs, launches)
    found += meeting_points([one for one in launches if one.node is not None and one.meeting])
    found += check_lines(text, values_in(text, kind, [one.options for one in launches]))
    ignored = ignored_lines(text)
    found = [
        replace(one, found=cut_without_secrets(one.found, LONGEST_FOUND))
        for one in found
        if one.line not in ignored
    ]
    unique = {(one.line, one.rule, one.found): one for one in found}
    return sorted(
        unique.values(), key=lambda one: (one.line, SEVERITIES.index(one.severity), one.rule)
    )


def check_parsed(text: str, kind: str) -> Findings:
    """One finding if the text could not be parsed: a warning if it is not valid, info for a
    template and for what is too large or deep."""
    if kind not in _LANGUAGES:
        return
    reader, language, source = _LANGUAGES[kind]
    read = reader(text)
    values = {"language": language, "line": read.line}
    if not read.is_read:
        yield said("not_read", 1, "the whole file", values, source)
    elif read.line is not None:
        line = line_of(text.splitlines(), read.line)
        key = "template" if _TEMPLATE.search(line if kind == "python" else text) else "not_valid"
        yield said(key, read.line, line or "the end of the file", values, source)


def render_table(document: Mapping[str, Any], width: int | None = None) -> str:
    """One finding in at most four lines, or three if there are eight: where and what in the first,
    which editors and CI read; why and what instead below it; the other outputs have all of it.

    width: columns; by default COLUMNS, else those of the terminal, else 100.
    """
    width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if width is None else width
    lines, most = [], 3 if len(document["findings"]) >= 8 else 4
    advised: dict[tuple[str, ...], int] = {}
    for one in document["findings"]:
        file, rule, why, instead, found = (
            visible(str(one[name]), 900) for name in ("file", "rule", "why", "instead", "found")
        )
        head = f"{file[:200]}:{one['line']}: {one['severity']}: {found[:160]} [{rule}]"
        first = advised.setdefault((file, rule, why, instead), one["line"])
        if first != one["line"]:
            lines.append(f"{head}, as in line {first}")
            continue
        reason = _part("why", why, width, most - 2)
        lines += [head, *reason, *_part("instead", instead, width, most - 1 - len(reason))]
    notes = [
        f"{visible(one['file'], 200)}: {one['note']}" for one in document["files"] if one["note"]
    ]
    more = counted(len(notes) - SHOWN_NOTES, "more file")
    if len(notes) > SHOWN_NOTES:
        notes[SHOWN_NOTES:] = [f"and {more} with such a note: -o json names them"]
    words = zip(SEVERITIES, ("error", "warning", "remark"), strict=True)
    totals = ", ".join(counted(document["totals"][one], word) for one, word in words)
    skipped = sum(one["kind"] == "skipped" for one in document["files"])
    unread = f"; {counted(skipped, 'more file')} not read" if skipped else ""
    read = counted(len(document["files"]) - skipped, "file")
    return "\n".join([*lines, *notes, f"{read}: {totals}{unread}"]) + "\n"


def _part(label: str, text: str, width: int, most: int) -> list[str]:
    start = f"    {label:<9}"
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
        break_long_words=False,
        max_lines=most,
        placeholder=" ...",
    )
