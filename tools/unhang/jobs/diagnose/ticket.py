"""A diagnosis as Markdown for a ticket. Document in, text out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from unhang.core.verdict.answer import JobAnswer, screen_of
from unhang.core.verdict.screen import render_screen
from unhang.jobs.diagnose.answer import answer_of
from unhang.jobs.diagnose.rendering import no_log, render_page, render_table


def render_markdown(
    diagnosis: Mapping[str, Any], answer: JobAnswer | None = None, look: str = ""
) -> str:
    """The first screen, then all of it, in code blocks, which text from logs cannot end. answer:
    another one than the diagnosis' own; look: what a look at the job saw."""
    if page := no_log(diagnosis):
        return fenced(render_page(page))
    parts = [
        render_screen(screen_of(answer or answer_of(diagnosis))),
        look,
        render_table(diagnosis),
    ]
    return "\n".join(["## unhang diagnose\n", *(fenced(part) for part in parts if part)])


def fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"
