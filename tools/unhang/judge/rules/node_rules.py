"""Judges one rule on one node: facts in, verdicts out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from unhang.core.schemas.shapes import Shape, fact_shapes, null_meanings, policy_shape
from unhang.judge.rules.faulty_gpus import faulty
from unhang.judge.rules.last_run import moved
from unhang.judge.rules.like_things import own, parts, settings, unlike
from unhang.judge.rules.rising_counters import counted_parts, rising
from unhang.judge.rules.rules import SEVERITIES, Rule, tables_shape, undecided_severity
from unhang.judge.rules.syntax import Path
from unhang.judge.rules.unreadable import unreadable, without_silent_parts
from unhang.judge.rules.values import Fact, RuleStopped, Undecided, Unknown, World, plain, shown

MOST_EVIDENCE = 16
LONGEST_EVIDENCE = 500
MOST_FINDINGS = 64  # of one rule on one node; what goes beyond is one more that says how many
_INDEX = re.compile(r"\[[0-9]+\]")
_INSIDE = re.compile(r"\[[^\]]*\]")  # an index, a star, or the name of an item
_TEXTS = Shape("list", item=Shape("text"))


@dataclass(frozen=True, eq=False)
class Judged:
    """One verdict. item: path of the for_each item, None without for_each; items: number of items
    with the same verdict and reason."""

    verdict: str  # fail pass unknown skip
    item: str | None = None
    evidence: tuple[tuple[str, Any], ...] = ()
    missing: tuple[tuple[str, str, str], ...] = ()  # path, status, reason
    stopped: bool = False
    items: int = 1
    severity: str | None = None  # of a finding whose rule has it in a table


@dataclass(frozen=True)
class NodeView:
    """The values that a node's rules see besides its facts."""

    host: str
    groups: tuple[str, ...]
    policy: Mapping[str, Any]
    run_status: str
    message: str
    policy_error: str
    sections: Any  # typed structure, None when the node was not read


@dataclass(frozen=True)
class CatalogueView:
    """The tables and the day that rules see."""

    tables: Any
    rule_ids: tuple[str, ...]
    today: str

    @cached_property
    def tables_shape(self) -> Shape:
        return tables_shape(self.tables)


def node_world(node: NodeView, catalogue: CatalogueView) -> World:
    """The world of a node's expressions: their names and values."""
    roots: dict[str, Any] = {
        "policy": Fact(node.policy, policy_shape(), "policy"),
        "host": node.host,
        "groups": Fact(list(node.groups), _TEXTS, "groups"),
        "run_status": Fact(node.run_status, Shape("text"), "run_status"),
        "message": node.message,
        "policy_error": node.policy_error,
        "today": catalogue.today,
        "rule_ids": list(catalogue.rule_ids),
        "tables": Fact(catalogue.tables, catalogue.tables_shape, "tables"),
    }
    why = partial(why_null, node.sections)
    silent = unreadable(node.sections)
    sections = without_silent_parts(node.sections, silent)
    for name, shape in fact_shapes().items():
        section = getattr(sections, name, None)
        if section is None:
            reason = (
                f"the node was not read ({node.run_status})"
                if sections is None
                else f"the answer has no section {name}"
            )
            roots[name] = Unknown("unread", name, "error", reason)
        else:
            roots[name] = Fact(section, shape, name)
    # what needs a GPU's reset is read from all that it answered, also from a silent one
    roots["unreadable"], roots["faulty"] = silent, faulty(node.sections, catalogue.tables, why)
    why = partial(why_null, sections)
    return World(_Roots(roots, sections, catalogue.tables, why), why)


class _Roots(dict):  # not dict[str, Any]: the quick check runs it on Python 3.8
    """The names of an expression; those that are worked out of many facts are, at their first
    use."""

    def __init__(self, roots: Mapping[str, Any], *given: Any):
        super().__init__(roots)
        self._given = given

    def __missing__(self, name: str) -> Any:
        if name not in _WORKED_OUT:
            raise KeyError(name)
        value = self[name] = _WORKED_OUT[name](*self._given)
        return value


_WORKED_OUT = {
    "unlike": lambda *given: [*unlike(*given), *moved(*given)],
    "parts": lambda *given: [*parts(*given), *counted_parts(*given)],
    "settings": settings,
    "own": own,
    "rising": rising,
}


