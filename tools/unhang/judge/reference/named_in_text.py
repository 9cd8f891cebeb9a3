"""What a text names that the catalogue knows, each with what `unhang explain` says of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from urllib.parse import urlsplit

from unhang.judge.reference.explain import Topic, explain, names_among
from unhang.judge.rules.compiled_catalogue import Catalogue

MOST_NAMED, MOST_ASKED, LINE = 5, 60, 100
# the labels of explain's lines that help a person most, in this order
TELLING = ("known faults", "can fire", "limits", "meaning", "hides", "does",
           "what to do", "action")  # fmt: skip
_WORD = re.compile(r"(?:\(PCI:\S+ )?([A-Za-z0-9_](?:[\w.=-]{0,60}[A-Za-z0-9_])?)")
# what is a name by itself, without the word before it: NCCL_ALGO=Ring, 545.23.08, H100
_ALONE = re.compile(r"[A-Z]{2,8}_[A-Z0-9_]+(?:=\S+)?|\d+\.\d+\.\d+|[A-Z]{1,4}\d{2,4}[A-Z]?")


def named_in(catalogue: Catalogue, text: str) -> list[str]:
    """Lines "Xid 79: what is known (its source)", each thing once, in the order of the text."""
    lines = []
    said: set[tuple[str, ...]] = set()
    for name in dict.fromkeys(_names(text)):
        topics = explain(catalogue, name)
        ids = tuple(one.id for one in topics)
        if topics and ids not in said:
            said.add(ids)
            lines.append(_line(name, topics))
    return lines[:MOST_NAMED]


def _names(text: str) -> Iterator[str]:
    words = names_among(_WORD.findall(text))
    asked = 0
    for before, word in zip(("", *words), words, strict=False):
        is_pair = before.isupper() and word.isdigit()  # RTX 3090
        kind, _, number = word.partition(" ")  # xid 79
        if asked < MOST_ASKED and (is_pair or number[:1].isdigit() or _ALONE.fullmatch(kind)):
            asked += 1
            yield f"{before} {word}" if is_pair else word


def _line(name: str, topics: list[Topic]) -> str:
    """What is known, cut so that the name and the source's host are whole."""
    known = [
        text
        for wanted in TELLING
        for topic in topics
        for label, text in topic.lines
        if label == wanted and text != "none"
    ]
    told = "; ".join(known[:2] or [f"{label} {text}" for label, text in topics[0].lines[:3]])
    hosts = [urlsplit(one["url"]).hostname for topic in topics for one in topic.sources[:1]]
    source = f" ({hosts[0]})" if hosts else ""
    room = max(LINE - len(f"{name}: {source}"), 20)
    return f"{name}: {textwrap.shorten(told, room, placeholder=' …')}{source}"
