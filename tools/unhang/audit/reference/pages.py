"""Writes the pages of the manual that come from the catalogue, into build/manual: `make manual`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.audit.reference.causes import render_causes
from unhang.audit.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.audit.rules.rules import Rule
from unhang.core.schemas.shapes import Shape, fact_shapes

HOW = "(`make manual`)."
RULES_HEAD = f"""# Rules

Every rule of the catalogue, by what it looks at. This page is written from the rows in `tools/unhang/core/catalogue/`
{HOW} `unhang explain ID` prints one of them with its condition, `unhang catalogue` lists them,
and [judging](../../docs/judging.md) says how a row is written and how your own are added.

Confidence is that of the sources: *documented* by a vendor, said by *maintainers*, *reported* by users, or *inferred*.

"""  # noqa: E501
FACTS_HEAD = f"""# Facts and the rules that use them

Every fact that the collector can give, from `tools/unhang/core/schemas/node-facts-1.yaml`, and the rules whose verdict or words depend on it. This page is
written from the schema and the catalogue {HOW}
A fact that no rule uses is not collected in vain: the report, `unhang diagnose`, the comparison of runs and the roles read facts too.

"""  # noqa: E501


def render_rules(catalogue: Catalogue) -> str:
    """rules.md: a list of all rules, each with its expectation, remedy and sources; then the
    tables."""
    groups: dict[str, list[Rule]] = {}
    for rule in catalogue.rules:
        groups.setdefault(_subject(rule), []).append(rule)
    counted = ", ".join(
        f"[{name}](#{_anchor(name)}) {len(rules)}" for name, rules in sorted(groups.items())
    )
    parts = [
        RULES_HEAD,
        (
            f"{len(catalogue.rules)} rules: {counted}. {len(catalogue.tables)} [tables](#tables)"
            f" with {len(catalogue.table_rows)} rows.\n"
        ),
    ]
    for name, rules in sorted(groups.items()):
        parts.append(f"\n## {name}\n")
        parts += [_rule(rule) for rule in sorted(rules, key=lambda one: one.id)]
    parts.append(
        "\n## tables\n\n| table | rows | as of | what it holds |\n| --- | --- | --- | --- |\n"
    )
    parts += [_table(name, table) for name, table in sorted(catalogue.tables.items())]
    return "".join(parts)


def _subject(rule: Rule) -> str:
    """The section of the facts that a rule is mostly about."""
    if rule.scope != "node":
        return "groups of nodes"
    read = [rule.for_each, rule.when, rule.applies]
    for one in read:
        for section in (
            sorted({path[0] for path in one.reads if path[0] in fact_shapes()})
            if one is not None
            else ()
        ):
            return section
    return "policy and run"


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _rule(rule: Rule) -> str:
    row = rule.row
    remedy = row["remedy"]
    mends = f"role `{remedy['role']}`" if "role" in remedy else ""
    if "person" in remedy:
        mends += (": " if mends else "") + _text(remedy["person"])
    sources = ", ".join(f"<{source['url']}>" for source in row["sources"])
    head = f"\n### {rule.id}\n\n{_text(row['title'])}. *{rule.severity}, {row['confidence']}*\n"
    lines = [head, f"- expected: {_text(row['expected'])}", f"- remedy: {mends}"]
    if "workaround" in row:
        lines.append(
            f"- workaround: {_text(row['workaround']['what'])}; it costs:"
            f" {_text(row['workaround']['cost'])}"
        )
    if "symptoms" in row:
        lines.append(f"- symptoms: {_text('; '.join(row['symptoms']))}")
    return "\n".join([*lines, f"- sources: {sources}"]) + "\n"


def _text(text: Any) -> str:
    """A line of Markdown: templates are kept, angle brackets are escaped."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _table(name: str, table: Mapping[str, Any]) -> str:
    row = getattr(table, "row", {})
    return f"| `{name}` | {len(table)} | {row.get('as_of', '')} | {_text(row.get('title', ''))} |\n"


# ---- facts


def fact_paths() -> list[str]:
    """Every fact, as gpus.devices[*].pcie.width_now; a map is one fact. Without the sections'
    probes."""
    return [
        path
        for name, shape in fact_shapes().items()
        for path in _leaves(shape, name)
        if ".probe." not in path
    ]


def _leaves(shape: Shape, path: str) -> Iterator[str]:
    if shape.kind == "object":
        for name, below in shape.fields.items():
            yield from _leaves(below, f"{path}.{name}")
    elif shape.kind == "list" and shape.item is not None and not shape.item.is_scalar:
        yield from _leaves(shape.item, f"{path}[*]")
    else:
        yield path


def rules_by_fact(catalogue: Catalogue) -> dict[str, list[str]]:
    """Path of a fact -> ids of the rules that use it; [] for facts that no rule uses."""
    found: dict[str, list[str]] = {path: [] for path in fact_paths()}
    for rule in catalogue.rules:
        for path in {
            one for read in rule.decision_reads | rule.text_reads for one in _named(read, found)
        }:
            found[path].append(rule.id)
    return {path: sorted(ids) for path, ids in found.items()}


def _named(read: tuple[str, ...], known: Mapping[str, Any]) -> Iterator[str]:
    """The facts of a read path: itself, or the map of which it reads an entry."""
    parts = [part for part in read if part != "**"]
    while parts:
        path = ".".join(parts).replace(".*", "[*]")
        for name in (path, path.removesuffix("[*]")):
            if name in known:
                yield name
                return
        parts.pop()


def render_facts(catalogue: Catalogue) -> str:
    """facts.md: every fact with the rules that use it."""
    found = rules_by_fact(catalogue)
    unused = [path for path, ids in found.items() if not ids]
    parts = [
        FACTS_HEAD,
        (
            f"{len(found)} facts, {len(found) - len(unused)} of them used by rules.\n\n## Used by"
            " no rule\n\n"
        ),
    ]
    parts += [f"- `{path}`\n" for path in unused]
    section = ""
    for path, ids in found.items():
        if path.split(".")[0] != section:
            section = path.split(".")[0]
            parts.append(f"\n## {section}\n\n| fact | rules |\n| --- | --- |\n")
        if ids:
            parts.append(f"| `{path}` | {', '.join(ids)} |\n")
    return "".join(parts)


PAGES: dict[str, Callable[[Catalogue], str]] = {
    "rules.md": render_rules,
    "facts.md": render_facts,
    "causes.md": render_causes,
}


def main(folder: Path) -> None:
    """Writes every page into a folder."""
    catalogue = load_catalogue()
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (folder / name).write_text(render(catalogue), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
