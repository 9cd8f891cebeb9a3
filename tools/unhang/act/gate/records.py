"""Writes the admission files of a gate's run: RUN/admission/HOST for each node that passed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang.act.gate.admission import admission_file, admission_record
from unhang.act.gate.deciding import PASS
from unhang.act.gate.outcome import FILE_NAME
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.schemas.configuration import canonical
from unhang.core.signing import public_key, sign
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded

FOLDER = "admission"


def write_records(folder: Path, key: Path | None, days: int) -> list[Path]:
    """The files written. folder: the run; key: the gate's private key, None for records without a
    signature. Raises UserError, OSError."""
    gate = read_gate(folder)
    admitted_at = _end_of(folder)
    passed = {row["host"] for row in gate["nodes"] if row["outcome"] == PASS}
    public = public_key(key) if key else ""
    written = []
    for host, facts in _facts(folder, passed):
        line = canonical(admission_record(host, facts, gate, admitted_at, days))
        place = folder / FOLDER / run_folder.file_stem(host)
        place.parent.mkdir(exist_ok=True)
        run_folder.write_atomically(
            place, admission_file(line, sign(line, key) if key else "", public)
        )
        written.append(place)
    return written


def read_gate(folder: Path) -> dict[str, Any]:
    """gate.json of a run. Raises UserError."""
    try:
        found: dict[str, Any] = parse_strictly(
            read_bounded(folder / FILE_NAME, run_folder.LONGEST_DOCUMENT)
        )
    except (OSError, NotStrict) as problem:
        raise UserError(
            f"{folder} has no {FILE_NAME} that can be read ({problem}); unhang preprovision writes"
            " it"
        ) from None
    return found


def _facts(folder: Path, hosts: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in run_folder.node_files(folder):
        node = run_folder.read_node(path)
        if node.get("host") in hosts and isinstance(node.get("facts"), dict):
            yield str(node["host"]), node["facts"]


def _end_of(folder: Path) -> datetime.datetime:
    """The time of the gate's audit, by the controller's clock: a record that is written again later
    is not valid for longer."""
    document = run_folder.read_run(folder).document
    text = str(document.get("finished") or document.get("started"))
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError:
        raise UserError(
            f"{folder / 'run.json'} must give a time in started, and gives {text[:40]!r}"
        ) from None
