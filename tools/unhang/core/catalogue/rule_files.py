"""The files of a catalogue's rules and entries, in its own folders and those of a site: which there
are, and rows that name each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from unhang.core.catalogue.explains import circles
from unhang.core.catalogue.own_files import folders_of, is_built_in
from unhang.core.catalogue.reading import CatalogueFile, read_file
from unhang.core.catalogue.scope_texts import with_texts
from unhang.core.errors import UserError
from unhang.core.schemas.reading import nearest

OWN_FOLDERS = ("rules", "tables", "entries")  # other folders beside them are not for the judge
ROW = re.compile(r"^  - id: ([a-z0-9_-]+)$", re.MULTILINE)
MAX_FILES = 500


def own_folders() -> list[Path]:
    """The catalogue's own folders of rules, tables and entries. Raises UserError if it has no
    rules, because judging without rules would find nothing."""
    if not folders_of("rules"):
        raise UserError(
            "unhang's rules are missing: this installation is damaged; install unhang again"
        )
    return [folder for kind in OWN_FOLDERS for folder in folders_of(kind)]


def own_rule_ids() -> set[str]:
    """Ids of the catalogue's own rules, found without parsing them: reading and compiling all of
    it takes seconds."""
    paths = (path for folder in folders_of("rules") for path in folder.rglob("*.yml"))
    return {found for path in paths for found in ROW.findall(path.read_text(encoding="utf-8"))}


def read_folders(folders: Iterable[Path], faults: list[str]) -> Iterator[CatalogueFile]:
    """Every *.yml and *.yaml of the folders, in the order of their names. Adds the faults to
    `faults`."""
    for folder in folders:
        if not folder.is_dir():
            faults.append(f"{folder}: no such folder of rules")
            continue
        paths = sorted(path for path in folder.rglob("*.y*ml") if path.suffix in (".yml", ".yaml"))
        if not paths and not is_built_in(folder):
            faults.append(f"{folder}: holds no .yml file")
        if len(paths) > MAX_FILES:
            faults.append(f"{folder}: {len(paths)} files, at most {MAX_FILES} are read")
        for path in paths[:MAX_FILES]:
            for file in read_file(path, faults):
                yield replace(file, rows=[(place, with_texts(row)) for place, row in file.rows])


class FiledRow(NamedTuple):
    """A row with its file. kind: rules or entries; place: its number among the rows of this
    kind."""

    file: CatalogueFile
    kind: str
    place: int
    row: dict[str, Any]


def check_ids(files: Iterable[CatalogueFile], faults: list[str]) -> Iterator[FiledRow]:
    """Every row whose id is used for the first time.

    Adds to `faults` the duplicates, unknown ids in `also` and `explains`, and rules that explain
    themselves.
    """
    files = list(files)
    seen: dict[str, str] = {}
    rows = [
        FiledRow(file, kind, *one)
        for kind in ("rules", "entries")
        for file in files
        for one in (file.rows if kind == "rules" else file.entries)
    ]
    for file, kind, place, row in rows:
        if row["id"] in seen:
            faults.append(
                f"{file.at(kind, place, 'id')}: the id {row['id']} is already used at"
                f" {seen[row['id']]}"
            )
        else:
            seen[row["id"]] = file.at(kind, place)
            yield FiledRow(file, kind, place, row)
    known = {**seen, **{name: str(file.path) for file in files for name in file.refused}}
    for file, kind, place, row in rows:
        if kind == "rules":
            faults += _named_rules(file, place, row, known)
    faults += circles({row["id"]: row for _, kind, _, row in rows if kind == "rules"})


def _named_rules(
    file: CatalogueFile, place: int, row: Mapping[str, Any], ids: Mapping[str, str]
) -> Iterator[str]:
    """Ids in `also` and `explains` that no rule has, and in `explains_only` that `explains` has
    not."""
    for other in row.get("explains_only", {}).keys() - {*row.get("explains", ())}:
        yield (
            f"{file.at('rules', place, 'explains_only')}: rule {row['id']}: explains_only: {other}"
            " is not in explains"
        )
    for name in ("also", "explains"):
        for number, other in enumerate(row.get(name, ())):
            if other not in ids:
                yield (
                    f"{file.at('rules', place, name, number)}: rule {row['id']}: {name}: there is"
                    f" no rule {other}{nearest(other, ids)}"
                )