def why_null(sections: Any, path: str) -> Unknown:
    """The Unknown for a path without a value, from the section's own reasons."""
    name, _, inside = path.partition(".")
    if name == "policy":
        return Unknown("unset", path, "absent", "the policy does not set it")
    if name == "tables":
        return Unknown("absent", path, "absent", "the table has no such field")
    section = getattr(sections, name, None)
    probe = getattr(section, "probe", None)
    status, error, rows = (getattr(probe, part, None) for part in ("status", "error", "unread"))
    fields = _fields_above(section, inside) if rows else ()
    for row in rows or ():
        if row.field in fields:
            return Unknown(
                "absent" if row.status == "absent" else "unread",
                path,
                row.status or "error",
                row.reason or "",
            )
    if status == "absent":
        return Unknown("absent", path, "absent", error or f"the node has no {name}")
    if status not in ("ok", None):
        return Unknown("unread", path, status, error or f"section {name}: {status}")
    meaning = _meaning_of_null(path)
    if meaning is not None:
        return Unknown("absent", path, "absent", meaning)
    return Unknown("unread", path, "error", "the node gave no value and no reason")


def _meaning_of_null(path: str) -> str | None:
    """The schema's meaning of a null at this path or above it: for cuda.build_tools.nvcc.version,
    "nvcc is not installed"."""
    meanings = null_meanings()
    place = _INSIDE.sub("[*]", path)
    while place:
        if place in meanings:
            return meanings[place]
        place = place.rpartition(".")[0]
    return None


def _fields_above(section: Any, inside: str) -> set[str]:
    """The spellings in which a row may name a path or one above it: devices[3].row_remap.pending,
    devices[*].row_remap.pending, devices[*].row_remap, devices."""
    names = {inside, _INDEX.sub("[*]", inside), _by_path(section, inside)}
    return names | {
        name[:place] for name in names for place, letter in enumerate(name) if letter in ".["
    }


def _by_path(section: Any, inside: str) -> str:
    """environments[/opt/train].cudnn for environments[0].cudnn: the collector names items with a
    path by that path."""
    found, holder = "", section
    for part in inside.split("."):
        name, _, index = part.partition("[")
        holder = getattr(holder, name, None) if not isinstance(holder, dict) else holder.get(name)
        found += ("." if found else "") + name
        if index:
            place = int(index[:-1]) if index[:-1].isdecimal() else -1
            holder = (
                holder[place] if isinstance(holder, list) and 0 <= place < len(holder) else None
            )
            found += f"[{getattr(holder, 'path', None) or index[:-1]}]"
    return found


def judge_rule(rule: Rule, world: World) -> list[Judged]:
    """All verdicts of one rule on one node: one, or one per item of for_each."""
    world.begin()
    try:
        return _judge(rule, world)
    except RuleStopped as problem:
        return [undecided(rule, problem)]


def _judge(rule: Rule, world: World) -> list[Judged]:
    if rule.for_each is None:
        one = _decide(rule, world, None)
        return [(not_all_read(rule.decision_reads, world) or one) if one.verdict == "pass" else one]
    if (
        rule.applies is not None
        and "item" not in rule.applies.uses
        and (early := _applies(rule, world, None)) is not None
    ):
        return [early]
    try:
        items = world.items(rule.for_each.evaluate(world))
    except Undecided as problem:
        return [undecided(rule, problem)]
    rest = not_all_read(rule.decision_reads, world)
    if not items:
        return [rest or Judged("skip")]
    found = [_decide(rule, world.with_item(item), _path(item)) for item in items]
    return _folded(found) + ([rest] if rest else [])


def not_all_read(reads: Iterable[Path], world: World) -> Judged | None:
    """The verdict unknown, if a list that these facts are of was read only in part, because the
    rest may contain the fault. Verdicts on the read part stay."""
    missing: dict[tuple[str, str, str], None] = {}
    for path in sorted(reads):
        section = getattr(world.roots.get(path[0]), "value", None)
        for row in getattr(getattr(section, "probe", None), "unread", None) or ():
            name = (row.field or "").split(".")
            if (
                row.status != "absent"
                and tuple(name) == path[1 : 1 + len(name)]
                and path[1 + len(name) : 2 + len(name)] == ("*",)
            ):
                missing[f"{path[0]}.{row.field}", row.status or "error", row.reason or ""] = None
    return Judged("unknown", missing=tuple(missing)[:MOST_EVIDENCE]) if missing else None


def _folded(found: list[Judged]) -> list[Judged]:
    """Items that lack the same fact for the same reason become one verdict that names them all, and
    so do items that pass or are skipped. Faults beyond MOST_FINDINGS do too, so that no node can
    get an endless list of findings from one rule."""
    kept: list[Judged] = []
    alike: dict[Any, list[Judged]] = {}
    for one in found:
        if one.verdict == "fail":
            kept.append(one)
        else:
            alike.setdefault(
                (
                    one.verdict,
                    tuple((_INDEX.sub("[*]", path), *rest) for path, *rest in one.missing),
                ),
                [],
            ).append(one)
    if len(kept) > MOST_FINDINGS:
        rest = kept[MOST_FINDINGS - 1 :]
        severity = min(
            (one.severity for one in rest if one.severity), key=SEVERITIES.index, default=None
        )
        kept[MOST_FINDINGS - 1 :] = [replace(rest[0], items=len(rest), severity=severity)]
    for (_, missing), same in alike.items():
        is_stopped = any(one.stopped for one in same)
        several = replace(same[0], missing=missing, stopped=is_stopped, items=len(same))
        kept.append(several if len(same) > 1 else same[0])
    return kept


