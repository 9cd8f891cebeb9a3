"""Verdicts on evidence as documents, as a user gets them, and what takes verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unhang.jobs.inspect import answer, bundle, inspecting, rendering
from unhang.jobs.inspect.evidence import evidence_of
from unhang.jobs.inspect.inspection import Inspection, inspection_in
from unhang.jobs.watch import answers

LOOKS = Path(__file__).resolve().parents[1] / "fixtures" / "inspect"
EVIDENCE = LOOKS / "evidence"


def look(scene: str, way: str = "RAS-and-stacks", folder: str = "evidence") -> dict:
    """A recorded look at a real job."""
    return json.loads((LOOKS / folder / f"{scene}-{way}.json").read_text(encoding="utf-8"))


def inspection_of(documents: list) -> dict:
    return inspecting.inspection_of(evidence_of(documents)).as_document()


def _of_documents(takes: Callable) -> Callable:
    def called(*given: Any, **more: Any) -> Any:
        return takes(*map(_value, given), **more)

    return called


def _value(given: Any) -> Inspection | Any:
    return inspection_in(given) if isinstance(given, dict) else given


answer_of, certainty_of = map(_of_documents, (answer.answer_of, answer.certainty_of))
render_inspection, render_details, write_bundle = map(
    _of_documents, (rendering.render_inspection, rendering.render_details, bundle.write_bundle)
)
named_in, agreeing, halted_words = map(
    _of_documents, (answers.named_in, answers.agreeing, answers.halted_words)
)
