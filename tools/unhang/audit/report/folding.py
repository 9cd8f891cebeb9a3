"""Folds equal findings into one: over hosts (`gpu[001-008]`) and over the items of a rule (GPU
0-7).

Values in, values out. One pass over the findings; nothing here compares findings pair by pair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.RangeSet import RangeSet

from unhang.core.run.findings import SEVERITIES, hosts_of
from unhang.core.text import listed, visible

_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_PCI = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")
_RANK = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_LONGEST_NUMBER = 9  # digits; ClusterShell refuses more than 100, and no real number has more
_INDEX = re.compile(r"\[\d+\]")
_FAR = re.compile(r"lies on (?P<kind>\S+) at (?P<mount>[^,]+), which nobody named")
MOST_PATHS = 6  # facts that are listed, of all that were not read for one reason
# a path such as faults.events[0] means nothing to readers who do not know the document
_FACT = re.compile(r"[a-z_][a-z0-9_]*(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])+")
_TABLE_ROW = re.compile(r"tables\.[a-z0-9_]+[.\[](?P<row>.+?)\]?")


@dataclass(frozen=True)
class Place:
    """Hosts that share the same items: every item was found on every one of the hosts."""

    hosts: tuple[str, ...]
    items: tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """Equal findings: an example of them, and every place where they were found."""

    example: Mapping[str, Any]
    places: tuple[Place, ...]
    size: int  # number of findings
    others: tuple[str, ...] = ()  # `found` of a few more findings, if it differs from the example's
    by_host: Mapping[str, int] = field(default_factory=dict)  # number of findings for each host

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({host for place in self.places for host in place.hosts}))


@dataclass(frozen=True)
class Unread:
    """Facts that were not read for one reason, and the rules that are therefore unknown."""

    paths: tuple[str, ...]
    reason: str
    rules: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The facts in one line, the first few by name."""
        return listed(self.paths, MOST_PATHS)


