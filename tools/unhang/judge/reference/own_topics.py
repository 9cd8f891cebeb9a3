"""Topics of `unhang explain` that are neither rules nor rows of tables: facts of a node, sections
of facts, and causes of hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from unhang.core import catalogue
from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.project import checkout_of, find_project
from unhang.core.schemas.shapes import fact_shapes
from unhang.core.text import counted, flat
from unhang.judge.reference.nearness import causes
from unhang.judge.reference.rules_by_fact import rules_by_fact
from unhang.judge.rules.compiled_catalogue import Catalogue


def fact_lines(loaded: Catalogue, word: str) -> tuple[str, str, list[tuple[str, str]]] | None:
    """(path, title, lines) of a fact, as gpus.devices.ecc.enabled, or of a section, as gpus; None
    for any other word."""
    path = word.replace("[*]", "")
    if path.partition(".")[0] not in fact_shapes() or not re.fullmatch(r"[a-z0-9_.]+", path):
        return None
    known = {
        name: ids
        for name, ids in rules_by_fact(loaded).items()
        if f"{name.replace('[*]', '')}.".startswith(f"{path}.")
    }
    if [path] == [name.replace("[*]", "") for name in known]:
        [(name, ids)] = known.items()
        return (
            name,
            "A fact that the audit reads on a node",
            [("used by", ", ".join(ids) or "no rule; reports, diagnosis and roles may use it")],
        )
    rows = [(name, counted(len(ids), "rule") if ids else "no rule") for name, ids in known.items()]
    return (
        (path, f"{counted(len(rows), 'fact')} that the audit reads on a node", rows)
        if rows
        else None
    )


@cache
def _titled_lines() -> tuple[tuple[str, str], ...]:
    """(title in lower case, cause) of the lines that diagnose titles."""
    files = catalogue.checked_files("signatures", "signature-1")
    rows = [
        one
        for _path, content in files
        for row in content["signatures"]
        for one in row.get("words", ())
    ]
    rows += table("words_of_rules").values()
    return tuple(
        (str(row.get("title", "")).lower(), str(row["cause"])) for row in rows if "cause" in row
    )


def cause_rows(word: str) -> Iterator[Mapping[str, Any]]:
    """The row of the cause with this id."""
    yield from (row for row in causes() if row["id"] == word)


def causes_titled(title: str) -> Iterator[Mapping[str, Any]]:
    """The causes with this title, or with a line that diagnose gives this title; upper and lower
    case are alike."""
    wanted = title.lower()
    meant = {cause for name, cause in _titled_lines() if name == wanted}
    yield from (row for row in causes() if row["id"] in meant or row["title"].lower() == wanted)


def cause_lines(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a cause means, what decides it, and what to do."""
    yield "means", row["means"]
    yield "owner", row.get("owner", DEFAULT_OWNER)
    yield from (("decided by", one) for one in row["collect"])
    remedy = row["remedy"]
    if role := remedy.get("role"):
        wanted = ", ".join(
            f"{name}: {value}" for name, value in flat(remedy.get("variables") or {})
        )
        yield "remedy", f"role {role}" + (f" with {wanted} in unhang_policy" if wanted else "")
        # of the checkout, or of the collection, which a wheel needs beside it
        name = "playbooks/{}.yml" if checkout_of(find_project()) else "unhang.ops.{}"
        typed = f"ansible-playbook {name} -i INVENTORY --limit HOST"
        roles = f"-e unhang_roles={role}, then again with -e unhang_apply=true"
        yield "do", f"{typed.format('remediate')} {roles}"
        yield "undo", f"{typed.format('rollback')} -e unhang_apply=true"
    if person := remedy.get("person"):
        yield "a person", person
    if workaround := row.get("workaround"):
        yield "until then", f"{workaround['what']}; it costs: {workaround['cost']}"
    if rules := row.get("rules"):
        yield "found by", ", ".join(rules)
