"""Finds out per node which findings explain others, by the rules' `explains`. A finding that no
other explains is a root. Values in, values out. Nodes on which the same rules failed are handled
once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from unhang.judge.rules.found import Found
from unhang.judge.rules.rules import SEVERITIES

_RANK = {severity: rank for rank, severity in enumerate(SEVERITIES)}
# If two findings have one of these fields, they are about the same thing only if it is equal. A GPU
# is `index` in one section and `gpu` in another.
_NAMES = (("index", "gpu"), ("uuid",), ("pci_address",), ("name",), ("interface",))


class Share(NamedTuple):
    """One root on one host, and every finding that it explains there, itself first."""

    root: Found
    host: str
    members: list[Found]


class Explaining(NamedTuple):
    """rules: rule id -> the rules that its row names; where: rule id -> values that its finding
    must have to explain others, such as {"code": [79]}; only: rule id -> an explained rule -> the
    values that the explained finding must have, such as {"kernel-message-of-fault": {"subject":
    ["nfs-server"]}}."""

    rules: Mapping[str, frozenset[str]]
    where: Mapping[str, Mapping[str, Sequence[Any]]] = {}
    only: Mapping[str, Mapping[str, Mapping[str, Sequence[Any]]]] = {}


def explaining_of(rows: Mapping[str, Mapping[str, Any]]) -> Explaining:
    """`explains`, `explains_where` and `explains_only` of the catalogue's rows."""
    named = {rule: frozenset(row["explains"]) for rule, row in rows.items() if row.get("explains")}
    return Explaining(
        named,
        *(
            {rule: rows[rule][name] for rule in named if rows[rule].get(name)}
            for name in ("explains_where", "explains_only")
        ),
    )


def shares_of(findings: Iterable[Found], explaining: Explaining) -> list[Share]:
    """Roots, host by host, in the order of the findings."""
    of_nodes: dict[str, list[Found]] = {}
    of_groups: list[Found] = []
    for one in findings:
        if one.scope == "node":
            of_nodes.setdefault(one.hosts[0] if one.hosts else "", []).append(one)
        else:
            of_groups.append(one)
    shares: dict[tuple[int, str], Share] = {}
    known: dict[frozenset[str], dict[str, list[str]]] = {}
    for host, on_host in of_nodes.items():
        _share_node(host, on_host, explaining, known, shares)
    by_host: dict[str, list[Share]] = {}
    for share in shares.values():
        by_host.setdefault(share.host, []).append(share)
    hosts_of_rules: dict[str, set[str]] = {}
    for share in shares.values():
        for member in share.members:
            hosts_of_rules.setdefault(member.rule, set()).add(share.host)
    for one in _causes_first(of_groups, explaining):
        _share_group(one, explaining, by_host, shares, hosts_of_rules)
    return sorted(shares.values(), key=lambda share: (share.root.number, share.host))


def _causes_first(findings: Sequence[Found], explaining: Explaining) -> list[Found]:
    """Comparisons, each after those that may explain it."""
    reach = {one.rule: len(_reached(one.rule, frozenset(), explaining.rules)) for one in findings}
    return sorted(findings, key=lambda one: (-reach[one.rule], one.number))


def _share_node(
    host: str,
    findings: Sequence[Found],
    explaining: Explaining,
    known: dict[frozenset[str], dict[str, list[str]]],
    shares: dict[tuple[int, str], Share],
) -> None:
    rules = frozenset(one.rule for one in findings)
    if rules not in known:
        known[rules] = _explainers(rules, explaining.rules)
    causes = known[rules]
    by_rule: dict[str, list[Found]] = {}
    for one in findings if causes else ():
        if _may_explain(one, explaining):
            by_rule.setdefault(one.rule, []).append(one)
    for one in findings:
        root = _root(one, causes, by_rule, explaining) if causes else one
        share = shares.setdefault((root.number, host), Share(root, host, [root]))
        if one is not root:
            share.members.append(one)


def _may_explain(one: Found, explaining: Explaining, other: Found | None = None) -> bool:
    """other: what it would explain."""
    only = explaining.only.get(one.rule, {}).get(other.rule, {}) if other else {}
    return _has(one, explaining.where.get(one.rule, {})) and (other is None or _has(other, only))


def _has(one: Found, wanted: Mapping[str, Sequence[Any]]) -> bool:
    return all(_of_unit(one.where.get(name)) in values for name, values in wanted.items())


def _explainers(
    rules: frozenset[str], explains: Mapping[str, frozenset[str]]
) -> dict[str, list[str]]:
    """Rule -> the failed rules of the same node that explain it."""
    found: dict[str, list[str]] = {}
    for cause in sorted(rules & explains.keys()):
        for one in _reached(cause, rules, explains) & rules:
            found.setdefault(one, []).append(cause)
    return found


