"""Shows the result of the smoke test: as a table, JSON or JUnit, and as a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.core.json_text import render_json
from unhang.core.run.run_folder import write_named
from unhang.core.secrets_in_text import masked_document
from unhang.core.terminal import terminal_shape
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import EXIT_CODES


def exit_code(document: Mapping[str, Any]) -> int:
    """0 pass, 1 fail, 2 nothing could be proved. document: as of deliver."""
    return EXIT_CODES[document["verdict"]]


def deliver(document: Mapping[str, Any], form: str, out: str | None) -> None:
    """Writes unhang/smoke/1 to standard output in the format asked for, and as JSON to the file
    that --out names.

    If the file cannot be written, the result is still on standard output, because it took minutes
    of many GPUs.
    """
    try:
        if out:
            write_named(Path(out), render_json(document))
    except OSError:
        with contextlib.suppress(OSError):
            _print(document, form)
        raise
    _print(document, form)


def _print(document: Mapping[str, Any], form: str) -> None:
    if form == "json":
        print(render_json(document))
    elif form == "junit":
        print(render_junit(document), end="")
    else:
        width, _, plain = terminal_shape(sys.stdout, os.environ)
        print(render_table(masked_document(document), width, plain), end="")
