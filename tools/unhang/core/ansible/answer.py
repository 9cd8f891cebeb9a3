"""Reads a node's answer strictly: Ansible itself accepts NaN, duplicate keys, 200 MB and results
that rename hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unhang.core.ansible.printable_text import clean
from unhang.core.strict_json import parse_strictly

FACTS_SCHEMA = "unhang/node-facts/1"
ANSWER_LIMIT_CHARS = 4 * 1024 * 1024
PROBE_STATUSES = frozenset(("ok", "absent", "denied", "timeout", "error"))


@dataclass(frozen=True)
class NodeAnswer:
    """status: ok, failed or invalid; facts: the document when ok; message: one clean line
    otherwise; raw: the part of an invalid answer that is kept."""

    status: str
    facts: dict[str, Any] | None = None
    message: str | None = None
    raw: str | None = None


def read_answer(stdout: str) -> NodeAnswer:
    """The module's output on a node. Other lines (a login banner) are skipped; of its own line only
    known keys are used."""
    if len(stdout) > ANSWER_LIMIT_CHARS:
        return _invalid(
            stdout,
            f"the answer has {len(stdout)} characters, more than {ANSWER_LIMIT_CHARS}",
        )
    line = _last_object(stdout)
    if line is None:
        return _invalid(
            stdout,
            "the answer is not one JSON object, but "
            + (f"{clean(stdout, 120)!r}" if stdout.strip() else "nothing"),
        )
    try:
        envelope = parse_strictly(line, half_characters=True)
    except ValueError as problem:
        return _invalid(stdout, f"the answer is not one JSON object: {problem}")
    if envelope.get("failed"):
        return NodeAnswer(
            "failed", message=clean(envelope.get("msg") or "the module failed without a reason")
        )
    return read_facts(envelope.get("node_facts"), stdout)


def _last_object(stdout: str) -> str | None:
    """The last line that begins with a brace; the lines before it are not split, because there may
    be a million."""
    found = stdout.rfind("\n{")
    if found < 0 and not stdout.startswith("{"):
        return None
    return stdout[found + 1 :].partition("\n")[0].rstrip("\r")


def read_facts(facts: Any, raw: str) -> NodeAnswer:
    """facts: a facts document, or its JSON text; raw: the part to keep if it is neither."""
    if len(raw) > ANSWER_LIMIT_CHARS:
        return _invalid(
            raw, f"the answer has {len(raw)} characters, more than {ANSWER_LIMIT_CHARS}"
        )
    if isinstance(facts, str):
        try:
            facts = parse_strictly(facts, half_characters=True)
        except ValueError as problem:
            return _invalid(raw, f"node_facts is not a JSON document: {problem}")
    fault = what_is_wrong(facts)
    return _invalid(raw, fault) if fault else NodeAnswer("ok", facts=facts)


def what_is_wrong(facts: Any) -> str | None:
    """The reason why this is no facts document, or None. Checks only the structure; the judge
    checks the values, fact by fact."""
    if not isinstance(facts, dict) or facts.get("schema") != FACTS_SCHEMA:
        found = facts.get("schema") if isinstance(facts, dict) else type(facts).__name__
        return f"the document is not of schema {FACTS_SCHEMA}, but {clean(found, 80)!r}"
    sections = facts.get("sections")
    if not isinstance(sections, dict) or not isinstance(facts.get("collector"), dict):
        return "the document has no objects collector and sections"
    for name, section in sections.items():
        probe = section.get("probe") if isinstance(section, dict) else None
        status = probe.get("status") if isinstance(probe, dict) else None
        if not isinstance(status, str) or status not in PROBE_STATUSES:
            return f"sections.{clean(name, 40)}.probe has no status, but {clean(status, 40)!r}"
    return None


def _invalid(raw: str, message: str) -> NodeAnswer:
    return NodeAnswer("invalid", message=clean(message), raw=raw[:ANSWER_LIMIT_CHARS])
