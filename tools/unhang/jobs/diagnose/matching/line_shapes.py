"""Caches by the shape of a line (the line without its digits) whether the line matters, and which
signatures to try on it. Its memory is bounded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.jobs.diagnose.matching.sieve import Sieve, Trial
from unhang.jobs.diagnose.matching.signatures import Signature

MOST_REMEMBERED = 64 * 1024 * 1024  # bytes of shapes
LONGEST_REMEMBERED = 1024
MOST_WANTED = 100_000
MOST_TRIES = 200_000
# failed tries of a signature that reads no digits on lines of one shape: after these it never
# matches
MISSES = 2
ONCE = 16  # matches on lines of one shape, so that lines of several hosts are kept
_BUS = re.compile(rb"(?<=busId )[a-f]{1,6}")
# the line without its digits
_POINTER = re.compile(rb"(?<![A-Za-z])x[a-f]{1,16}(?![A-Za-z])|(?<=busId )[a-f]{1,6}")


class LineShapes:
    """Shapes that match nothing (dull), and the trials of the others."""

    def __init__(self, sieve: Sieve) -> None:
        self.sieve = sieve
        self.dull: set[bytes] = set()
        self.wanted: dict[bytes, tuple[Trial, ...]] = {}
        self._tries: dict[tuple[str, bytes, bool], int] = {}
        self._new_bytes = 0
        self._wanted_bytes = 0

    def learn(self, shapes: Sequence[bytes]) -> None:
        """Sorts new shapes into dull and wanted."""
        new = set(shapes) - self.dull
        new.difference_update(self.wanted)
        if not new:
            return
        found = {
            line_shape: trials
            for line_shape, likely in self.sieve.likely(new)
            if (trials := self._without_missed(line_shape, likely))
        }
        self.wanted.update(found)
        self._wanted_bytes += sum(map(len, found))
        dull = new.difference(found)
        self.dull |= (
            dull
            if max(map(len, dull), default=0) <= LONGEST_REMEMBERED
            else {one for one in dull if len(one) <= LONGEST_REMEMBERED}
        )
        self._new_bytes += sum(map(len, new))
        if self._new_bytes > MOST_REMEMBERED:
            self.dull, self._tries, self._new_bytes = set(), {}, 0

    def _without_missed(self, line_shape: bytes, trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """The trials without those that are known to fail on lines that differ in their pointers
        too."""
        shape = _POINTER.sub(b"", line_shape)
        if shape == line_shape:
            return trials
        return tuple(
            one for one in trials if self._tries.get((one.signature.id, shape, False), 0) < MISSES
        )

    def tried(self, signature: Signature, line_shape: bytes, found: bool) -> bool:
        """Records a try; True if this signature need not be tried again on lines of this
        line_shape."""
        if found:
            return (
                signature.once
                and self._count(signature, _BUS.sub(b"", line_shape), found=True) >= ONCE
            )
        return (
            not signature.reads_digits
            and self._count(signature, _POINTER.sub(b"", line_shape), found=False) >= MISSES
        )

    def _count(self, signature: Signature, shape: bytes, *, found: bool) -> int:
        key = (signature.id, shape, found)
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key]

    def leave_out(self, line_shape: bytes, done: Sequence[Trial]) -> None:
        """Removes trials from a shape; without any trials left it is dull."""
        left = tuple(one for one in self.wanted[line_shape] if one not in done)
        if left:
            self.wanted[line_shape] = left
        else:
            del self.wanted[line_shape]
            self.dull.add(line_shape)

    def forget_many(self) -> None:
        """Drops wanted shapes if there are too many, so that ever new shapes do not fill the
        memory."""
        if len(self.wanted) > MOST_WANTED or self._wanted_bytes > MOST_REMEMBERED:
            self.wanted.clear()
            self._wanted_bytes = 0
        if len(self._tries) > MOST_TRIES:
            self._tries.clear()
