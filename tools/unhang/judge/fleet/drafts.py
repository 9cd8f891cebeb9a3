"""Drafts a rule from its condition: the facts that it reads, examples on which it fires, and for
each fact a near miss that differs in it alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from unhang.core.run.documents import InvalidNode
from unhang.core.schemas.policy import laid_over
from unhang.core.strict_json import value_at
from unhang.judge.fleet.draft_values import ABSENT, Place, places_of
from unhang.judge.rules.examples import CatalogueView, catalogue_view, judge_example
from unhang.judge.rules.rules import Rule, compile_rule

MOST_TRIED = 20_000  # fragments; the judge answers some ten thousand a second
MOST_MATCHES = 50  # matches whose facts are changed one by one
Fragment = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """A row that is complete except for its texts and sources.

    places              the facts that decide it
    matches             examples on which it fires; () if none was found
    near_misses         each differs from a match in one fact; () if none was found
    without_near_miss   paths of the deciding facts for which there is none
    """

    rule: Rule
    places: tuple[Place, ...]
    matches: tuple[Any, ...]
    near_misses: tuple[Any, ...]
    without_near_miss: tuple[tuple[str, ...], ...]


def draft_rule(
    row: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
) -> Draft:
    """The draft of a rule. row: a complete row, whose examples are ignored. Raises RuleError if the
    condition is not accepted."""
    rule = compile_rule(row, tables)
    view = catalogue_view(tables)
    places = places_of(rule, tables)
    if rule.scope != "node":
        return _of_group(rule, places, view)
    named = _named(rule)
    examples = Examples({place.path: place for place in places})
    for fragment in _matches(rule, places, view):
        _add(examples, rule, fragment, view)
        if not examples.open:
            break
    matches, near_misses = (
        tuple(_with_names(one, named) for one in found)
        for found in (examples.matches, examples.near_misses)
    )
    return Draft(rule, tuple(places), matches, near_misses, tuple(examples.open))


def _of_group(rule: Rule, places: list[Place], view: CatalogueView) -> Draft:
    """Three nodes of which the last has another value in one fact, and three that are alike."""
    for values in _combinations(places):
        base = _built(places, values)
        alike = [deepcopy(base) for _ in range(3)]
        if verdict(rule, alike, view) == "pass":
            for changed in _changes(places, base):
                if verdict(rule, [*alike[:2], changed], view) == "fail":
                    match = [base, deepcopy(base), changed]
                    return Draft(rule, tuple(places), (match,), (alike,), ())
    return Draft(rule, tuple(places), (), (), ())


@dataclass
class Examples:
    """What a search has found so far. open: the facts, by their path, that have no near miss
    yet."""

    open: dict[tuple[str, ...], Place]
    matches: list[Fragment] = field(default_factory=list)
    near_misses: list[Fragment] = field(default_factory=list)


def _add(examples: Examples, rule: Rule, match: Fragment, view: CatalogueView) -> None:
    """Adds a near miss for each fact that had none, and the match if it is the first one or has
    such a near miss."""
    near = {
        path: miss
        for path, place in examples.open.items()
        if (miss := _near_miss(rule, [place], match, view)) is not None
    }
    if near or not examples.matches:
        examples.matches.append(match)
    examples.near_misses += [
        miss
        for place, miss in enumerate(near.values())
        if miss not in (*examples.near_misses, *list(near.values())[:place])
    ]
    for path in near:
        del examples.open[path]


def verdict(rule: Rule, example: Any, view: CatalogueView) -> str:
    """The most severe verdict, `invalid` for a fragment that cannot be the facts of a node."""
    try:
        return judge_example(rule, example, view)
    except InvalidNode:
        return "invalid"


def _named(rule: Rule) -> tuple[tuple[str, ...], ...]:
    """Paths of the facts that name the rule's object, such as a GPU's index, because the rule's
    texts quote them."""
    path = rule.for_each.kind.items().path if rule.for_each is not None else None
    quoted = [
        one
        for one in rule.text_reads
        if path is not None and one[: len(path)] == path and one not in rule.decision_reads
    ]
    return tuple(sorted(one for one in quoted if "**" not in one))


def _matches(rule: Rule, places: list[Place], view: CatalogueView) -> Iterator[Fragment]:
    """Fragments on which the rule fires, of values that the condition and the schema name."""
    alone = (_built(places, values) for values in _combinations(places))
    several = (
        fragment for values in _combinations(places) for fragment in _lists_varied(places, values)
    )
    tried = itertools.chain(alone, itertools.islice(several, MOST_TRIED))
    yield from itertools.islice(
        (one for one in tried if verdict(rule, one, view) == "fail"), MOST_MATCHES
    )


def _combinations(places: list[Place]) -> Iterator[tuple[Any, ...]]:
    """Values for all places: all combinations if they are few, else a seeded random sample."""
    count = 1
    for place in places:
        count *= len(place.values)
    if count <= MOST_TRIED:
        yield from itertools.product(*(place.values for place in places))
        return
    draw = random.Random(7)  # noqa: S311 - a search, no secret: the same draft every time
    for _ in range(MOST_TRIED):
        yield tuple(draw.choice(place.values) for place in places)


def _lists_varied(places: list[Place], values: tuple[Any, ...]) -> Iterator[Fragment]:
    """Variants of the lists: no item, two equal items, and two items of which the second differs in
    one fact."""
    fragment = _built(places, values)
    for path in {place.path[: place.path.index("*")] for place in places if "*" in place.path}:
        items = value_at(fragment, path)
        if not items:
            continue
        yield _replaced(fragment, path, [])
        yield _replaced(fragment, path, [*items, *deepcopy(items)])
        for place, value in zip(places, values, strict=True):
            if place.path[: len(path)] == path and len(place.path) > len(path) + 1:
                for other in (one for one in place.values if one is not ABSENT and one != value):
                    second = value_at(_built([place], (other,)), path)
                    yield _replaced(fragment, path, [*items, laid_over(items[0], second[0])])


def _near_miss(
    rule: Rule, places: list[Place], match: Fragment, view: CatalogueView
) -> Fragment | None:
    """The match with one fact changed so that the rule passes; if there is none, so that it does
    not apply."""
    skipped = None
    for changed in _changes(places, match):
        found = verdict(rule, changed, view)
        if found == "pass":
            return changed
        skipped = changed if found == "skip" and skipped is None else skipped
    return skipped


def _changes(places: list[Place], fragment: Fragment) -> Iterator[Fragment]:
    for place in places:
        for value in place.values:
            changed = deepcopy(fragment)
            if _set_everywhere(changed, place.path, value) and changed != fragment:
                yield changed


def _built(places: list[Place], values: tuple[Any, ...]) -> Fragment:
    fragment: Fragment = {}
    for place, value in zip(places, values, strict=True):
        _put(fragment, list(place.path), None if value is ABSENT else value)
        if value is ABSENT:
            _set_everywhere(fragment, place.path, ABSENT)
    return fragment


def _put(holder: Any, path: list[str], value: Any) -> None:
    """Sets the value at a path; lists on the way get one item."""
    head, rest = path[0], [part for part in path[1:] if part != "**"]
    if not rest or rest == ["*"]:
        holder[head] = deepcopy(value)
    elif rest[0] == "*":
        _put(holder.setdefault(head, [{}])[0], rest[1:], value)
    else:
        _put(holder.setdefault(head, {}), rest, value)


def _set_everywhere(holder: Any, path: tuple[str, ...], value: Any) -> bool:
    """Sets the value at a path in the first item of each list on the way. False if there is no such
    path."""
    box: Any = holder
    parts = [part for part in path if part != "**"]
    if parts[-1] == "*":
        parts = parts[:-1]
    for part in parts[:-1]:
        box = (
            (box[0] if box else None)
            if part == "*"
            else box.get(part)
            if isinstance(box, dict)
            else None
        )
        if box is None:
            return False
    if not isinstance(box, dict):
        return False
    if value is ABSENT:
        return box.pop(parts[-1], ABSENT) is not ABSENT
    box[parts[-1]] = deepcopy(value)
    return True


def _with_names(fragment: Fragment, named: tuple[tuple[str, ...], ...]) -> Fragment:
    """The fragment with a name for each object in it: numbers count from 0, texts are made from the
    field's name."""
    named_all = deepcopy(fragment)
    for path in named:
        if path.count("*") != 1 or path[-1] == "*":
            continue
        place = path.index("*")
        for number, item in enumerate(value_at(named_all, path[:place]) or []):
            if len(path) == place + 2 and isinstance(item, dict):
                item.setdefault(
                    path[-1],
                    number
                    if path[-1] in ("index", "minor", "gpu", "link", "port", "line")
                    else f"{path[-1]}-{number}",
                )
    return named_all


def _replaced(fragment: Fragment, path: tuple[str, ...], value: Any) -> Fragment:
    changed = deepcopy(fragment)
    value_at(changed, path[:-1])[path[-1]] = value
    return changed