def _reached(
    cause: str, failed: frozenset[str], explains: Mapping[str, frozenset[str]]
) -> set[str]:
    """The rules that a rule explains, also through rules that did not fail; for a rule that failed,
    its own finding decides whether it is about the same thing."""
    reached: set[str] = set()
    waiting = list(explains.get(cause, ()))
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += explains.get(one, ()) if one not in failed else ()
    return reached


def _root(
    one: Found,
    causes: Mapping[str, list[str]],
    by_rule: Mapping[str, list[Found]],
    explaining: Explaining,
) -> Found:
    """Follows the explanations of a finding to its root; there is one, because no rule explains
    itself."""
    above = [
        cause
        for rule in causes.get(one.rule, ())
        for cause in by_rule.get(rule, ())
        if same_thing(cause.where, one.where) and _may_explain(cause, explaining, one)
    ]
    if not above:
        return one
    return _root(
        min(above, key=lambda cause: (cause.rule in causes, _RANK[cause.severity], cause.number)),
        causes,
        by_rule,
        explaining,
    )


def same_thing(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """False if both name a device, a setting or an interface, but different ones: GPU 3's link does
    not explain GPU 5. A service and its unit are the same."""
    for names in _NAMES:
        left, right = _named(one, names), _named(other, names)
        if left is not None and right is not None and left != right:
            return False
    return True


def _named(where: Mapping[str, Any], names: Sequence[str]) -> Any:
    return _of_unit(next((where[name] for name in names if where.get(name) is not None), None))


def _of_unit(name: Any) -> Any:
    """The name of a service where a finding has that of its unit."""
    return name.removesuffix(".service") if isinstance(name, str) else name


def _share_group(
    one: Found,
    explaining: Explaining,
    by_host: dict[str, list[Share]],
    shares: dict[tuple[int, str], Share],
    hosts_of_rules: Mapping[str, set[str]],
) -> None:
    """A comparison of nodes: explained by the causes on its hosts if the other hosts are all equal,
    else a root on the remaining hosts."""
    usual = one.apart[0] if one.apart and one.apart[0].isdisjoint(one.hosts) else frozenset()
    twins = {rule for rule, hosts in hosts_of_rules.items() if usual and hosts.isdisjoint(usual)}
    above = {
        host: share
        for host in one.hosts
        if (share := _explained_on(one, by_host.get(host, ()), explaining, twins)) is not None
    }
    remaining = [host for host in one.hosts if host not in above]
    if above and (not remaining or not _still_apart(one, above)):
        for share in above.values():
            share.members.append(one)
        return
    for host in remaining or one.hosts or ("",):
        share = shares[one.number, host] = Share(one, host, [one])
        on_host = by_host.setdefault(host, [])
        for other in [other for other in on_host if _takes_over(one, other, explaining, twins)]:
            share.members.extend(other.members)
            on_host.remove(other)
            del shares[other.root.number, host]
        on_host.append(share)


def _takes_over(one: Found, share: Share, explaining: Explaining, twins: Collection[str]) -> bool:
    """Whether a comparison explains a cause of one of its nodes that is no more severe: another
    comparison by its row, and the node's own finding if it is of the same fact."""
    root = share.root
    follows = (
        root.rule in twins and not one.reads.isdisjoint(root.reads)
        if root.scope == "node"
        else root.rule in explaining.rules.get(one.rule, ()) and _may_explain(one, explaining, root)
    )
    return follows and _RANK[one.severity] <= _RANK[root.severity]


def _explained_on(
    one: Found,
    shares: Iterable[Share],
    explaining: Explaining,
    twins: Collection[str],
) -> Share | None:
    """The cause on a host that explains a comparison: by its row, or because it judges the same
    fact of the node. twins: rules that hold on none of the nodes that most are like."""
    for share in shares:
        if any(
            (
                one.rule in _reached(member.rule, frozenset(), explaining.rules)
                and _may_explain(member, explaining, one)
                and _is_of_its_things(member, one)
            )
            or (member.rule in twins and _is_twin(one, member))
            for member in share.members
        ):
            return share
    return None


def _is_of_its_things(own: Found, one: Found) -> bool:
    """False if both name things and the node's own finding is of none that the comparison names: a
    port that is down does not explain the MTU of a bond."""
    name, names = own.where.get("name"), one.where.get("name")
    return name is None or names is None or name in names.split(", ")


def _is_twin(one: Found, own: Found) -> bool:
    """Whether a comparison only repeats a node's own finding: of the same fact, at least as
    severe."""
    return (
        own.scope == "node"
        and not one.reads.isdisjoint(own.reads)
        and _RANK[own.severity] <= _RANK[one.severity]
    )


def _still_apart(one: Found, without: Mapping[str, Any]) -> bool:
    """Whether the nodes differ even without those that have a cause of their own."""
    return sum(bool(hosts - without.keys()) for hosts in one.apart) > 1 if one.apart else True
