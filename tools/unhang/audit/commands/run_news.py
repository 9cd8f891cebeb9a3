"""New and resolved findings of a run, sent to the hooks and webhooks of the caller."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from unhang.audit.history.changes import FoundChange, finding_changes
from unhang.audit.history.news import news_of
from unhang.audit.history.runs import PastRun, past_run, run_before
from unhang.core import project
from unhang.core.commands.hook_orphans import call_and_end_all
from unhang.core.commands.hooks import Hooks, send
from unhang.core.errors import UserError
from unhang.core.text import visible


def report_run(folder: Path, hooks: Hooks, fail_on: str) -> None:
    """Sends what changed since the run before this one. Never raises, because a hook must not make
    the run fail."""
    if not (hooks.webhook or hooks.hook):
        return
    try:
        now = past_run(folder)
        before = run_before(now)
        if before is None:
            raise UserError(
                "this is the first run of its inventory, with nothing to compare it with; the next"
                " run will have news"
            )
        tell(before, now, finding_changes(before, now), hooks, fail_on)
    except UserError as problem:
        sys.stderr.write(f"unhang: no hook was called: {visible(str(problem), 400)}\n")
    except Exception as problem:  # in any case the run has been read and judged
        sys.stderr.write(
            f"unhang: no hook was called: a fault of unhang itself: {type(problem).__name__}\n"
        )


def tell(
    before: PastRun, now: PastRun, changes: Sequence[FoundChange], hooks: Hooks, fail_on: str
) -> None:
    """Calls each hook, if a finding is new or resolved; a failure is one line on standard error."""
    news = news_of(before, now, changes, fail_on)
    if news is None:
        return
    for line in send(news, hooks, call_and_end_all):
        sys.stderr.write(
            f"unhang: {line}; to send it again: {project.program_as_typed()} history diff"
            f" {shlex.quote(before.id)} {shlex.quote(now.id)}, with the same option\n"
        )
