"""What to do where nodes that are compared differ: which value is on which hosts, and the line of
policy that chooses one, where a policy can. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.catalogue.scope_texts import SAME_ON_ALL
from unhang.core.nodeset import fold_hosts, shortened
from unhang.judge.rules.groups import GroupJudged
from unhang.judge.rules.rules import Rule

PERSON = "remedy.person"
MOST_VALUES = 4
LONGEST_VALUE, LONGEST_HOSTS = 80, 60  # characters


def chosen_by(rules: Iterable[Rule]) -> dict[str, str]:
    """Rule of a comparison -> the key of a policy that says which value is right: that of a rule
    `policy-…` that holds the same fact against it."""
    rows = list(rules)
    keys: dict[str, str] = {}
    for one in rows:
        wanted = [path for path in one.decision_reads if path[0] == "policy"]
        if not one.id.startswith("policy-") or len(wanted) != 1 or one.scope != "node":
            continue
        for other in rows:
            facts = other.compare.reads if other.compare is not None else frozenset()
            same = facts and facts <= one.decision_reads
            if same and wanted[0][-1] in ("version", *(path[-1] for path in facts)):
                keys[other.id] = ".".join(wanted[0][1:])
    return keys


def with_advice(rule: Rule, judged: GroupJudged, keys: Mapping[str, str]) -> GroupJudged:
    """The verdict with what to do about it; unchanged where the rule says that itself. keys: of
    chosen_by()."""
    own = rule.row["remedy"].get("person", SAME_ON_ALL)
    if own != SAME_ON_ALL or judged.comparison is None or judged.texts is None:
        return judged
    advice = _advice(judged.comparison, keys.get(rule.id, ""), judged.part.get("check", ""))
    return replace(judged, texts={**judged.texts, PERSON: advice})


def _advice(comparison: Mapping[str, Any], key: str, check: str) -> str:
    """check: what to look at where no setting gives a thing the value of the others."""
    rows = _told_apart(comparison["counts"])
    if not rows:
        return SAME_ON_ALL
    usual, others = (rows[0], rows[1:]) if comparison["majority"] is not None else (None, rows)
    named = ", ".join(f"{_value(row)} on {_hosts(row)}" for row in others[:MOST_VALUES])
    named += f" and {len(others) - MOST_VALUES} more values" if len(others) > MOST_VALUES else ""
    if usual is not None:
        right, count = _value(usual), f"{usual['count']:,} nodes"
        if check:
            return f"{named}, {right} on {count}: {check}"
        if key and "," not in right:
            return f"{named}: {key}: {right} in unhang_policy chooses what {count} have"
        return (
            f"{named}: set what {count} have, {right}; where nodes differ on purpose, waive the"
            " finding or give them a peer group of their own"
        )
    if check:
        return f"{named}, and no value is on most: {check}"
    if key and not any("," in _value(row) for row in others):
        lines = " or ".join(f"{key}: {_value(row)}" for row in others[:MOST_VALUES])
        return f"{named}: {lines} in unhang_policy chooses one for all"
    return (
        f"{named}, and no value is on most: set on all what the nodes have on which jobs run as"
        " they should, or give each kind a peer group of its own"
    )


def _told_apart(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows; where the cut texts of two are equal, each with the words alone that not all have;
    [] where these are equal too."""
    if len({_value(row) for row in rows}) == len(rows):
        return list(rows)
    words = [re.findall(r"[^\s,;]+", str(row.get("shown", row["value"]))) for row in rows]
    common = set.intersection(*map(set, words))
    owns = [" ".join(word for word in one if word not in common) for one in words]
    apart: list[Mapping[str, Any]] = [
        {**row, "shown": f"with {own}" if own else "without"}
        for row, own in zip(rows, owns, strict=True)
    ]
    return apart if len({_value(row) for row in apart}) == len(apart) else []


def _value(row: Mapping[str, Any]) -> str:
    text = str(row.get("shown", row["value"])) or "none"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _hosts(row: Mapping[str, Any]) -> str:
    return shortened(fold_hosts(row["hosts"]), LONGEST_HOSTS)