def _path(item: Any) -> str | None:
    return item.path if isinstance(item, (Fact, Unknown)) else None


def _applies(rule: Rule, world: World, item: str | None) -> Judged | None:
    """The verdict if the rule does not apply or that is undecided, else None."""
    if rule.applies is None:
        return None
    try:
        return None if plain(rule.applies.evaluate(world)) else Judged("skip", item)
    except Undecided as problem:
        return undecided(rule, problem, item)


def _decide(rule: Rule, world: World, item: str | None) -> Judged:
    if (early := _applies(rule, world, item)) is not None:
        return early
    assert rule.when is not None
    world.reads = []
    try:
        value = plain(rule.when.evaluate(world))
        if not isinstance(value, bool):
            raise Undecided(
                Unknown(
                    "unread", "", "error", f"{rule.when.source[:80]!r} is neither true nor false"
                )
            )
        reads, world.reads = world.reads, None
    except Undecided as problem:
        return undecided(rule, problem, item)
    return (
        Judged("fail", item, evidence_of(reads), severity=severity_in(rule, world))
        if value
        else Judged("pass", item)
    )


def severity_in(rule: Rule, world: World) -> str | None:
    """What the table or the condition says of a finding; the rule's own where the table has no row
    of it, the milder one where the condition is not known."""
    if rule.severity_of is None:
        return None
    try:
        return str(plain(rule.severity_of.evaluate(world)))
    except Undecided:
        return undecided_severity(rule.severity_of)


def undecided(
    rule: Rule, problem: Undecided | RuleStopped, item: str | None = None, path: str = ""
) -> Judged:
    """The verdict where a rule cannot decide. path: of a cause that names none."""
    if isinstance(problem, RuleStopped):
        why = (f"rule {rule.id}", "error", f"the rule was stopped: {problem}")
        return Judged("unknown", missing=(why,), stopped=True)
    if problem.is_skip:
        return Judged("skip", item)
    causes = {(cause.path or path, cause.status, cause.reason): None for cause in problem.causes}
    return Judged("unknown", item, missing=tuple(causes)[:MOST_EVIDENCE])


def evidence_of(reads: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The facts that were read, each path once, limited in number and length. If there are too
    many, the node's own facts come before values of tables."""
    found = {path: cut(value) for path, value in reads}
    rows = tuple(found.items())
    if len(rows) > MOST_EVIDENCE:
        rows = tuple(sorted(rows, key=lambda row: row[0].startswith("tables.")))
        rows = (*rows[: MOST_EVIDENCE - 1], ("…", f"and {len(rows) - MOST_EVIDENCE + 1} more"))
    return rows


def _cut_text(text: str) -> str:
    # Imported here, because its patterns take 0.1 s to compile, half as long as a quick check,
    # which has few texts of this length.
    from unhang.core.secrets_in_text import cut_without_secrets

    return cut_without_secrets(text, LONGEST_EVIDENCE)


def cut(value: Any) -> Any:
    """A fact verbatim; a long one is shortened and ends in …."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_EVIDENCE else _cut_text(value)
    if isinstance(value, list):
        return [cut(one) for one in value[:MOST_EVIDENCE]] + (
            ["…"] if len(value) > MOST_EVIDENCE else []
        )
    if isinstance(value, dict):
        return {key: cut(one) for key, one in list(value.items())[:MOST_EVIDENCE]}
    return value


def finding_texts(
    rule: Rule, world: World, judged: Judged, items: Mapping[str, Any]
) -> dict[str, str]:
    """expected, found and the other texts of one verdict. items: path -> item, of this node."""
    if rule.for_each is not None:
        path, status, reason = (
            judged.missing[0] if judged.missing else ("", "absent", "there is no item")
        )
        world = world.with_item(
            items.get(judged.item or "", Unknown("unread", path, status, reason))
        )
    found = {name: rendered(rule, name, world) for name in rule.texts}
    if judged.verdict == "unknown":
        path, status, reason = judged.missing[0]
        found["found"] = f"{path or 'a fact'} not known ({status}): {shown(reason)}"
    return found


def rendered(rule: Rule, name: str, world: World) -> str:
    """One text, or the reason why it cannot be rendered."""
    world.begin()
    try:
        return str(rule.texts[name].evaluate(world))
    except (Undecided, RuleStopped) as problem:
        return (
            f"({name} could not be written:"
            f" {problem.causes[0].reason if isinstance(problem, Undecided) else problem})"
        )
