"""Finds the signatures with an anchor in a line, by one search for all anchors at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ahocorasick_rs import BytesAhoCorasick

from unhang.jobs.diagnose.matching.signatures import Signature

DIGITS = b"0123456789"
# a signature, and those of its anchors that may be in a line
Trial = tuple[Signature, Sequence[str]]


class Sieve:
    """The anchors of all signatures, prepared for the search. Its results never change; it caches
    them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        by_anchor: dict[bytes, list[Signature]] = {}
        for signature in signatures:
            for anchor in signature.anchors:
                by_anchor.setdefault(anchor.translate(None, DIGITS), []).append(signature)
        # anchor without digits -> its signatures
        self.anchors: Mapping[bytes, Sequence[Signature]] = by_anchor
        self._texts = tuple(by_anchor)
        self._search = BytesAhoCorasick(self._texts).find_matches_as_indexes
        self._trials: dict[tuple[int, ...], Sequence[Trial]] = {(): ()}

    def trials(self, shape: bytes) -> Sequence[Trial]:
        """The signatures to try on a line, of which this is the shape: the line without digits."""
        numbers = tuple(sorted({number for number, _, _ in self._search(shape, overlapping=True)}))
        if numbers not in self._trials:
            if len(self._trials) >= 20_000:  # sets of anchors
                self._trials = {(): ()}
            self._trials[numbers] = self._to_try(numbers)
        return self._trials[numbers]

    def _to_try(self, present: Sequence[int]) -> Sequence[Trial]:
        """In the order in which their anchors are in the catalogue, which is the order of a line's
        events."""
        held = [self._texts[number] for number in present]
        return [
            (
                one,
                [
                    text.decode()
                    for text in one.anchors
                    if one.reads_on or text.translate(None, DIGITS) in held
                ],
            )
            for one in {row.id: row for text in held for row in self.anchors[text]}.values()
        ]
