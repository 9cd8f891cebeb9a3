"""Rules over several nodes: peers that should agree, also with those of another group that their
policy names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.core.schemas.shapes import policy_shape
from unhang.judge.rules.compared_parts import (
    compared,
    shown_parts,
    things_that_differ,
    weighed,
)
from unhang.judge.rules.like_things import PART
from unhang.judge.rules.node_rules import (
    CatalogueView,
    Judged,
    cut,
    evidence_of,
    rendered,
    severity_in,
    undecided,
)
from unhang.judge.rules.rules import ANY_DIFFERENCE, Rule, group_names
from unhang.judge.rules.values import Fact, RuleStopped, Undecided, Unknown, World, frozen, plain
from unhang.judge.rules.votes import Compared

EVERYBODY = {"all", "ungrouped"}


@dataclass
class Ballot:
    """The values of one rule, or of one item of its list, over one peer group. values: key ->
    (value, hosts); lacking: host -> why it has no value; item: the fields of that item; like: the
    group whose value, the first, is the right one."""

    group: str
    item: Mapping[str, Any] | None = None
    values: dict[Any, tuple[Any, list[str]]] = field(default_factory=dict)
    lacking: list[tuple[str, Judged]] = field(default_factory=list)
    like: str = ""

    def ranked(self) -> list[tuple[Any, list[str]]]:
        """(value, hosts), most frequent first."""
        rows = list(self.values.values())
        if self.like or len(rows) < 2:
            return rows
        return sorted(rows, key=lambda row: (-len(row[1]), repr(row[0])))

    def majority(self) -> tuple[Any, list[str]] | None:
        """The value that more than half of the nodes with a value have, or None."""
        return _majority_of(self.ranked())


def _majority_of(ranked: Sequence[tuple[Any, list[str]]]) -> tuple[Any, list[str]] | None:
    total = sum(len(hosts) for _, hosts in ranked)
    return ranked[0] if ranked and len(ranked[0][1]) * 2 > total else None


def _shared(rows: Sequence[tuple[Any, list[str]]]) -> list[tuple[str, list[str]]]:
    """The values with the words that values with another last word have, too. Words with the same
    text before | count only if most of these are of one value: the others are of networks that have
    nothing to do with each other."""
    read = [(*str(value).rpartition(" ")[::2], hosts) for value, hosts in rows]
    owners: dict[str, set[str]] = {}
    for names, owner, _ in read:
        for name in names.split():
            owners.setdefault(name, set()).add(owner)
    alike: dict[str, list[int]] = {}
    for name, of in owners.items():
        alike.setdefault(name.rpartition("|")[0], []).append(len(of))
    strangers = {
        scope for scope, counts in alike.items() if scope and sum(counts) >= 2 * len(counts)
    }
    found = []
    for names, owner, hosts in read:
        parts = [name.rpartition("|") for name in names.split() if len(owners[name]) > 1]
        shared = " ".join(name for scope, _, name in parts if scope not in strangers)
        found += [(f"{shared} {owner}", hosts)] if shared else []
    return found


@dataclass(frozen=True)
class GroupJudged:
    """One verdict over a group. hosts: the outliers, or all hosts if no value has a majority;
    severity: of a rule that has it in a table; where: as in a finding of a node; part: the item of
    the rule's list that differs, {} for a rule without a list."""

    verdict: str
    group: str
    hosts: tuple[str, ...] = ()
    comparison: dict[str, Any] | None = None
    evidence: tuple[tuple[str, Any], ...] = ()
    missing: tuple[tuple[str, str, str], ...] = ()
    texts: dict[str, str] | None = None
    stopped: bool = False
    severity: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    part: Mapping[str, Any] = field(default_factory=dict)


def peers_of(groups: Iterable[str], policy: Mapping[str, Any]) -> str:
    """The name of a node's peer group: policy.peers, else its inventory groups without all and
    ungrouped."""
    named = policy.get("peers")
    if isinstance(named, str):
        return named
    return "+".join(sorted(group for group in groups if group not in EVERYBODY)) or "all"


def judge_group(
    rule: Rule, ballot: Ballot, policy: Mapping[str, Any], catalogue: CatalogueView
) -> list[GroupJudged]:
    """Whether the nodes of one peer group agree; one verdict for each difference. Skip with fewer
    than two values."""
    ranked: Sequence[tuple[Any, list[str]]] = ballot.ranked()
    if sum(len(hosts) for _, hosts in ranked) < 2:
        return [GroupJudged("skip", ballot.group)]
    each_own = rule.row.get("each_own", False)
    differences: list[Sequence[tuple[Any, list[str]]]] = [ranked]
    if each_own:
        differences = [_shared(ranked)]
    elif ballot.item is not None:
        differences = compared(ranked, ballot.item, catalogue.tables, bool(ballot.like))
    found = [
        _decide(
            rule,
            ballot,
            rows,
            None if each_own else rows[0] if ballot.like else _majority_of(rows),
            policy,
            catalogue,
        )
        for rows in differences
    ]
    return found or [GroupJudged("pass", ballot.group)]


def tied(here: Ballot, there: Ballot, same_as: str) -> Ballot:
    """What most nodes of one group have, and before it what most of the group have that it should
    equal; nothing where the nodes of one of the two do not agree, which is another finding."""
    found = Ballot(here.group, here.item, like=same_as)
    most = [one for one in (there.majority(), here.majority()) if one]
    for value, hosts in most if len(most) > 1 else ():
        add_votes(found, hosts, Compared(frozen(value), value))
    return found


