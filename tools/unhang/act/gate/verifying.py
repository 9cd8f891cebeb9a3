"""The result of `unhang preprovision --verify` for an admission file: one of several states. Reads
no file and asks ssh-keygen only through `check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unhang.act.gate.admission import differences, is_of_another_node, unread_facts, unread_identity
from unhang.core.schemas.check import check_schema
from unhang.core.signing import ANOTHER_KEY, GOOD, TAMPERED
from unhang_node.facts.parse.admission import parse_admission

UNSIGNED, EXPIRED, ANOTHER_NODE, CHANGED = "unsigned", "expired", "another node's", "changed"
NOT_PROVED = "not proved"


@dataclass(frozen=True)
class Verified:
    """state: good, unsigned, tampered, another key, expired, another node's, changed or not proved.
    why: lines for people.

    record: {} where none could be read.
    """

    state: str
    why: tuple[str, ...]
    record: Mapping[str, Any]


def verify(
    text: str, today: str, check: Callable[[str, str], str], facts: Mapping[str, Any] | None = None
) -> Verified:
    """The first of these states that applies. check: (line, signature) -> good, another key or
    tampered. facts: of the expected node, None to skip the comparison. The signature is checked
    before the content: an unsigned or tampered record is not trusted. Raises ValueError for a text
    without a record."""
    found = parse_admission(text)
    record = found["record"]
    if not found["signature"]:
        return Verified(UNSIGNED, ("anybody may have written it",), record)
    state = check(found["line"], found["signature"])
    if state == TAMPERED:
        return Verified(
            TAMPERED,
            ("the signature is not one of this record: one of the two was changed",),
            record,
        )
    if state == ANOTHER_KEY:
        return Verified(
            ANOTHER_KEY,
            ("the signature is valid and was made with a key that is not the gate's",),
            record,
        )
    if faults := list(check_schema(record, "admission-1")):
        raise ValueError(
            f"the record is not unhang/admission/1: {'.'.join(map(str, faults[0].path)) or 'it'}"
            f" has a fault: {faults[0].message}"
        )
    return _of_the_node(record, today, facts)


def _of_the_node(
    record: Mapping[str, Any], today: str, facts: Mapping[str, Any] | None
) -> Verified:
    if facts is not None and is_of_another_node(record, facts):
        return Verified(
            ANOTHER_NODE,
            (f"it attests {record['host']}, machine id {record['machine_id']}",),
            record,
        )
    if record["expires"] < today:
        return Verified(EXPIRED, (f"it held until {record['expires']}",), record)
    if facts is None:
        return Verified(GOOD, (), record)
    identity, rest = unread_identity(record, facts), unread_facts(record, facts)
    changed = differences(record, facts)
    if changed and not identity:
        return Verified(
            CHANGED,
            tuple(
                f"the record gives {one.what} as {one.admitted}, and the node has {one.found}"
                for one in changed
            ),
            record,
        )
    if missing := [*identity, *rest]:
        return Verified(
            NOT_PROVED,
            (
                (
                    f"the facts do not have what the record attests: {', '.join(missing)}; read the"
                    " node again, as root"
                ),
            ),
            record,
        )
    return Verified(GOOD, (), record)