def of_verdict(verdict: str, findings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The findings of a document that have this verdict."""
    return [one for one in findings.get("findings") or () if one["verdict"] == verdict]


def fold_items(labels: Iterable[str]) -> str:
    """`GPU 0-7`, `mlx5_0, mlx5_1`, `GPU 0 link 3, GPU 1 link 3`; many labels end in the number of
    further ones."""
    numbers: dict[str, list[int]] = {}
    others: list[str] = []
    for label in sorted(set(labels)):
        head, _, tail = label.rpartition(" ")
        if (
            head
            and len(tail) <= _LONGEST_NUMBER
            and tail.isascii()
            and tail.isdigit()
            and str(int(tail)) == tail
        ):
            numbers.setdefault(head, []).append(int(tail))
        elif label:
            others.append(visible(label, 120))
    folded = [
        f"{visible(head, 120)} {RangeSet.fromlist([str(n) for n in found])}"
        for head, found in numbers.items()
    ]
    described = folded + others
    return (
        ", ".join(described)
        if len(described) <= 8
        else ", ".join(described[:8]) + f" and {len(described) - 8} more"
    )


def item_label(item: Mapping[str, Any] | None) -> str:
    """The name of a rule's item for people: GPU 3, GPU 3 link 7, mlx5_0, /opt/env."""
    if not item:
        return ""
    number = item.get("index", item.get("gpu"))
    if isinstance(number, int):
        return (
            f"GPU {number} link {item['link']}"
            if isinstance(item.get("link"), int)
            else f"GPU {number}"
        )
    if isinstance(item.get("a"), int) and isinstance(item.get("b"), int):
        return f"GPU {item['a']} to GPU {item['b']}"
    given = {
        key: value
        for key, value in item.items()
        if not (key == "path" and _FACT.fullmatch(str(value)))
    }
    for key in ("name", "path", "interface", "environment"):
        if given.get(key) is not None:
            return str(given[key])
    if given.get("pci_address") is not None:
        return f"PCI {given['pci_address']}"
    for key in ("uuid", "value"):
        if given.get(key) is not None:
            return str(given[key])
    shown = ", ".join(
        f"{key} {value}" for key, value in given.items() if isinstance(value, (str, int))
    )
    return shown or _fact_label(str(item.get("path", "")))


def _fact_label(path: str) -> str:
    """For a row of a table its id, which `unhang explain` accepts; for a fact without another name
    its path."""
    row = _TABLE_ROW.fullmatch(path)
    return row["row"] if row else path


def _key(finding: Mapping[str, Any], memo: dict[Any, str]) -> tuple[Any, ...]:
    host, item = str(finding.get("host") or ""), finding.get("where")
    expected, found = str(finding.get("expected") or ""), str(finding.get("found") or "")
    bare = []
    for text in (expected, found):
        asked = (text, host if host in text else "", item_label(item))
        if asked not in memo:
            memo[asked] = without_identities(text, host, item if isinstance(item, dict) else None)
        bare.append(memo[asked])
    wide = (
        (finding.get("group"), hosts_of(finding)) if finding.get("scope", "node") != "node" else ()
    )
    remedy = finding.get("remedy")
    # on some nodes a role repairs it, on others a person
    by_role = isinstance(remedy, Mapping) and bool(remedy.get("role"))
    return (
        finding.get("verdict"),
        finding.get("severity"),
        finding.get("rule"),
        finding.get("title"),
        by_role,
        *bare,
        wide,
    )


def fold_findings(findings: Iterable[Mapping[str, Any]]) -> list[Fold]:
    """Equal findings folded, most severe first, then those on most hosts."""
    memo: dict[Any, str] = {}
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for finding in findings:
        groups.setdefault(_key(finding, memo), []).append(finding)
    folds = [_fold(members) for members in groups.values()]
    counts = {id(fold): len(fold.hosts) for fold in folds}
    return sorted(
        folds,
        key=lambda fold: (
            _RANK.get(str(fold.example.get("severity")), len(_RANK)),
            -counts[id(fold)],
            str(fold.example.get("rule")),
        ),
    )


def _fold(members: list[Mapping[str, Any]]) -> Fold:
    items_by_host: dict[str, set[str]] = {}
    found: dict[str, None] = {}
    for finding in members:
        label = item_label(finding.get("where"))
        for host in hosts_of(finding):
            items_by_host.setdefault(host, set()).add(label)
        if len(found) < 6:
            found.setdefault(str(finding.get("found") or ""))
    hosts_by_items: dict[frozenset[str], list[str]] = {}
    for host, items in items_by_host.items():
        hosts_by_items.setdefault(frozenset(items), []).append(host)
    places = [
        Place(tuple(sorted(hosts)), tuple(sorted(items))) for items, hosts in hosts_by_items.items()
    ]
    places.sort(key=lambda place: (-len(place.hosts), place.hosts))
    by_host = Counter(host for finding in members for host in hosts_of(finding))
    return Fold(members[0], tuple(places), len(members), tuple(found)[1:], by_host)


def fold_unread(findings: Iterable[Mapping[str, Any]]) -> list[Unread]:
    """Unknown findings by the reason why their facts were not read, those with most rules first: a
    folder on NFS is one line for all its files."""
    paths: dict[str, set[str]] = {}
    rules: dict[str, set[str]] = {}
    hosts: dict[str, set[str]] = {}
    for finding in findings:
        for path, reason in unread_of(finding):
            cause = _far_folder(reason)
            paths.setdefault(cause, set()).add(_INDEX.sub("[*]", path))
            rules.setdefault(cause, set()).add(str(finding.get("rule")))
            hosts.setdefault(cause, set()).update(hosts_of(finding))
    folded = [
        Unread(
            tuple(sorted(paths[cause])),
            cause,
            tuple(sorted(rules[cause])),
            tuple(sorted(hosts[cause])),
        )
        for cause in paths
    ]
    return sorted(folded, key=lambda unread: (-len(unread.rules), -len(unread.hosts), unread.paths))


def _far_folder(reason: str) -> str:
    """The reason, with the folder in place of a file on a network file system, because all its
    files were not read for the same reason."""
    found = _FAR.search(reason)
    return (
        reason
        if found is None
        else (
            f"{reason.partition(':')[0]}: {found['mount']} lies on {found['kind']}, which nobody"
            " named: not touched"
        )
    )


def unread_of(finding: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(fact path, why it was not read) of an unknown finding."""
    rows = []
    for row in finding.get("missing") or []:
        why = [str(row[key]) for key in ("status", "reason") if row.get(key)]
        rows.append((str(row.get("path") or "?"), ": ".join(why) or "not read"))
    return rows or [("?", str(finding.get("found") or "not read"))]


def without_identities(text: str, host: str, item: dict[str, Any] | None) -> str:
    """`text` without the names of its host or device, so that equal findings of several nodes
    compare equal."""
    text = _without_word(text, host, "<host>")
    if "-" in text:
        text = _UUID.sub("<uuid>", text)
    if ":" in text:
        text = _PCI.sub("<pci>", text)
    for value in (item or {}).values():
        if isinstance(value, str):
            text = _without_word(text, value, "<name>")
        elif isinstance(value, int) and not isinstance(value, bool):
            text = re.sub(rf"(?i)\b(gpu|link|port|device)([ _]?){value}\b", r"\1\2<n>", text)
    return text


def _without_word(text: str, word: str, sign: str) -> str:
    """Replaces each whole `word`, without compiling a pattern, because every host would need its
    own."""
    if not word or word not in text:
        return text
    parts = text.split(word)
    made = parts[0]
    for after in parts[1:]:
        alone = not (made and _in_word(made[-1])) and not (after and _in_word(after[0]))
        made += (sign if alone else word) + after
    return made


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "_.-"
