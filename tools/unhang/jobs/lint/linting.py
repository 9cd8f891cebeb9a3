"""Lint of files: read, find settings, check, and show."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.path_arguments import PIPE_PATIENCE_S, PatientPipe
from unhang.core.secrets_in_text import cut_without_secrets
from unhang.core.text import counted, visible
from unhang.core.together import NOT_READ, Together
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.checks import Context, check_settings
from unhang.jobs.lint.compose import check_compose
from unhang.jobs.lint.knowledge import load_knowledge
from unhang.jobs.lint.launch_checks import check_launch
from unhang.jobs.lint.lines import about, check_lines, versions_in
from unhang.jobs.lint.parsed import check_parsed
from unhang.jobs.lint.pod_launches import check_pod_launches
from unhang.jobs.lint.pods import check_library_path, check_pods
from unhang.jobs.lint.python_ranks import check_python
from unhang.jobs.lint.settings import IGNORED, find_settings, kind_of
from unhang.jobs.lint.task_launches import check_task_launches
from unhang.jobs.lint.version_match import check_fits

SCHEMA = "unhang/lint/1"
LARGEST = 8 * 1024 * 1024
MOST_FILES = 100_000  # of a folder
MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S = 1 << 30, 600
SHOWN_NOTES = 50
LONGEST_FOUND = 160
SEVERITIES = ("error", "warning", "info")
STDIN = "-"
PIPED_WIDTH = 100  # as the tables of a run have it
_ENDINGS = {
    ".sh",
    ".bash",
    ".sbatch",
    ".slurm",
    ".yaml",
    ".yml",
    ".service",
    ".conf",
    ".py",
    ".dockerfile",
    ".env",
    ".job",
    "",
}
_HOST_NETWORK = re.compile(
    r"hostNetwork[\"']?:\s{1,8}[\"']?[Tt]rue|network_mode[\"']?:\s{1,8}[\"']?host|k8s\.v1\.cni\.cncf\.io"
)
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
        "totals": {word: sum(one["severity"] == word for one in findings) for word in SEVERITIES},
    }


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
            one for one in map(Path(folder).joinpath, files) if _is_script(one) and one.is_file()
        ]
        if len(found) > MOST_FILES:
            raise UserError(f"{name}: holds more than {MOST_FILES:,} files; name those that matter")
    return sorted(found)


def _is_script(path: Path) -> bool:
    """Whether a file in a folder is read: by its ending, or by its name as a Dockerfile
    (Dockerfile.gpu)."""
    return path.suffix.lower() in _ENDINGS or path.name.lower().startswith(
        ("dockerfile", "containerfile")
    )


def _lint_file(
    path: Path, context: Context, kind: str | None, together: Together
) -> dict[str, Any]:
    shown = "(stdin)" if str(path) == STDIN else str(path)
    if over := together.reached():
        return {"file": shown, "kind": "skipped", "note": over, "findings": []}
    text = read_script(path)
    together.bytes += len(text or "")
    if text is None:
        return {
            "file": shown,
            "kind": "skipped",
            "note": "is binary or larger than 8 MiB",
            "findings": [],
        }
    chosen = kind or kind_of(str(path), text)
    found = lint_text(text, chosen, context)
    note = (
        "has the name of a log but was read as a script; unhang diagnose reads logs"
        if not found and path.suffix.lower() in _LOGS
        else None
    )
    return {"file": shown, "kind": chosen, "note": note, "findings": [asdict(one) for one in found]}


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
    known = load_knowledge()
    nccl, torch = versions_in(text, known)
    rccl, benchmark = about(text)
    own_network = kind == "kubernetes" and not _HOST_NETWORK.search(text)
    here = replace(
        context,
        nccl=context.nccl or nccl,
        torch=context.torch or torch,
        rccl=rccl,
        pod_network=own_network,
    )
    found = [
        *check_settings(find_settings(text, kind), known, here),
        *check_lines(text, known),
        *check_pods(text, kind),
        *check_library_path(text, benchmark),
    ]
    found += [
        *check_fits(text, known),
        *check_launch(text, kind),
        *(check_python(text) if kind == "python" else ()),
    ]
    found += [*check_parsed(text, kind), *check_compose(text, kind)]
    found += [*check_pod_launches(text), *check_task_launches(text)] if kind == "kubernetes" else []
    ignored = {number for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)}
    found = [
        replace(one, found=cut_without_secrets(one.found, LONGEST_FOUND))
        for one in found
        if one.line not in ignored
    ]
    unique = {(one.line, one.rule, one.found): one for one in found}
    return sorted(
        unique.values(), key=lambda one: (one.line, SEVERITIES.index(one.severity), one.rule)
    )


def render_table(document: Mapping[str, Any], width: int | None = None) -> str:
    """One finding: where and what in one line, which editors and CI read; why, what instead and the
    source below it, wrapped.

    width: columns; by default COLUMNS, else those of the terminal, else 100.
    """
    width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if width is None else width
    lines = []
    advised: dict[tuple[str, ...], int] = {}
    for one in document["findings"]:
        same = tuple(str(one[name]) for name in ("file", "rule", "why", "instead"))
        if (first := advised.setdefault(same, one["line"])) != one["line"]:
            lines.append(
                f"{visible(one['file'], 200)}:{one['line']}: {one['severity']}:"
                f" {visible(one['found'], 160)} [{one['rule']}], as in line {first}"
            )
            continue
        lines.append(
            f"{visible(one['file'], 200)}:{one['line']}: {one['severity']}:"
            f" {visible(one['found'], 160)} [{one['rule']}]"
        )
        parts = (
            ("why", visible(one["why"], 400)),
            ("instead", visible(one["instead"], 900)),
            ("source", one["source"]),
        )
        lines += [*(line for label, text in parts for line in _part(label, text, width)), ""]
    notes = [
        f"{visible(one['file'], 200)}: {one['note']}" for one in document["files"] if one["note"]
    ]
    lines += notes[:SHOWN_NOTES]
    if len(notes) > SHOWN_NOTES:
        lines.append(
            f"and {counted(len(notes) - SHOWN_NOTES, 'more file')} with such a note: -o json names"
            " them"
        )
    counts = [
        sum(one["severity"] == severity for one in document["findings"]) for severity in SEVERITIES
    ]
    totals = (
        counted(count, word)
        for count, word in zip(counts, ("error", "warning", "remark"), strict=True)
    )
    skipped = sum(one["kind"] == "skipped" for one in document["files"])
    unread = f"; {counted(skipped, 'more file')} not read" if skipped else ""
    lines.append(
        f"{counted(len(document['files']) - skipped, 'file')}: {', '.join(totals)}{unread}"
    )
    return "\n".join(lines) + "\n"


def _part(label: str, text: str, width: int) -> list[str]:
    start = f"    {label:<9}"
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
        break_long_words=False,
    )


def render_json(document: Mapping[str, Any]) -> str:
    """One JSON object and nothing else."""
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"
