"""Values of a comparison for people. A rule that compares several facts joins them into one text,
such as `False True`; here each part has its name again: `peermem.loaded=no`. An empty value is
`none`. Parts that are equal on all nodes are left out. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jinja2 import nodes

from unhang.audit.rules.groups import GroupJudged
from unhang.audit.rules.rules import Rule

LONGEST = 160  # characters of one value, as in the rules' own texts
WORDS = {"True": "yes", "False": "no", "None": "not known", "": "none"}
Pairs = list[tuple[str, str]]


def labelled(rule: Rule, judged: GroupJudged) -> GroupJudged:
    """The verdict with labels in its texts and beside the compared values; unchanged if a value
    does not say where its parts end."""
    if judged.comparison is None or judged.texts is None or rule.compare is None:
        return judged
    rows, majority = judged.comparison["counts"], judged.comparison["majority"]
    values = [row["value"] for row in rows]
    shown = shown_values(rule.compare.tree(), values) or (
        [WORDS[""] if one == "" else str(one) for one in values] if "" in values else []
    )
    if not shown:
        return judged
    texts, counts = dict(judged.texts), " / ".join(str(row["count"]) for row in rows)
    _, marker, rest = texts.get("found", "").partition(f" on {counts} nodes")
    if marker:
        texts["found"] = (
            " // ".join(one if len(one) <= LONGEST else one[: LONGEST - 1] + "…" for one in shown)
            + marker
            + rest
        )
    if texts.get("expected", "").endswith(f"most have {majority}"):
        texts["expected"] = texts["expected"].removesuffix(str(majority)) + shown[0]
    comparison = {
        **judged.comparison,
        "counts": [{**row, "shown": text} for row, text in zip(rows, shown, strict=True)],
    }
    return replace(judged, texts=texts, comparison=comparison)


def shown_values(compare: nodes.Node, values: Sequence[object]) -> list[str]:
    """Each value with labels; [] if that cannot be told of all of them. compare: the syntax tree of
    the rule's expression."""
    parts = list(_parts(compare)) if isinstance(compare, nodes.Concat) else []
    labels = [_label(part) for part in parts if not isinstance(part, nodes.Const)]
    separators = [str(part.value) for part in parts if isinstance(part, nodes.Const)]
    if len(labels) < 2 or not all(labels) or any(re.search(r"\w", one) for one in separators):
        # a single value says what it is, and so does one whose parts have words around them
        return []
    pattern = "".join(
        re.escape(str(part.value)) if isinstance(part, nodes.Const) else "\0" for part in parts
    )
    split = [_split(pattern, labels, value) for value in values]
    known = [one for one in split if one is not None]
    if len(known) < len(values):
        return []
    common = set.intersection(*(set(one) for one in known)) if len(known) > 1 else set()
    return [
        "; ".join(f"{name}={value}" for name, value in one if (name, value) not in common) or "none"
        for one in known
    ]


def _parts(node: nodes.Node) -> Iterator[nodes.Node]:
    for one in node.nodes if isinstance(node, nodes.Concat) else [node]:
        yield from _parts(one) if isinstance(one, nodes.Concat) else [one]


def _label(node: nodes.Node | None) -> str:
    """The fact's path without its section, with the field of a list's items; "" for what is no
    plain fact."""
    fields: list[str] = []
    while isinstance(node, nodes.Filter):
        fields += (
            [
                str(one.value.value)
                for one in node.kwargs
                if one.key == "attribute" and isinstance(one.value, nodes.Const)
            ]
            if node.name == "map"
            else []
        )
        node = node.node
    while isinstance(node, nodes.Getattr):
        fields.append(node.attr)
        node = node.node
    return ".".join(reversed(fields)) if isinstance(node, nodes.Name) else ""


def _split(pattern: str, labels: Sequence[str], value: object) -> Pairs | None:
    """(label, part) of one value; None if the parts may also end elsewhere."""
    if not isinstance(value, str) or value.endswith("…"):
        return None
    if _is_settings(pattern, labels):
        return _settings(value, labels[-1].rpartition(".")[2])
    if _is_table(pattern, labels):
        return _table(value, len(labels))
    found = [
        re.fullmatch(pattern.replace("\0", group), value, re.DOTALL) for group in ("(.*?)", "(.*)")
    ]
    if not found[0] or not found[1] or found[0].groups() != found[1].groups():
        return None
    return [
        (label, WORDS.get(part, part))
        for label, part in zip(labels, found[0].groups(), strict=True)
    ]


def _is_settings(pattern: str, labels: Sequence[str]) -> bool:
    """Whether a rule compares the names and one field of the items of one list: `NAME NAME=VALUE
    VALUE`, `NAME, NAME: VALUE, VALUE`."""
    lists = {label.rpartition(".")[0] for label in labels}
    named = len(labels) == 2 and labels[0].rpartition(".")[2] == "name" and len(lists) == 1
    return named and pattern in ("\0=\0", f"\0{re.escape(': ')}\0")


def _is_table(pattern: str, labels: Sequence[str]) -> bool:
    """Whether a rule compares the names and several fields of the items of one list, with blanks
    between all."""
    blanks = pattern == re.escape(" ").join("\0" * len(labels))
    one_list = len({label.rpartition(".")[0] for label in labels}) == 1
    return len(labels) > 2 and blanks and one_list and labels[0].endswith(".name")


def _table(value: str, columns: int) -> Pairs | None:
    """(name, its fields) of each item; None where a field may have a blank or lack a value."""
    words = value.split(" ") if value.strip() else []
    rows, rest = divmod(len(words), columns)
    names = words[:rows]
    if rest or len(set(names)) < rows:
        return None
    fields = (" ".join(WORDS.get(word, word) for word in words[at::rows][1:]) for at in range(rows))
    return list(zip(names, fields, strict=True))


def _settings(value: str, field: str) -> Pairs | None:
    """A value may contain blanks, and then nobody can tell whose it is."""
    between, blank = ("=", " ") if field == "value" else (": ", ", ")
    names, values = (part.split(blank) if part else [] for part in value.split(between, 1))
    if len(names) != len(values):
        return None
    suffix = "" if field == "value" else f" {field}"
    return [(name + suffix, one) for name, one in zip(names, values, strict=True)]
