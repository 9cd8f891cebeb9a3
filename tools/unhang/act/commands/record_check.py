"""`unhang preprovision --verify RECORD`: checks that the gate signed an admission record for this
node, and that it is still valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.act.gate.verifying import NOT_PROVED, Verified, verify
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.run.documents import InvalidNode, to_facts
from unhang.core.signing import GOOD, check, public_key
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import visible

MOST_BYTES = 1 << 20


def check_record(
    record: Path, key_file: str | None, now: str | None, facts_file: Path | None, form: str
) -> int:
    """0 good, 3 not proved, 1 any other known state. Raises UserError for options that do not fit
    and for a file that cannot be read."""
    if not key_file:
        raise UserError(
            "--key is missing: --verify needs the gate's public key; use the controller's copy, not"
            " the node's"
        )
    if form not in ("table", "json"):
        raise UserError(f"--format takes table or json with --verify, not {form}")
    today, key = today_or(now), public_key(Path(key_file))
    facts = read_facts(facts_file) if facts_file else None
    text = _read(record, "an admission record").decode("utf-8", "replace")
    try:
        found = verify(text, today, lambda line, signature: check(line, signature, key), facts)
    except ValueError as problem:
        raise UserError(f"{record}: {problem}") from None
    print(
        json.dumps(_document(found), indent=2)
        if form == "json"
        else _lines(found, facts is not None)
    )
    return {GOOD: 0, NOT_PROVED: 3}.get(found.state, 1)


def read_facts(path: Path) -> Mapping[str, Any]:
    """The facts of a node, from a run's file or the collector's output. Raises UserError."""
    try:
        document = parse_strictly(_read(path, "a node's facts", run_folder.LONGEST_DOCUMENT))
    except NotStrict as problem:
        raise UserError(f"{path}: {problem}") from None
    facts = document.get("facts", document) if isinstance(document, dict) else None
    if not isinstance(facts, dict) or facts.get("schema") != "unhang/node-facts/1":
        raise UserError(f"{path} holds no facts of a node (unhang/node-facts/1)")
    try:
        to_facts(facts)
    except InvalidNode as problem:
        raise UserError(f"{path}: {problem}") from None
    return facts


def _read(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    try:
        return read_bounded(path, most)
    except OSError as problem:
        raise UserError(f"{path} cannot be read as {what}: {problem.strerror}") from None
    except NotStrict as problem:
        raise UserError(f"{path}: {problem}") from None


def _document(found: Verified) -> dict[str, Any]:
    names = ("host", "run", "admitted_at", "expires")
    return {
        "state": found.state,
        "why": list(found.why),
        "record": {name: found.record.get(name) for name in names},
    }


def _lines(found: Verified, compared: bool) -> str:
    record = found.record
    admission = (
        ""
        if found.state in ("unsigned", "tampered", "another key")
        else f": {record['host']}, admitted {record['admitted_at']}"
    )
    lines = [f"{found.state}{admission}", *(f"  {line}" for line in found.why)]
    if found.state == GOOD:
        lines.append(
            f"  holds until {record['expires']}"
            + ("" if compared else "; not compared with the node: --facts FILE does")
        )
    return "\n".join(visible(line, 1000) for line in lines)
