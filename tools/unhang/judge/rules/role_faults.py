"""Whether the role that a remedy names is there and reads what the remedy proposes; reads the files
of the roles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from unhang.core.project import find_project
from unhang.core.schemas.reading import nearest


def role_faults(remedy: Mapping[str, Any]) -> Iterator[str]:
    """One line for each fault of a remedy, which begins with the key that has it."""
    role = remedy.get("role")
    if role is None:
        return
    known = role_names()
    if role not in known:
        yield f"remedy.role: {role}{nearest(role, known)} is not one of {', '.join(known)}"
        return
    for section, fields in (remedy.get("policy") or {}).items():
        for key in fields:
            if not all(re.search(rf"\b{word}\b", _text_of(role)) for word in (section, key)):
                yield f"remedy.policy: the role {role} does not read {section}.{key}"


@cache
def role_names() -> tuple[str, ...]:
    """The roles of the checkout, or of the wheel."""
    return tuple(
        sorted(path.parents[1].name for path in (find_project() / "roles").glob("*/tasks/main.yml"))
    )


@cache
def _text_of(role: str) -> str:
    """All that decides what a role does."""
    folder = find_project() / "roles" / role
    return "\n".join(
        path.read_text(encoding="utf-8")
        for name in ("tasks", "vars", "defaults", "templates")
        for path in sorted((folder / name).rglob("*.yml"))
    )