def _decide(
    rule: Rule, ballot: Ballot, ranked: Sequence[tuple[Any, list[str]]],
    majority: tuple[Any, list[str]] | None, policy: Mapping[str, Any], catalogue: CatalogueView,
) -> GroupJudged:  # fmt: skip
    group = ballot.group
    outliers = [
        (host, value)
        for value, hosts in ranked
        if majority is None or value is not majority[0]
        for host in hosts
    ]
    assert rule.when is not None and rule.compare is not None
    if len(ranked) < 2 and rule.when.source == ANY_DIFFERENCE:
        return GroupJudged("pass", group)
    world = _group_world(rule, group, ranked, majority, outliers, policy, catalogue)
    part: Mapping[str, Any] = {}
    if ballot.item is not None:
        usual = None if majority is None else majority[0]
        values = [value for _, value in outliers]
        of = sum(len(hosts) for _, hosts in ranked)
        part = weighed(ballot.item, usual, values, of, catalogue.tables)
        most, odd, *_ = shown_parts(part, [value for value, _ in ranked])
        part = {**part, "odd": odd, "usual": most}
        world = world.with_item(Fact(part, PART, "item"))
    comparison = _comparison(ranked, majority, part)
    hosts = tuple(host for host, _ in outliers)
    try:
        verdict = "fail" if plain(rule.when.evaluate(world)) else "pass"
    except (Undecided, RuleStopped) as problem:
        one = undecided(rule, problem)
        return GroupJudged(
            one.verdict, group, hosts, comparison, missing=one.missing, stopped=one.stopped
        )
    if verdict == "pass":
        return GroupJudged("pass", group)
    path = ", ".join(sorted(".".join(one) for one in rule.compare.reads)) or rule.compare.source
    evidence = evidence_of(
        [
            (f"{path} ({len(on)} of {sum(len(each) for _, each in ranked)})", value)
            for value, on in ranked
        ]
    )
    return GroupJudged(
        "fail",
        group,
        hosts,
        comparison,
        evidence,
        texts={name: rendered(rule, name, world) for name in rule.texts} | _of_tied(ballot.like),
        severity=rule.row["tied"] if ballot.like else severity_in(rule, world),
        where=things_that_differ(part, majority, outliers) if part else {},
        part=part,
    )


def _of_tied(like: str) -> dict[str, str]:
    is_as = f"what most nodes of {like} have, so that what was tested is what runs"
    return {"expected": is_as} if like else {}


def _comparison(
    ranked: Sequence[tuple[Any, list[str]]],
    majority: tuple[Any, list[str]] | None,
    part: Mapping[str, Any],
) -> dict[str, Any]:
    """The values, most frequent first, with their hosts; those of a part as people read them."""
    rows = ranked[:50]
    values = [value for value, _ in rows]
    shown = shown_parts(part, values) if part else values
    return {
        "majority": None if majority is None else cut(majority[0]),
        "counts": [
            {"value": cut(value), "count": len(hosts), "hosts": hosts}
            for value, (_, hosts) in zip(shown, rows, strict=True)
        ],
    }


def _group_world(
    rule: Rule, group: str, ranked: Sequence[tuple[Any, list[str]]],
    majority: tuple[Any, list[str]] | None, outliers: list[tuple[str, Any]],
    policy: Mapping[str, Any], catalogue: CatalogueView,
) -> World:  # fmt: skip
    kinds = group_names(rule.compare)
    no_majority = Unknown(
        "absent", "majority", "absent", "no value has more than half of the nodes"
    )
    nodes = [{"host": host, "value": value} for value, hosts in ranked for host in hosts]
    roots: dict[str, Any] = {
        "distinct": len(ranked),
        "majority": no_majority if majority is None else majority[0],
        "outliers": Fact(
            [{"host": host, "value": value} for host, value in outliers],
            kinds["outliers"].shape,
            "outliers",
        ),
        "nodes": Fact(nodes, kinds["nodes"].shape, "nodes"),
        "counts": Fact(
            [{"value": value, "count": len(hosts), "hosts": hosts} for value, hosts in ranked],
            kinds["counts"].shape,
            "counts",
        ),
        "group": group,
        "policy": Fact(policy, policy_shape(), "policy"),
        "tables": Fact(catalogue.tables, catalogue.tables_shape, "tables"),
        "today": catalogue.today,
    }
    return World(
        roots,
        lambda path: Unknown(
            "unset" if path.startswith("policy.") else "absent",
            path,
            "absent",
            "there is no such value",
        ),
    )


def add_votes(ballot: Ballot, hosts: Sequence[str], compared: Compared) -> None:
    """Counts the result that these nodes share."""
    if compared.judged is None:
        known = ballot.values.get(compared.key)
        if known is None:
            ballot.values[compared.key] = (compared.value, list(hosts))
        else:
            known[1].extend(hosts)
    elif compared.judged.verdict != "skip":
        ballot.lacking.extend((host, compared.judged) for host in hosts)


def add_ballot(ballot: Ballot, other: Ballot, wanted: Collection[str]) -> None:
    """Adds the values of the wanted hosts."""
    for key, (value, hosts) in other.values.items():
        chosen = [host for host in hosts if host in wanted]
        if chosen:
            add_votes(ballot, chosen, Compared(key, value))
    ballot.lacking += [(host, judged) for host, judged in other.lacking if host in wanted]
