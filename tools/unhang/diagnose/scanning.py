"""One pass over each log: most lines are passed over by their likeness, the few that hold an anchor are searched by its signatures.

Lines of one likeness differ in their digits alone. A block's lines are stripped of digits at once, in C; a likeness that was seen before and
holds no anchor costs one look into a set, so that a log of a million channel lines costs about as much as to read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from unhang.diagnose.calls import MARK, Call, note_calls, without_calls
from unhang.diagnose.likenesses import LONGEST_REMEMBERED, Likenesses
from unhang.diagnose.reading import Block
from unhang.diagnose.sieve import DIGITS, Sieve, Trial
from unhang.diagnose.signatures import Signature
from unhang.diagnose.stamps import Prefix, parse_prefix
from unhang.diagnose.wording import FIRST_LINES, MOST_WORDS, naming_a_failure, words_in

MOST_EVENTS = 4096  # of one signature in one file; later ones are counted by no one and change nothing
MOST_ONCE = 512
LONGEST_COMMAND = 4000
LAST_LINES = 8
TEXT_LIMIT = 500
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
_OPENED = re.compile(r"""[:=] ?["'\[{]""")  # stands in each _SAMPLE
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


def scan_blocks(blocks: Iterable[Block], file: str, sieve: Sieve) -> Scan:
    """Every event of one file, in its order."""
    scan = Scan(file)
    memory = Likenesses(sieve)
    counts: dict[str, int] = {}
    for block in blocks:
        text = block.whole()
        if MARK in text:
            note_calls(block, file, scan.calls)
            text = without_calls(text)
        likenesses = text.translate(None, DIGITS).split(b"\n")
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


def _keep_events(block: Block, likenesses: list[bytes], memory: Likenesses, scan: Scan, counts: dict[str, int]) -> None:
    for index in compress(range(len(likenesses)), map(memory.wanted.__contains__, likenesses)):
        likeness = likenesses[index]
        readings: list[str] = []
        done = []
        for trial in memory.wanted[likeness]:
            signature = trial.signature
            if signature.id in scan.full:
                done.append(trial)
                continue
            if trial.is_in_vain(block.lines[index]):
                continue
            readings = readings or [one.decode("utf-8", "replace") for one in block.readings(index)]
            seen, found = _first_match(trial, readings, block, index)
            if found:
                place = len(scan.events)
                scan.events.extend(_events_of(signature, found, seen, block, index, scan.file))
                if len(readings) > 1:
                    scan.outside[place] = _outside(readings)
                counts[signature.id] = counts.get(signature.id, 0) + 1
                if counts[signature.id] >= (MOST_ONCE if signature.once else MOST_EVENTS):
                    scan.full.add(signature.id)
            if memory.tried(signature, likeness, found is not None):
                done.append(trial)
        if done:
            memory.leave_out(likeness, done)


def _events_of(signature: Signature, found: re.Match[str], seen: str, block: Block, index: int, file: str) -> Iterator[Event]:
    """The event of a match; of a command line that sets several things one for each."""
    line = block.number(index)
    yield event_of(signature, found, seen, file, line, source=_is_source(block, index))
    if signature.fact == "setting":
        for more in signature.pattern.finditer(seen, found.end(), found.end() + LONGEST_COMMAND):
            yield event_of(signature, more, seen, file, line)


def _first_match(trial: Trial, readings: Sequence[str], block: Block, index: int) -> tuple[str, re.Match[str] | None]:
    """(text, match) of the first reading of a line, or of it and the lines below it, that the signature knows."""
    signature = trial.signature
    if signature.program == "people" and not is_prose(readings[0]):
        return readings[0], None
    for place, text in enumerate(readings):
        seen = _with_output(block, index, signature.reads_on, place) if signature.reads_on else text
        if found := signature.search(seen, trial.anchors):
            return seen, found
    return readings[0], None


def _outside(readings: Sequence[str]) -> Prefix:
    """What stands around a line tells of its time, host or rank."""
    outside = readings[-1].removesuffix(readings[0])
    return parse_prefix(outside, len(outside))


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
    scan.words |= words_in(b"\n".join(line[:LONGEST_REMEMBERED] for line in naming_a_failure(list(new))))


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
    before = min(start, 4000)
    return _OPENED.search(text, 0, before) is not None and _SAMPLE.search(text, 0, before) is not None


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
