"""Cuts a text at words: half a number is another number, and half a name another name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

GAP = "[...]"
# a word, and what a word without room falls into: no number and no name goes on behind a piece
_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"[\w.,:+%/@-]+|[^\w\s.,:+%/@-]")
_LAST_PIECE = re.compile(r"[\w.,:+%/@-]+\Z")

Span = tuple[int, int]


def leading_words(text: str, most: int) -> str:
    """The words at the beginning that have room; of a single word without room its beginning."""
    if len(text) <= most:
        return text
    kept = text[:most]
    if _PIECE.fullmatch(text[most - 1 : most + 1]):
        kept = _LAST_PIECE.sub("", kept)
    return kept.rstrip() or text[:most]


def quote(text: str, most: int, matched: str = "") -> str:
    """At most `most` letters of a line, its words as they are: those of `matched` and from there
    outwards; without it the beginning and the end, because a message begins with its source and
    ends with the fault. A mark stands for what is left out. A word without room is left out."""
    if len(text) <= most:
        return text
    words = list(_words(text, most // 2))
    begin = text.find(matched) if matched else -1
    end = begin + len(matched)
    seeds = [at for at, (left, right) in enumerate(words) if left < end and right > begin >= 0]
    kept: set[int] = set()
    for at in seeds or [0, len(words) - 1]:
        if len(_with_gaps(text, words, kept | {at})) <= most:
            kept.add(at)
    size = -1
    while size < len(kept):
        size = len(kept)
        for at in {place + step for place in kept for step in (-1, 1)} - kept:
            if 0 <= at < len(words) and len(_with_gaps(text, words, kept | {at})) <= most:
                kept.add(at)
    return _with_gaps(text, words, kept)


def _words(text: str, most: int) -> Iterator[Span]:
    """The words; of one that is longer than `most`, its pieces."""
    for found in _WORD.finditer(text):
        if found.end() - found.start() <= most:
            yield found.span()
        else:
            for piece in _PIECE.finditer(text, *found.span()):
                yield piece.span()


def _with_gaps(text: str, words: list[Span], kept: Collection[int]) -> str:
    shown, last = "", -1
    for at in sorted(kept):
        if at == last + 1 and at:
            shown += text[words[last][1] : words[at][1]]
        else:
            shown += f"{' ' if shown else ''}{GAP} " if at else ""
            shown += text[slice(*words[at])]
        last = at
    return shown if last == len(words) - 1 else f"{shown} {GAP}".strip()
