"""Shows the result of the smoke test: as a table, JSON or JUnit, and as a file."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from unhang.core.json_text import render_json
from unhang.core.run.whole_files import write_named
from unhang.core.secrets_in_text import masked_document
from unhang.core.smoke_result import SmokeResult, document_of, smoke_result
from unhang.core.terminal import terminal_shape
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import EXIT_CODES


def exit_code(result: SmokeResult) -> int:
    """0 pass, 1 fail, 2 nothing could be tested, 3 not proved, because the machine is busy."""
    return 3 if result.not_proved else EXIT_CODES[result.verdict]


def deliver(result: SmokeResult, form: str, out: str | None) -> None:
    """Writes unhang/smoke/1 to standard output in the format asked for, and as JSON to the file
    that --out names.

    If the file cannot be written, the result is still on standard output, because it took minutes
    of many GPUs.
    """
    try:
        if out:
            write_named(Path(out), render_json(document_of(result)))
    except OSError:
        with contextlib.suppress(OSError):
            _print(result, form)
        raise
    _print(result, form)


def _print(result: SmokeResult, form: str) -> None:
    if form == "json":
        print(render_json(document_of(result)))
    elif form == "junit":
        print(render_junit(result), end="")
    else:
        width, _, plain = terminal_shape(sys.stdout, os.environ)
        shown = smoke_result(masked_document(document_of(result)))
        print(render_table(shown, width, plain), end="")
