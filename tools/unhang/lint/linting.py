"""Lint of files: read, find settings, check, and show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unhang.errors import UserError
from unhang.given_files import PIPE_PATIENCE_S, PatientPipe
from unhang.lint.checks import Context, Finding, check_settings
from unhang.lint.fits import check_fits
from unhang.lint.knowledge import load_knowledge
from unhang.lint.lines import check_lines, versions_in
from unhang.lint.pods import check_library_path, check_pods
from unhang.lint.settings import IGNORED, find_settings, kind_of
from unhang.text import visible

SCHEMA = "unhang/lint/1"
LARGEST = 8 * 1024 * 1024
SEVERITIES = ("error", "warning", "info")
POD_RULES = ("pod-shm", "pod-ipc-lock", "foreign-libnccl")
_ENDINGS = {".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".service", ".conf", ".py", ".dockerfile", ".env", ".job", ""}


def lint(names: Iterable[str], context: Context, kind: str | None = None) -> dict[str, Any]:
    """The lint document of files and folders. Reads files. Raises UserError when one is not there or none was read."""
    answers = [_lint_file(file, context, kind) for file in find_files(names)]
    findings = [{"file": answer["file"], **finding} for answer in answers for finding in answer.pop("findings")]
    return {"schema": SCHEMA, "files": answers, "findings": findings, "totals": {word: sum(one["severity"] == word for one in findings) for word in SEVERITIES}}


def find_files(names: Iterable[str]) -> list[Path]:
    """The files that are meant, those of folders by their endings. Raises UserError when one is not there, or there are none."""
    files = [one for name in names for one in _files(name)]
    if not files:
        raise UserError("expected scripts or configuration files, found none in what was named")
    return files


def _files(name: str) -> list[Path]:
    path = Path(name)
    if not path.exists():
        raise UserError(f"expected a script, a configuration file or a folder, found nothing at {name}")
    if not path.is_dir():
        return [path]
    return [one for one in sorted(path.rglob("*")) if one.is_file() and one.suffix.lower() in _ENDINGS and ".git" not in one.parts]


def _lint_file(path: Path, context: Context, kind: str | None) -> dict[str, Any]:
    text = read_script(path)
    if text is None:
        return {"file": str(path), "kind": "skipped", "note": "is binary or larger than 8 MiB", "findings": []}
    chosen = kind or kind_of(str(path), text)
    found = lint_text(text, chosen, context)
    return {"file": str(path), "kind": chosen, "note": None, "findings": [asdict(one) for one in found]}


def read_script(path: Path) -> str | None:
    """The text without a byte order mark; None of what is binary or larger than 8 MiB. Raises UserError."""
    try:
        data = _read(path)
    except OSError as problem:
        raise UserError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    return None if len(data) > LARGEST or b"\0" in data[:8000] else data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def _read(path: Path) -> bytes:
    """At most LARGEST + 1 bytes. Raises OSError, also for a pipe through which nothing comes."""
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
    here = replace(context, nccl=context.nccl or nccl, torch=context.torch or torch)
    found = [*check_settings(find_settings(text, kind), known, here), *check_lines(text, known), *check_pods(text, kind), *check_library_path(text)]
    found += check_fits(text, known)
    ignored = {number for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)}
    found = [one for one in found if one.line not in ignored or one.rule not in POD_RULES]
    unique = {(one.line, one.rule, one.found): one for one in found}
    return sorted(unique.values(), key=lambda one: (one.line, SEVERITIES.index(one.severity), one.rule))


def render_table(document: Mapping[str, Any]) -> str:
    """One finding in three lines: where and what, why, what instead."""
    lines = []
    for one in document["findings"]:
        lines.append(f"{visible(one['file'], 200)}:{one['line']}: {one['severity']}: {visible(one['found'], 160)} [{one['rule']}]")
        lines += [f"    why      {visible(one['why'], 400)}", f"    instead  {visible(one['instead'], 900)}", f"    source   {one['source']}", ""]
    lines += [f"{visible(one['file'], 200)}: {one['note']}" for one in document["files"] if one["note"]]
    totals = document["totals"]
    lines.append(f"{len(document['files'])} files: {totals['error']} errors, {totals['warning']} warnings, {totals['info']} remarks")
    return "\n".join(lines) + "\n"


def render_json(document: Mapping[str, Any]) -> str:
    """One JSON object and nothing else."""
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"
