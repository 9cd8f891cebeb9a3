"""Prints rows in the format of `--format`: table, CSV, JSON. Imports no other package,
because `unhang lint` uses it on login nodes."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unhang.core.secrets_in_text import masked_document, without_secrets
from unhang.core.terminal import terminal_shape
from unhang.core.text import ascii_only, brief, cell_for_csv, visible

FORMATS = ("table", "csv", "json")
Row = Mapping[str, Any]


def show_rows(
    form: str,
    quiet: bool,
    table: Callable[[int], Sequence[str]],
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    lines_stay: bool = False,
) -> None:
    """table: width -> lines; rows: for the other formats, with the keys `columns`.

    lines_stay: a pipe has no width unless COLUMNS gives one, so that a row of the table stays one
    line for grep.
    """
    if quiet:
        return
    if form == "table":
        width, _, plain = terminal_shape(sys.stdout, os.environ)
        endless = lines_stay and not sys.stdout.isatty() and not os.environ.get("COLUMNS")
        text = without_secrets(
            "".join(f"{line.rstrip()}\n" for line in table(sys.maxsize if endless else width))
        )
        text = ascii_only(text) if plain else text
    elif form == "json":
        text = json.dumps(masked_document(list(rows)), ensure_ascii=True, indent=1) + "\n"
    else:
        text = _csv(rows, columns)
    sys.stdout.write(text)
    sys.stdout.flush()


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        shown = masked_document(row)
        writer.writerow([_cell(shown.get(name)) for name in columns])
    return out.getvalue()


def _cell(value: Any) -> str:
    """A cell that a spreadsheet reads as text: hosts separated by blanks, no formula."""
    shown = (
        " ".join(map(str, value))
        if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
        else brief(value)
    )
    text = "" if value is None else visible(shown, 30_000)
    return cell_for_csv(text)
