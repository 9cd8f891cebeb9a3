"""Finds the lines that contain an anchor of a signature, at a cost that hardly depends on the
number of signatures.

A text is read as numbers of four bytes; an anchor is searched only in pieces of text that contain
its rarest four bytes. All of this runs in C.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from unhang.jobs.diagnose.logs.calls import LEFT_OUT
from unhang.jobs.diagnose.matching.line_search import lines_holding
from unhang.jobs.diagnose.matching.needed_texts import holds
from unhang.jobs.diagnose.matching.signatures import Signature

DIGITS = b"0123456789"
GRAM = 4
PIECE = 4 * 1024  # bytes; in longer pieces of text most grams occur somewhere
# bytes; in shorter texts searching each anchor is faster than the table of grams
LITTLE = 16 * 1024
MOST_KEPT = 20_000  # sets of anchors with the signatures to try
_ANY_BYTE = tuple(bytes([code]) for code in range(256) if code not in DIGITS)


@dataclass(frozen=True)
class Trial:
    """A signature to try on lines of one shape. anchors: the ones that may be in them. numbered:
    the same if all have digits, which decide."""

    signature: Signature
    anchors: tuple[str, ...]
    numbered: tuple[bytes, ...] = ()

    def is_in_vain(self, line: bytes) -> bool:
        """Whether the line's digits differ from those of all anchors."""
        for anchor in self.numbered:
            if anchor in line:
                return False
        return bool(self.numbered)


class Sieve:
    """The anchors of all signatures, prepared for the search. Its results never change; it caches
    them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = tuple(signatures)
        by_anchor: dict[bytes, list[int]] = {}
        for place, signature in enumerate(self.signatures):
            for anchor in signature.anchors:
                by_anchor.setdefault(anchor.translate(None, DIGITS), []).append(place)
        # anchor without digits -> indices of its signatures
        self.anchors: Mapping[bytes, Sequence[int]] = by_anchor
        self._texts = tuple(by_anchor)
        self._trials: dict[tuple[int, ...], tuple[Trial, ...]] = {}
        self._asked_bytes = 0

    def likely(self, shapes: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[Trial, ...]]]:
        """Each shape that contains an anchor, with the signatures to try."""
        for lines in _pieces(shapes):
            for line, present in zip(lines, self.anchors_in(lines), strict=True):
                if present and (trials := self._to_try(line, tuple(present))):
                    yield line, trials

    def anchors_in(self, lines: Sequence[bytes]) -> list[list[int]]:
        """For each line without digits the indices in `anchors` of the anchors in it."""
        text = b"\n" + b"\n".join(lines)
        self._asked_bytes += len(text)
        numbers = range(len(self._texts)) if self._is_little_asked else self._possible(text)
        present: list[list[int]] = [[] for _ in lines]
        for number, held in zip(
            numbers, lines_holding(map(self._texts.__getitem__, numbers), lines), strict=True
        ):
            for index in held:
                present[index].append(number)
        return present

    @property
    def _is_little_asked(self) -> bool:
        return self._asked_bytes <= LITTLE

    def _possible(self, text: bytes) -> list[int]:
        """The indices of the anchors whose gram is in the text, in ascending order."""
        found: set[int] = set()
        for shift in range(GRAM):
            found |= self._grams.keys() & array(
                "I", text[shift : shift + (len(text) - shift) // GRAM * GRAM]
            )
        return sorted(number for gram in found for number in self._grams[gram])

    def _to_try(self, line: bytes, present: tuple[int, ...]) -> tuple[Trial, ...]:
        trials = self._trials.get(present)
        if trials is None:
            if len(self._trials) >= MOST_KEPT:
                self._trials.clear()
            trials = self._trials[present] = tuple(self._trials_of(present))
        if self._is_little_asked or line.endswith(LEFT_OUT):
            return trials
        return tuple(
            one for one in trials if one.signature.reads_on or holds(one.signature.needed, line)
        )

    def _trials_of(self, present: Sequence[int]) -> Iterator[Trial]:
        bare = by_family([self._texts[number] for number in present])
        for place in dict.fromkeys(place for anchor in bare for place in self.anchors[anchor]):
            signature = self.signatures[place]
            anchors = (
                signature.anchors
                if signature.reads_on
                else tuple(one for one in signature.anchors if one.translate(None, DIGITS) in bare)
            )
            differ = not signature.reads_on and all(
                one.translate(None, DIGITS) != one for one in anchors
            )
            yield Trial(
                signature, tuple(one.decode() for one in anchors), anchors if differ else ()
            )

    @cached_property
    def _grams(self) -> Mapping[int, Sequence[int]]:
        """Four bytes as a number -> the indices of the anchors that are searched where these bytes
        occur."""
        return grams_of(self._texts)


def grams_of(anchors: Sequence[bytes]) -> dict[int, list[int]]:
    """For each anchor the four bytes that the fewest anchors have, as a number of this machine; an
    anchor of three has any byte before it."""
    parts = [[anchor[at : at + GRAM] for at in range(len(anchor) - GRAM + 1)] for anchor in anchors]
    found_in = Counter(part for own in parts for part in set(own))
    grams: dict[int, list[int]] = {}
    for number, (anchor, own) in enumerate(zip(anchors, parts, strict=True)):
        for part in (
            (min(own, key=found_in.__getitem__),) if own else (byte + anchor for byte in _ANY_BYTE)
        ):
            grams.setdefault(int.from_bytes(part, sys.byteorder), []).append(number)
    return grams


def by_family(anchors: Sequence[bytes]) -> list[bytes]:
    """The anchors of one line in the order in which their signatures are tried, which is the order
    of the line's events. An anchor that contains others comes after the shortest of them."""
    shortest = {
        one: min(
            (other for other in anchors if other in one), key=lambda other: (len(other), other)
        )
        for one in anchors
    }
    return sorted(anchors, key=lambda one: (shortest[one], one != shortest[one], one))


def _pieces(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line) + 1
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
