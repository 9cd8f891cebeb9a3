"""One pass over each log: most lines are passed over by their likeness, the few that hold an anchor are searched by its signatures.

Lines of one likeness differ in their digits alone. A block's lines are stripped of digits at once, in C; a likeness that was seen before and
holds no anchor costs one look into a set, so that a log of a million channel lines costs about as much as to read it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.diagnose.calls import MARK, Call, note_calls, without_calls
from unhang.diagnose.reading import Block
from unhang.diagnose.signatures import Signature
from unhang.diagnose.stamps import Prefix, parse_prefix
from unhang.diagnose.wording import FIRST_LINES, MOST_WORDS, names_a_failure, words_in

DIGITS = b"0123456789"
MOST_REMEMBERED = 64 * 1024 * 1024  # bytes of likenesses
LONGEST_REMEMBERED = 1024
MOST_EVENTS = 4096  # of one signature in one file; later ones are counted by no one and change nothing
MOST_ONCE = 512
MISSES = 2  # of a signature to which digits are all the same, on lines of one likeness: then it never matches
ONCE = 16  # lines of one likeness, so that several hosts are heard
MOST_WANTED = 100_000
LONGEST_COMMAND = 4000
LAST_LINES = 8
TEXT_LIMIT = 500
_POINTER = re.compile(rb"0x[a-f]{1,16}|(?<=busId )[a-f]{1,6}")
# Text that shows a message without being one: source code in tracebacks, searches, and people's own words for a search.
_FRAME = re.compile(rb'File "[^"\n]{1,400}", line \d{1,7}(?:, in |$)')
_CODE = re.compile(
    r"\s{2,}(?:raise|print|logger|logging|log|assert|warnings?|warn|if|elif|return|echo)\b[ .(]|\s*\+{1,3} (?:echo|grep|printf)\b|"
    r"\s*(?:\S{1,64}[$#%>] |[$#] )(?:sudo )?(?:grep|egrep|rg|awk|sed|dmesg|journalctl|zgrep|watch|tail|less|cat)\b"
)
_SAMPLE = re.compile(
    r"""(?:"|')?(?:text|content|prompt|question|answer|instruction|completion|input|output|body|sample|example)(?:"|')? ?\d{0,9} ?[:=] ?["'\[{]""",
    re.IGNORECASE,
)
_PROSE = re.compile(r"\s{0,4}(?:#|//|>|[*-] |\d{1,2}\. )\s{0,3}\S|\s{0,2}[A-Z][a-z']{0,20}(?:,? [\w'%./=`-]{1,40}){3}")
_SMALL = re.compile(r"\s{0,2}[\w=`]{1,40}(?:,? [\w'%./=`-]{1,40}){3}")  # a sentence without a capital, when it tells what happened to somebody
_REPORTED = re.compile(r"\b(?:help(?:s|ed)|work(?:s|ed)|fix(?:es|ed)|solve[sd]|hangs?|hung|stuck|freezes|froze|stalls|cured|thanks|we|our|my|I|it)\b")
_QUOTE = re.compile(r"\s*(?:>\s?){1,4}(?=\S)(?! ?(?:compiling|initializ|setting|building|padded|done|INFO|WARN|ERROR|finished|learning|number))")


@dataclass(frozen=True)
class Event:
    """One line that a signature knows. fields: the pattern's named groups. quoted: it stands in a quotation. source: it is a traceback's line of code."""

    signature: Signature
    file: str
    line: int
    text: str
    fields: Mapping[str, str | None]
    prefix: Prefix
    quoted: bool = False
    source: bool = False


@dataclass
class Scan:
    """What one file gave. last: (line number, text) of its last lines that are not empty. calls: the newest NCCL call of each process.

    words: of its first distinct lines, and of the later ones that tell of a failure.
    """

    file: str
    events: list[Event] = field(default_factory=list)
    last: list[tuple[int, str]] = field(default_factory=list)
    calls: dict[tuple[str, str], Call] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)  # signatures of which there were more than are kept
    words: set[str] = field(default_factory=set)
    lines_heard: int = 0
    outside: dict[int, Prefix] = field(default_factory=dict)  # place of an event -> what stands around its line


class Sieve:
    """The anchors of all signatures, ready to look for. Values that never change once made."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.by_anchor: dict[bytes, list[Signature]] = {}
        for signature in signatures:
            for anchor in signature.anchors:
                self.by_anchor.setdefault(anchor.translate(None, DIGITS), []).append(signature)
        self.longer = longer_anchors(sorted(self.by_anchor))

    def likely(self, likenesses: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[Signature, ...]]]:
        """Each likeness that holds an anchor, with the signatures to try."""
        asked = list(likenesses)
        whole = b"\n".join(asked)
        present = [anchor for shortest, longer in self.longer.items() if shortest in whole for anchor in (shortest, *(one for one in longer if one in whole))]
        if not present:
            return
        for likeness in asked:
            found: dict[str, Signature] = {}
            for anchor in present:
                if anchor in likeness:
                    found.update((one.id, one) for one in self.by_anchor[anchor])
            if b" NCCL INFO " in likeness:  # no person's words
                found = {name: one for name, one in found.items() if not one.program.startswith("people")}
            if found:
                yield likeness, tuple(found.values())


def longer_anchors(anchors: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    """Anchors that contain no other one, each with some that contain it: where the shorter one is absent, the longer ones need no look."""
    joined = b"\n".join(anchors)
    starts = [0, *(found.end() for found in re.finditer(rb"\n", joined))]
    shorter: dict[bytes, bytes] = {}
    for anchor in sorted(anchors, key=len):
        at = joined.find(anchor) if anchor not in shorter else -1
        while at >= 0:
            longer = anchors[bisect_right(starts, at) - 1]
            if longer != anchor:
                shorter.setdefault(longer, anchor)
            at = joined.find(anchor, at + 1)
    families: dict[bytes, list[bytes]] = {anchor: [] for anchor in anchors if anchor not in shorter}
    for longer, anchor in shorter.items():
        families[anchor].append(longer)
    return families


class _Memory:
    """What is known of likenesses: the dull ones, and the signatures to try on the others. Pointers count as alike."""

    def __init__(self, sieve: Sieve) -> None:
        self.sieve = sieve
        self.dull: set[bytes] = set()
        self.wanted: dict[bytes, tuple[Signature, ...]] = {}
        self._known: dict[bytes, tuple[Signature, ...]] = {}
        self._tries: dict[tuple[str, bytes, bool], int] = {}
        self._bytes = 0

    def learn(self, likenesses: list[bytes]) -> set[bytes]:
        """Sorts the likenesses that were not seen before into dull and wanted. Those that were not seen before."""
        new = set(likenesses) - self.dull
        new.difference_update(self.wanted)
        if not new:
            return new
        reduced = {one: _POINTER.sub(b"", one) if b"0x" in one else one for one in new}
        unknown = {one for one in reduced.values() if one not in self._known}
        if unknown:
            self._known.update(dict.fromkeys(unknown, ()))
            self._known.update(self.sieve.likely(unknown))
        for likeness, key in reduced.items():
            if signatures := self._known[key]:
                self.wanted[likeness] = signatures
            elif len(likeness) <= LONGEST_REMEMBERED:
                self.dull.add(likeness)
        self._bytes += sum(map(len, new))
        if self._bytes > MOST_REMEMBERED:
            self.dull, self._known, self._tries, self._bytes = set(), {}, {}, 0
        return new

    def tried(self, signature: Signature, likeness: bytes, found: bool) -> bool:
        """Notes a try; True when this signature has nothing more to say about lines of this likeness."""
        if not signature.once if found else signature.reads_digits:
            return False
        key = (signature.id, _POINTER.sub(b"", likeness), found)
        self._tries[key] = self._tries.get(key, 0) + 1
        return self._tries[key] >= (ONCE if found else MISSES)

    def keep_only(self, likeness: bytes, signatures: tuple[Signature, ...]) -> None:
        """From now on these signatures alone are tried on a likeness, none: it is dull."""
        self._known[_POINTER.sub(b"", likeness)] = signatures
        if signatures:
            self.wanted[likeness] = signatures
        else:
            self.wanted.pop(likeness, None)
            self.dull.add(likeness)

    def forget_many(self) -> None:
        """Wanted lines of ever new likeness must not fill the memory."""
        if len(self.wanted) > MOST_WANTED:
            self.wanted.clear()


def scan_blocks(blocks: Iterable[Block], file: str, sieve: Sieve) -> Scan:
    """Every event of one file, in its order."""
    scan = Scan(file)
    memory = _Memory(sieve)
    counts: dict[str, int] = {}
    for block in blocks:
        text = b"\n".join(block.lines)
        if MARK in text:
            note_calls(block, file, scan.calls)
        likenesses = without_calls(text).translate(None, DIGITS).split(b"\n")
        new = memory.learn(likenesses)
        if new and block.wrapping.layers:
            _hear_words(*_without_layers(new, likenesses, block), scan)
        else:
            _hear_words(new, likenesses, scan)
        if memory.wanted:
            _keep_events(block, likenesses, memory, scan, counts)
            memory.forget_many()
        _remember_last(block, scan)
    if scan.outside:
        scan.events = _with_what_stands_outside(scan)
    return scan


def _keep_events(block: Block, likenesses: list[bytes], memory: _Memory, scan: Scan, counts: dict[str, int]) -> None:
    get = memory.wanted.get
    for index, likeness in enumerate(likenesses):
        signatures = get(likeness)
        if not signatures:
            continue
        readings = [one.decode("utf-8", "replace") for one in block.readings(index)]
        done = []
        for signature in signatures:
            if signature.id in scan.full:
                done.append(signature)
                continue
            seen, found = _first_match(signature, readings, block, index)
            if found:
                source = _is_source(block, index)
                scan.events.append(event_of(signature, found, seen, scan.file, block.number(index), source=source))
                if len(readings) > 1:
                    _note_outside(readings, scan)
                if signature.fact == "setting":  # a command line may set several
                    more = signature.pattern.finditer(seen, found.end(), found.end() + LONGEST_COMMAND)
                    scan.events.extend(event_of(signature, one, seen, scan.file, block.number(index)) for one in more)
                counts[signature.id] = counts.get(signature.id, 0) + 1
                if counts[signature.id] >= (MOST_ONCE if signature.once else MOST_EVENTS):
                    scan.full.add(signature.id)
            if memory.tried(signature, likeness, found is not None):
                done.append(signature)
        if done:
            memory.keep_only(likeness, tuple(one for one in signatures if one not in done))


def _first_match(signature: Signature, readings: Sequence[str], block: Block, index: int) -> tuple[str, re.Match[str] | None]:
    """(text, match) of the first reading of a line, or of it and the lines below it, that the signature knows."""
    if signature.program == "people" and not is_prose(readings[0]):
        return readings[0], None
    for place, text in enumerate(readings):
        seen = _with_output(block, index, signature.reads_on, place) if signature.reads_on else text
        if found := signature.search(seen):
            return seen, found
    return readings[0], None


def _note_outside(readings: Sequence[str], scan: Scan) -> None:
    """What stands around the line of the newest event tells of its time, host or rank."""
    outside = readings[-1].removesuffix(readings[0])
    scan.outside[len(scan.events) - 1] = parse_prefix(outside, len(outside))


def _with_what_stands_outside(scan: Scan) -> list[Event]:
    """The events; where no line of the file tells time or host by itself, by the clock and the host that stand around the lines."""
    timed = any(event.prefix.time_s is not None for event in scan.events)
    hosted = any(event.prefix.host for event in scan.events)
    return [
        replace(event, prefix=event.prefix.completed(scan.outside[place], time=not timed, host=not hosted)) if place in scan.outside else event
        for place, event in enumerate(scan.events)
    ]


def _without_layers(new: set[bytes], likenesses: list[bytes], block: Block) -> tuple[set[bytes], list[bytes]]:
    """The likenesses of the bare lines in place of those of the wrapped ones."""
    bare = {likeness: block.readings(index)[0].translate(None, DIGITS) for index, likeness in enumerate(likenesses) if likeness in new}
    return set(bare.values()), [bare[one] for one in likenesses if one in bare]


def _hear_words(new: set[bytes], likenesses: list[bytes], scan: Scan) -> None:
    """The words of lines that were not seen before: of the first ones all, of the later ones where they tell of a failure."""
    if not new or len(scan.words) >= MOST_WORDS:
        return
    if scan.lines_heard < FIRST_LINES:
        first = [line for line in dict.fromkeys(likenesses) if line in new][: FIRST_LINES - scan.lines_heard]
        scan.lines_heard += len(first)
        scan.words |= words_in(b"\n".join(first))
        new = new.difference(first)
    scan.words |= words_in(b"\n".join(line[:LONGEST_REMEMBERED] for line in new if names_a_failure(line)))


def _with_output(block: Block, index: int, lines: int, place: int = 0) -> str:
    """A line and those below it: a command and what it printed. place: which reading of each line, 0 for the barest."""
    below = range(index, min(index + 1 + lines, len(block.lines)))
    return b"\n".join((readings := block.readings(at))[min(place, len(readings) - 1)][:TEXT_LIMIT] for at in below).decode("utf-8", "replace")


def _is_source(block: Block, index: int) -> bool:
    """Whether the line before it is a frame of a Python traceback, which shows the code that ran and not what it said."""
    return index > 0 and _FRAME.search(block.lines[index - 1]) is not None


def event_of(signature: Signature, found: re.Match[str], text: str, file: str, line: int, *, source: bool = False) -> Event:
    """The event of a match; source code that merely contains the words is told by its kind."""
    quoted = signature.kind not in ("fact", "progress", "folklore") and not signature.reads_on and is_quotation(text, found.start())
    if signature.reads_on:
        shown = " / ".join(line.strip() for line in text[: found.end()].splitlines())
        return Event(signature, file, line, shown[:TEXT_LIMIT], found.groupdict(), parse_prefix(text, found.start()))
    return Event(signature, file, line, around(text, found.start(), found.end()), found.groupdict(), parse_prefix(text, found.start()), quoted, source)


def is_prose(text: str) -> bool:
    """Whether a person seems to have written the line: a comment, a bullet, a quotation, or a plain sentence."""
    return _PROSE.match(text) is not None or (_SMALL.match(text) is not None and _REPORTED.search(text, 0, LONGEST_COMMAND) is not None)


def is_quotation(text: str, start: int) -> bool:
    """Whether what stands at `start` is shown and not said: a quoted ticket, source code, a search, a sample of training data."""
    if _CODE.match(text) or _QUOTE.match(text):
        return True
    return _SAMPLE.search(text, 0, min(start, 4000)) is not None


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
