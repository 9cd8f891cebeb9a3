"""What is known of lines that differ in their digits alone: those of no interest, and the signatures to try on the others. Bounded memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.diagnose.sieve import Sieve, Trial
from unhang.diagnose.signatures import Signature

MOST_REMEMBERED = 64 * 1024 * 1024  # bytes of likenesses
LONGEST_REMEMBERED = 1024
MOST_WANTED = 100_000
MOST_TRIES = 200_000
MISSES = 2  # of a signature to which digits are all the same, on lines of one likeness: then it never matches
ONCE = 16  # lines of one likeness, so that several hosts are heard
_BUS = re.compile(rb"(?<=busId )[a-f]{1,6}")
_POINTER = re.compile(rb"(?<![A-Za-z])x[a-f]{1,16}(?![A-Za-z])|(?<=busId )[a-f]{1,6}")  # without its digits


class Likenesses:
    """The dull ones, and the trials of the others."""

    def __init__(self, sieve: Sieve) -> None:
        self.sieve = sieve
        self.dull: set[bytes] = set()
        self.wanted: dict[bytes, tuple[Trial, ...]] = {}
        self._tries: dict[tuple[str, bytes, bool], int] = {}
        self._new_bytes = 0
        self._wanted_bytes = 0

    def learn(self, likenesses: Sequence[bytes]) -> set[bytes]:
        """Sorts the likenesses that were not seen before into dull and wanted. Those that were not seen before."""
        new = set(likenesses) - self.dull
        new.difference_update(self.wanted)
        if not new:
            return new
        found = {likeness: trials for likeness, told in self.sieve.likely(new) if (trials := self._without_missed(likeness, told))}
        self.wanted.update(found)
        self._wanted_bytes += sum(map(len, found))
        dull = new.difference(found)
        self.dull |= dull if max(map(len, dull), default=0) <= LONGEST_REMEMBERED else {one for one in dull if len(one) <= LONGEST_REMEMBERED}
        self._new_bytes += sum(map(len, new))
        if self._new_bytes > MOST_REMEMBERED:
            self.dull, self._tries, self._new_bytes = set(), {}, 0
        return new

    def _without_missed(self, likeness: bytes, trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """The trials without those that are known to fail on lines that differ in their pointers too."""
        shape = _POINTER.sub(b"", likeness)
        if shape == likeness:
            return trials
        return tuple(one for one in trials if self._tries.get((one.signature.id, shape, False), 0) < MISSES)

    def tried(self, signature: Signature, likeness: bytes, found: bool) -> bool:
        """Notes a try; True when this signature has nothing more to say about lines of this likeness."""
        if not signature.once if found else signature.reads_digits:
            return False
        key = (signature.id, (_BUS if found else _POINTER).sub(b"", likeness), found)
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key] >= (ONCE if found else MISSES)

    def leave_out(self, likeness: bytes, done: Sequence[Trial]) -> None:
        """From now on these are not tried any more on a likeness; where none is left, it is dull."""
        left = tuple(one for one in self.wanted[likeness] if one not in done)
        if left:
            self.wanted[likeness] = left
        else:
            del self.wanted[likeness]
            self.dull.add(likeness)

    def forget_many(self) -> None:
        """Wanted lines of ever new likeness must not fill the memory."""
        if len(self.wanted) > MOST_WANTED or self._wanted_bytes > MOST_REMEMBERED:
            self.wanted.clear()
            self._wanted_bytes = 0
        if len(self._tries) > MOST_TRIES:
            self._tries.clear()
