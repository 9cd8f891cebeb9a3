"""A cause on the page: its findings folded, what to do, and the command for it.

A card is a cause; its first fold has the findings of its rule, the other folds the findings that
the cause explains. Values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from unhang.audit.report import phrases
from unhang.audit.report.folding import Fold, fold_findings
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.text import counted, visible
from unhang.judge.rules.rules import SEVERITIES

# characters of one set of hosts in the heading; number of sets in the details, which have every
# host
LONGEST_PLACE, MOST_PLACES = 320, 60
# characters; a longer command (thousands of hosts) is only in findings.json, because a shortened
# one would do something else
LONGEST_COMMAND = 4_000
# critical causes that are expanded; the others show title, place and action until they are opened
MOST_UNFOLDED = 4
_INTERCONNECT = ("interconnect.", "fabric_manager.", "network.rdma")


@dataclass(frozen=True)
class Card:
    """A cause and its folds with their numbers on the page. cause: None for findings that no cause
    explains."""

    cause: Mapping[str, Any] | None
    folds: tuple[tuple[int, Fold], ...]

    def hosts_of(self, fold: Fold) -> Sequence[str]:
        """The nodes to which a fold counts: a comparison also names nodes that only the fault of
        another one sets apart."""
        blamed = frozenset(self.cause["nodes"] if self.cause else ())
        return [host for host in fold.hosts if host in blamed] if blamed else fold.hosts


def cards_of(
    findings: Sequence[Mapping[str, Any]], causes: Sequence[Mapping[str, Any]]
) -> list[Card]:
    """Cards in the order of harm, each failure on the card of the first cause that has it. Causes
    refer to `findings` by number, as in findings.json. A remark without a cause, which holds for
    most healthy nodes, is on no card."""
    failed = {place for place, finding in enumerate(findings) if finding.get("verdict") == "fail"}
    remaining = failed - {
        place
        for place in failed.difference(*(cause["findings"] for cause in causes))
        if findings[place]["severity"] == SEVERITIES[-1]
    }
    cards: list[Card] = []
    number = 0
    for cause in [*causes, None]:
        mine = sorted(remaining if cause is None else remaining.intersection(cause["findings"]))
        remaining.difference_update(mine)
        folds = fold_findings(findings[place] for place in mine)
        if cause is not None:
            folds.sort(key=lambda fold: fold.example.get("rule") != cause["rule"])
        numbered = tuple((number + place, fold) for place, fold in enumerate(folds, start=1))
        number += len(folds)
        if cause is None:
            cards += [Card(None, (one,)) for one in numbered]
        elif numbered:
            cards.append(Card(cause, numbered))
    return cards


def card_view(
    card: Card,
    place: int,
    drawn_hosts: Sequence[tuple[str, Collection[str]]],
    command_of: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    """A card for the template: the view of its first fold and the data of the cause. place: 0 for
    the first card of the page."""
    views = [fold_view(number, fold, drawn_hosts) for number, fold in card.folds]
    first, cause = views[0], card.cause
    command = "" if cause is None else command_of(cause)
    # the rule's texts differ between nodes
    own = [view for view in views if view["rule"] == first["rule"]]
    return {
        **first,
        "places": [place for view in own for place in view["places"]][:MOST_PLACES],
        "everywhere": [place for view in own for place in view["everywhere"] or view["places"]]
        if any(view["everywhere"] for view in own)
        else [],
        "brief": first["brief"]
        if len(own) == 1 or cause is None
        else [phrases.hosts(cause["nodes"], LONGEST_PLACE // 2)],
        "nodes": first["fold"].hosts if cause is None else tuple(cause["nodes"]),
        "card_severity": first["severity"] if cause is None else cause["severity"],
        "owner": first["owner"] if cause is None else cause.get("owner", DEFAULT_OWNER),
        "action": _action(first["fold"].example, cause),
        "conflicts": []
        if cause is None
        else [phrases.conflict(one) for one in cause["remedy"]["conflicts"]],
        "ticket": "" if cause is None else phrases.devices(cause),
        "command": visible(command, LONGEST_COMMAND) if len(command) <= LONGEST_COMMAND else "",
        "command_left": len(command) > LONGEST_COMMAND,
        "unfolded": cause is not None and cause["severity"] == "critical" and place < MOST_UNFOLDED,
        "explains": views[1:],
    }


def _action(finding: Mapping[str, Any], cause: Mapping[str, Any] | None) -> str:
    """The finding's action, or the one by the nodes' merged policy if that differs."""
    own = finding.get("remedy")
    if cause is None or not cause["remedy"]["role"] or not isinstance(own, Mapping):
        return phrases.action(finding)
    merged = cause["remedy"]
    if sorted(phrases.settings(own.get("policy") or {})) == sorted(
        phrases.settings(merged["policy"])
    ):
        return phrases.action(finding)
    return phrases.action({"remedy": {**own, "role": merged["role"], "policy": merged["policy"]}})


def fold_view(
    number: int, fold: Fold, drawn_hosts: Sequence[tuple[str, Collection[str]]]
) -> dict[str, Any]:
    """A fold for the template. drawn_hosts: (id of a drawing, its hosts)."""
    finding = fold.example
    hosts = set(fold.hosts)
    shown, everywhere = phrases.places(fold, 6, LONGEST_PLACE), phrases.places(fold, MOST_PLACES)
    drawn = (
        [anchor for anchor, named in drawn_hosts if not hosts.isdisjoint(named)]
        if about_interconnect(finding)
        else []
    )
    return {
        "number": number,
        "fold": fold,
        "severity": str(finding["severity"]),
        "owner": str(finding.get("owner", DEFAULT_OWNER)),
        "title": finding.get("title"),
        "rule": finding.get("rule"),
        "wide": fold.size if finding.get("scope", "node") != "node" else 0,
        "places": shown,
        "everywhere": [] if shown == everywhere else everywhere,
        "expected": visible(finding.get("expected") or ""),
        "found": visible(finding.get("found") or ""),
        "others": [visible(text) for text in fold.others],
        "comparison": phrases.comparison(finding, 12),
        "action": phrases.action(finding),
        "workaround": phrases.workaround(finding),
        "evidence": phrases.evidence(finding),
        "situations": phrases.situations(finding),
        "confidence": phrases.confidence(finding),
        "sources": [_source(row) for row in finding.get("sources") or []],
        "drawings": drawn[:6],
        "brief": phrases.places(fold, 2, LONGEST_PLACE // 2),
        "unfolded": False,
        "card_severity": str(finding["severity"]),
        "conflicts": [],
        "ticket": "",
        "command": "",
        "command_left": False,
        "explains": [],
    }


def explained(views: Sequence[Mapping[str, Any]]) -> str:
    """The number of findings that the cause explains, as `It accounts for 6 more findings`."""
    return f"It accounts for {counted(sum(view['fold'].size for view in views), 'more finding')}"


def about_interconnect(finding: Mapping[str, Any]) -> bool:
    """Whether to show a node's drawing: the finding is about links, pairs, the fabric, RDMA ports,
    a GPU's PCIe slot, or a GPU that does not answer."""
    paths = [str(row.get("path") or "") for row in finding.get("evidence") or []]
    return any(
        path.startswith(_INTERCONNECT)
        or (path.startswith("gpus.devices") and (".pcie" in path or path.endswith(".error")))
        for path in paths
    )


def _source(row: Mapping[str, Any]) -> dict[str, str]:
    url = str(row.get("url") or "")
    try:
        parts = urlsplit(url)
        linked = (
            parts.scheme == "https"
            and bool(parts.hostname)
            and url.isascii()
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        linked = False
    return {
        "url": url if linked else "",
        "text": visible(url, 200),
        "says": visible(row.get("says") or "", 400),
    }
