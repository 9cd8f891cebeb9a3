"""`unhang signature check [DIR]`: checks the catalogue's signatures, each on its own examples, and
names file and id of each fault."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.core.catalogue.kept_yaml import PACKAGE, folders_of
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.schemas.shapes import nearest
from unhang.core.text import counted, visible
from unhang.jobs.diagnose.matching.signatures import (
    load_causes,
    proof_faults,
    read_signature,
    shape_faults,
    signature_files,
)

EXAMPLES = """\
  unhang signature check                                        all of them
  unhang signature check tools/unhang/jobs/catalogue/signatures/nccl   those of one program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        nargs="?",
        default=folders_of("signatures")[0],
        help="a folder of the catalogue (default: %(default)s)",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if there are faults. Raises UserError for a folder outside the catalogue, which
    nothing reads."""
    folder = arguments.folder.resolve()
    if not folder.is_relative_to(PACKAGE):
        raise UserError(
            f"expected a folder in {PACKAGE}, whose signatures unhang diagnose reads, found"
            f" {folder}"
        )
    faults = list(signature_faults(folder))
    for fault in faults:
        print(visible(fault, 1000))
    if not faults:
        print(f"{folder}: {counted(len(_rows_in(folder)), 'signature')}, no fault")
    return int(bool(faults))


def signature_faults(folder: Path) -> Iterator[str]:
    """One line for each fault of the signatures in the files of this folder, which lies in the
    catalogue."""
    ids = Counter(row["id"] for _, content in signature_files() for row in content["signatures"])
    for path, row in _rows_in(folder):
        found = [*shape_faults(row), *_named_faults(row)] + (
            ["its id stands twice"] if ids[row["id"]] > 1 else []
        )
        yield from (
            f"{path}: signature {row['id']}: {fault}"
            for fault in found or proof_faults(read_signature(row))
        )


def _rows_in(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """(file, row with the defaults of its file)."""
    files = [(path, content) for path, content in signature_files() if path.is_relative_to(folder)]
    return [
        (path, {**content.get("defaults", {}), **row})
        for path, content in files
        for row in content["signatures"]
    ]


def _named_faults(row: Mapping[str, Any]) -> Iterator[str]:
    """Causes that the catalogue does not have."""
    causes = load_causes()
    for name in ("for", "against"):
        yield from (
            f"{name}: there is no cause {cause}{nearest(cause, causes)}"
            for cause in row.get(name, {})
            if cause not in causes
        )
