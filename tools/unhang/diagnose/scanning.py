"""One pass over each log: most lines are passed over by their likeness, the few that hold an anchor are searched by its signatures.

Lines of one likeness differ in their digits alone. A block's lines are stripped of digits at once, in C; a likeness that was seen before and
holds no anchor costs one look into a set, so that a log of a million channel lines costs about as much as to read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.diagnose.reading import Block
from unhang.diagnose.signatures import Signature
from unhang.diagnose.stamps import Prefix, parse_prefix

DIGITS = b"0123456789"
MOST_REMEMBERED = 64 * 1024 * 1024   # bytes of likenesses
LONGEST_REMEMBERED = 1024
MOST_EVENTS = 4096                   # of one signature in one file; later ones are counted by no one and change nothing
MOST_ONCE = 512
LAST_LINES = 8
TEXT_LIMIT = 500
# Text that shows a message without being one: source code in tracebacks, searches, and people's own words for a search.
_CODE = re.compile(
    r"\s{2,}(?:raise|print|logger|logging|log|assert|warnings?|warn|if|elif|return|echo)\b[ .(]|\s*\+{1,3} (?:echo|grep|printf)\b|"
    r"\s*(?:\S{1,64}[$#%>] |[$#] )(?:sudo )?(?:grep|egrep|rg|awk|sed|dmesg|journalctl|zgrep|watch|tail|less|cat)\b"
)
_QUOTE = re.compile(r"\s*(?:>\s?){1,4}(?=\S)(?! ?(?:compiling|initializ|setting|building|padded|done|INFO|WARN|ERROR|finished|learning|number))")


@dataclass(frozen=True)
class Event:
    """One line that a signature knows. fields: the pattern's named groups. quoted: it stands in a quotation."""

    signature: Signature
    file: str
    line: int
    text: str
    fields: Mapping[str, str | None]
    prefix: Prefix
    quoted: bool = False


@dataclass
class Scan:
    """What one file gave. last: (line number, text) of its last lines that are not empty."""

    file: str
    events: list[Event] = field(default_factory=list)
    last: list[tuple[int, str]] = field(default_factory=list)
    full: set[str] = field(default_factory=set)   # signatures of which there were more than are kept


class Sieve:
    """The anchors of all signatures, ready to look for. Values that never change once made."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.by_anchor: dict[bytes, list[Signature]] = {}
        for signature in signatures:
            for anchor in signature.anchors:
                self.by_anchor.setdefault(anchor.translate(None, DIGITS), []).append(signature)
        self.anchors = sorted(self.by_anchor)

    def likely(self, likenesses: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[Signature, ...]]]:
        """Each likeness that holds an anchor, with the signatures to try."""
        asked = list(likenesses)
        whole = b"\n".join(asked)
        present = [anchor for anchor in self.anchors if anchor in whole]
        if not present:
            return
        for likeness in asked:
            found: dict[str, Signature] = {}
            for anchor in present:
                if anchor in likeness:
                    found.update((one.id, one) for one in self.by_anchor[anchor])
            if found:
                yield likeness, tuple(found.values())


def scan_blocks(blocks: Iterable[Block], file: str, sieve: Sieve) -> Scan:
    """Every event of one file, in its order."""
    scan = Scan(file)
    dull: set[bytes] = set()
    dull_bytes = 0
    wanted: dict[bytes, tuple[Signature, ...]] = {}
    counts: dict[str, int] = {}
    for block in blocks:
        likenesses = b"\n".join(block.lines).translate(None, DIGITS).split(b"\n")
        new = set(likenesses) - dull
        new.difference_update(wanted)
        for likeness, signatures in sieve.likely(new):
            wanted[likeness] = signatures
            new.discard(likeness)
        short = [one for one in new if len(one) <= LONGEST_REMEMBERED]
        dull_bytes += sum(map(len, short))
        if dull_bytes > MOST_REMEMBERED:
            dull, dull_bytes = set(), 0
        dull.update(short)
        if wanted:
            _keep_events(block, likenesses, wanted, scan, counts)
            _let_go(wanted, scan, dull)
        _remember_last(block, scan)
    return scan


def _keep_events(block: Block, likenesses: list[bytes], wanted: dict[bytes, tuple[Signature, ...]], scan: Scan, counts: dict[str, int]) -> None:
    get = wanted.get
    for index, likeness in enumerate(likenesses):
        signatures = get(likeness)
        if not signatures:
            continue
        text = block.lines[index].decode("utf-8", "replace")
        done = []
        for signature in signatures:
            found = None if signature.id in scan.full else signature.search(text)
            if found:
                scan.events.append(event_of(signature, found, text, scan.file, block.number(index)))
                counts[signature.id] = counts.get(signature.id, 0) + 1
                if counts[signature.id] >= (MOST_ONCE if signature.once else MOST_EVENTS):
                    scan.full.add(signature.id)
            if signature.once and found:
                done.append(signature)
        if done or any(one.id in scan.full for one in signatures):
            wanted[likeness] = tuple(one for one in signatures if one not in done and one.id not in scan.full)


def _let_go(wanted: dict[bytes, tuple[Signature, ...]], scan: Scan, dull: set[bytes]) -> None:
    """Likenesses of which nothing more is wanted cost no more looks."""
    over = [likeness for likeness, signatures in wanted.items() if not signatures]
    for likeness in over:
        del wanted[likeness]
        dull.add(likeness)
    if len(wanted) > 100_000:
        wanted.clear()


def event_of(signature: Signature, found: re.Match[str], text: str, file: str, line: int) -> Event:
    """The event of a match; source code that merely contains the words is told by its kind."""
    quoted = signature.kind not in ("fact", "progress", "folklore") and (_CODE.match(text) is not None or _QUOTE.match(text) is not None)
    return Event(signature, file, line, around(text, found.start(), found.end()), found.groupdict(), parse_prefix(text, found.start()), quoted)


def around(text: str, start: int, end: int) -> str:
    """The line, or the part of a long line around what was found."""
    if len(text) <= TEXT_LIMIT:
        return text.strip()
    left = max(0, min(start - 150, len(text) - TEXT_LIMIT))
    return ("…" if left else "") + text[left : left + max(TEXT_LIMIT, min(end, left + TEXT_LIMIT) - left)].strip() + "…"


def _remember_last(block: Block, scan: Scan) -> None:
    kept: list[tuple[int, str]] = []
    for index in range(len(block.lines) - 1, max(-1, len(block.lines) - 200), -1):
        if block.lines[index].strip():
            kept.append((block.number(index), block.lines[index][:TEXT_LIMIT].decode("utf-8", "replace").strip()))
            if len(kept) == LAST_LINES:
                break
    scan.last = (scan.last + kept[::-1])[-LAST_LINES:]
