"""New and resolved findings of a run, sent to the hooks and webhooks of the caller."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from unhang.audit.history.changes import FoundChange, finding_changes
from unhang.audit.history.database import reading
from unhang.audit.history.location import database_file
from unhang.audit.history.news import news_of
from unhang.audit.history.run_rows import RunRow, run_named, run_rows
from unhang.core import project
from unhang.core.commands.hook_orphans import call_and_end_all
from unhang.core.commands.hooks import send
from unhang.core.errors import UserError
from unhang.core.text import visible


def report_run(run: str, arguments: argparse.Namespace) -> None:
    """Sends the changes of a run that was just stored, compared with the run before it. Never
    raises, because a hook must not make the run fail."""
    if not (arguments.webhook or arguments.hook):
        return
    try:
        file = database_file(arguments.db)
        if file is None:
            raise UserError(
                "expected a history, which shows what is new, found none: UNHANG_HISTORY=off"
                " switches it off"
            )
        with reading(file) as connection:
            rows, now = run_rows(connection), run_named(connection, run)
            earlier = [row for row in rows if row.seq < now.seq]
            changes = finding_changes(connection, earlier[-1].seq, now.seq) if earlier else ()
        if not earlier:
            raise UserError(
                "this is the first run of the history, with nothing to compare it with; the next"
                " run will have news"
            )
        tell(earlier[-1], now, changes, arguments)
    except UserError as problem:
        sys.stderr.write(f"unhang: no hook was called: {visible(str(problem), 400)}\n")
    except Exception as problem:  # in any case the run has been read and judged
        sys.stderr.write(
            f"unhang: no hook was called: a fault of unhang itself: {type(problem).__name__}\n"
        )


def tell(
    before: RunRow, now: RunRow, changes: Sequence[FoundChange], arguments: argparse.Namespace
) -> None:
    """Calls each hook, if a finding is new or resolved; a failure is one line on standard error."""
    news = news_of(before, now, changes, arguments.fail_on)
    if news is None:
        return
    for line in send(news, arguments, call_and_end_all):
        sys.stderr.write(
            f"unhang: {line}; to send it again: {project.program_as_typed()} diff"
            f" {shlex.quote(before.id)} {shlex.quote(now.id)}, with the same option\n"
        )
