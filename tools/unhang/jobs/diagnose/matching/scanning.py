"""One pass over each log: most lines are skipped by their shape, which is the line without its
digits; the few that contain an anchor are searched by its signatures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from unhang.core.catalogue.own_tables import table
from unhang.core.quotes import leading_words
from unhang.core.secrets_in_text import cut_without_secrets, without_secrets
from unhang.core.verdict.by_stacks import Stack
from unhang.jobs.diagnose.logs.calls import MARK, Call, note_calls, without_calls
from unhang.jobs.diagnose.logs.last_words import LAST_LINES, LastWords
from unhang.jobs.diagnose.logs.line_prefixes import Prefix, parse_prefix
from unhang.jobs.diagnose.logs.ras_answers import RasAnswer, RasText, ras_answers
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.logs.stacks import Stacks
from unhang.jobs.diagnose.logs.task_labels import Labels, are_numbers_of_a_list
from unhang.jobs.diagnose.matching.running_text import (
    is_a_machines,
    is_in_words,
    is_of_people,
    numbers_of_prose,
)
from unhang.jobs.diagnose.matching.sieve import DIGITS, Sieve
from unhang.jobs.diagnose.matching.signatures import Signature
from unhang.jobs.job_files import JobFile

# matches of one signature in one file; later ones are ignored, because they change no result
MOST_EVENTS = 4096
MOST_ONCE = 512
# of lines of one shape: matches that are kept, so that lines of several hosts are; and tries in
# vain, after which a signature that reads no digits never matches
ONCE, MISSES = 16, 2
MOST_REMEMBERED = 50_000  # shapes
LONGEST_REMEMBERED = 1024
SHOWN_LINES = 8
LINES_OF_A_FRAME = 3  # the frame, its source, a line of marks
TEXT_LIMIT = 500
MOST_OF_OUTPUT = 32 << 20  # of a machine's tools
OF_A_TOOL = re.compile("|".join(table("output_signs")).encode(), re.MULTILINE)
# a command line sets several variables; progress bars join the messages of ranks
SEVERAL_ON_A_LINE = ("setting", "timeout")
# Text that contains a message without being one: source code in tracebacks, search commands, and
# descriptions by people.
_FRAME = re.compile(rb'File "[^"\n]{1,400}", line \d{1,7}(?:, in |$)')
_CODE = re.compile(
    r"\s{2,}(?:raise|print|logger|logging|log|assert|warnings?|warn|if|elif|return|echo)\b["
    r" .(]|\s*\+{1,3} (?:echo|grep|printf)\b|"
    r"\s*(?:\S{1,64}[$#%>] |[$#] )(?:sudo"
    r" )?(?:grep|egrep|rg|awk|sed|dmesg|journalctl|zgrep|watch|tail|less|cat)\b"
)
_SAMPLE = re.compile(
    r"""(?:"|')?(?:text|content|prompt|question|answer|instruction|completion|input|output|body|sample|example)(?:"|')? ?\d{0,9} ?[:=] ?["'\[{]""",  # noqa: E501
    re.IGNORECASE,
)
SETTINGS = ("setting", "launch_blocking")  # facts of what the job has set
_ADVICE = re.compile(
    r"(?i:\b(?:please|you (?:can|may|could|should|might)|consider|try(?: to)?|either|by"
    r" (?:setting|using)|re-?run (?:it |again )?with|recommend\w{0,3}|"
    r"suggest\w{0,3}|if (?:this|you)|would|could|should|might)\b[^\n;]{0,150}$)"
)
_RANK_LABEL = re.compile(rb"\[rank\d{1,6}\]|\[default\d{1,6}\]")
# what follows may be the process; rank0_7 and rank0_to_7 are of several
_RANK_IN_FILE = re.compile(r"(?<!node[_-])rank[_-]?(\d{1,6})(?![^\W_]|_(?:to_)?\d{1,2}(?!\d))")
# torchrun --log-dir, a folder for each local rank
_RANK_IN_FOLDER = re.compile(r"/attempt_\d{1,4}/(\d{1,5})/std(?:out|err)\.log$")
# of pdsh and clush, before each line
_LABEL = re.compile(r"(?P<host>[A-Za-z][A-Za-z.-]{0,40}\d[\w.-]{0,40}):")
_QUOTE = re.compile(
    r"\s*(?:>\s?){1,4}(?=\S)(?!"
    r" ?(?:compiling|initializ|setting|building|padded|done|INFO|WARN|ERROR|finished|learning|number))"  # noqa: E501
)


@dataclass(frozen=True)
class Event:
    """One line that matches a signature. fields: the pattern's named groups. quoted: it is in a
    quotation. source: it is a traceback's line of code. at: the part of the text that matched, of a
    collective its number and operation."""

    signature: Signature
    file: str
    line: int
    text: str
    fields: Mapping[str, str | None]
    prefix: Prefix
    quoted: bool = False
    source: bool = False
    at: tuple[int, int] = (0, 0)

    @property
    def id(self) -> str:
        return self.signature.id

    @property
    def kind(self) -> str:
        return self.signature.kind

    @property
    def fact(self) -> str | None:
        return self.signature.fact

    @property
    def place(self) -> tuple[str, int]:
        return self.file, self.line

    def follows(self, other: Event, within: int = 1 << 62) -> bool:
        """Whether it is a later line of the same file. within: lines."""
        return self.file == other.file and 0 < self.line - other.line <= within

    def number(self, name: str) -> int:
        """A field of digits; 0 where it did not match."""
        return int(self.fields[name] or 0)

    def decimal(self, name: str) -> float:
        return float(self.fields[name] or 0)


@dataclass
class Scan:
    """The result of one file. last: (line number, text) of its last lines that are not empty.
    calls: the latest NCCL call of each process. words: the last line and step of each rank. ras:
    answers of NCCL's RAS. job: the result of lint, if it is a file of the job and no log. end: its
    last lines, of the output of tools all; left_out: more of it than is kept. prose: numbers of
    lines in which no message was found, of a text that may be a person's; is_prose: it is one."""

    file: str
    events: list[Event] = field(default_factory=list)
    last: list[tuple[int, str]] = field(default_factory=list)
    calls: dict[tuple[str, str], Call] = field(default_factory=dict)
    prose: set[int] = field(default_factory=set)
    is_prose: bool = False
    full: set[str] = field(default_factory=set)  # signatures with more matches than are kept
    # index of an event -> the wrapper of its line
    outside: dict[int, Prefix] = field(default_factory=dict)
    job: JobFile | None = None
    words: LastWords = field(default_factory=LastWords)
    ras: list[RasAnswer] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    end: Block | None = None
    left_out: bool = False


def scan_blocks(blocks: Iterable[Block], file: str, sieve: Sieve) -> Scan:
    """Every event of one file, in its order."""
    scan = Scan(file)
    seen = _Seen()
    ras = RasText(file)
    stacks = Stacks(file, rank_in_name(file))
    labels = Labels()
    of_a_tool = False
    end: list[Block] = []
    for block in blocks:
        text = block.whole()
        ras.note(text, block.number(0))
        stacks.note(block, text)
        if MARK in text:
            note_calls(block, file, scan.calls)
            text = without_calls(text)
        shapes = text.translate(None, DIGITS).split(b"\n")
        # a log that prints sentences has more lines of a machine
        scan.prose = (
            numbers_of_prose(block, shapes)
            if not end and sum(map(is_a_machines, block.lines)) < 2
            else set()
        )
        _keep_events(block, shapes, sieve, seen, scan)
        _remember_last(block, scan)
        scan.words.note(block.lines, block.first, file, rank_in_name(file))
        labels.note(text)
        # a later block is looked through for less, which takes less than reading it
        of_a_tool = of_a_tool or bool(b"NVRM: " in text if end else OF_A_TOOL.search(text))
        end.append(block)
        whole = of_a_tool and not scan.words.steps
        while sum(len(one.lines) for one in end[1:]) >= LAST_LINES and not (
            whole and sum(len(one.whole()) for one in end) <= MOST_OF_OUTPUT
        ):
            del end[0]
            scan.left_out |= whole
    scan.end = _joined(end) if end else None
    scan.ras = ras_answers(ras)
    if scan.outside:
        scan.events = _with_what_stands_outside(scan)
    if scan.prose and is_of_people(end[0], scan.prose):
        scan.events = [one for one in scan.events if not is_of_a_program(one)]
        return Scan(file, scan.events, end=scan.end, is_prose=True)
    _name_ranks(scan, labels, stacks.done())
    return scan


def _joined(blocks: Sequence[Block]) -> Block:
    """The blocks of a file as one."""
    if len(blocks) == 1:
        return blocks[0]
    lines = [line for one in blocks for line in one.lines]
    numbers = [one.number(at) for one in blocks for at in range(len(one.lines))]
    return Block(blocks[0].first, lines, numbers, blocks[0].wrapping)


def _name_ranks(scan: Scan, labels: Labels, stacks: Sequence[Stack]) -> None:
    """Puts the rank where only a launcher's label comes before a line. The name of a file whose
    lines have one label is known better than the label."""
    labels.differ |= bool(scan.end and are_numbers_of_a_list(scan.end.whole()))
    rows = (*scan.words.lines, *scan.words.steps, *(one.rank for one in stacks))
    if len({number for number in rows if number is not None and number < 0}) == 1:
        labels.of_file = rank_in_name(scan.file)
    scan.stacks = [replace(one, rank=labels.rank_of(one.rank)) for one in stacks]
    scan.words.lines = labels.by_rank(scan.words.lines)
    scan.words.steps = labels.by_rank(scan.words.steps)
    for place, one in enumerate(scan.events):
        if (one.prefix.rank or 0) < 0:
            prefix = replace(one.prefix, rank=labels.rank_of(one.prefix.rank))
            scan.events[place] = replace(one, prefix=prefix)


@dataclass
class _Seen:
    """What is known from the lines before. matches: of each signature. kept, missed: of a signature
    the matches and the tries in vain in lines of one shape. done: the shapes of which no line
    matters any more."""

    matches: Counter[str] = field(default_factory=Counter)
    kept: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    missed: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    done: set[bytes] = field(default_factory=set)


def _keep_events(
    block: Block, shapes: Sequence[bytes], sieve: Sieve, seen: _Seen, scan: Scan
) -> None:
    for remembered in (seen.kept, seen.missed, seen.done):
        if len(remembered) > MOST_REMEMBERED:
            remembered.clear()
    for index, shape in enumerate(shapes):
        if shape in seen.done:
            continue
        readings: list[str] = []
        is_short = is_done = len(shape) <= LONGEST_REMEMBERED
        for signature, anchors in sieve.trials(shape):
            key = signature.id, shape
            if (
                signature.id in scan.full
                or (signature.once and seen.kept[key] >= ONCE)
                or (seen.missed[key] >= MISSES and not signature.reads_digits)
            ):
                continue
            is_done = False
            readings = readings or [one.decode("utf-8", "replace") for one in block.readings(index)]
            text, found = _first_match(signature, anchors, readings, block, index)
            if is_short:  # what is remembered has bounded bytes
                (seen.kept if found else seen.missed)[key] += 1
            if not found:
                continue
            outside = f"{text[: found.start()]}\n{text[found.end() :]} "
            if (
                scan.prose
                and signature.fact != "error_line"
                and not is_in_words(outside.encode(), signature.examples["match"])
            ):
                scan.prose.discard(block.number(index))
            for event in _events_of(signature, found, text, block, index, scan.file):
                if len(readings) > 1:
                    scan.outside[len(scan.events)] = _outside(readings)
                scan.events.append(event)
            seen.matches[signature.id] += 1
            if seen.matches[signature.id] >= (MOST_ONCE if signature.once else MOST_EVENTS):
                scan.full.add(signature.id)
        if is_done:
            seen.done.add(shape)


def _events_of(
    signature: Signature, found: re.Match[str], seen: str, block: Block, index: int, file: str
) -> Iterator[Event]:
    """The event of a match; for a command line that sets several things, one event for each."""
    if signature.fact in SETTINGS and _ADVICE.search(
        seen, max(0, found.start() - 160), found.start()
    ):
        # torch's own messages and people name settings that the job may try and does not have
        return
    line = block.number(index)
    event = event_of(signature, found, seen, file, line, source=_is_source(block, index))
    if raised_at := _frame_above(block, index) if signature.fact == "crash" else None:
        event = replace(event, fields={**event.fields, "raised_at": raised_at})
    yield event
    if signature.fact in SEVERAL_ON_A_LINE:
        for more in signature.pattern.finditer(seen, found.end(), found.end() + 4000):
            yield event_of(signature, more, seen, file, line)


def _beginning(line: bytes) -> str:
    """The line, of a long one the beginning; it is masked first, because half a secret is not known
    as one."""
    text = line.decode("utf-8", "replace")
    return text if len(line) <= TEXT_LIMIT else leading_words(without_secrets(text), TEXT_LIMIT)


def _first_match(
    signature: Signature,
    anchors: Sequence[str],
    readings: Sequence[str],
    block: Block,
    index: int,
) -> tuple[str, re.Match[str] | None]:
    """(text, match) of the first form of a line, or of it and the lines below it, that matches the
    signature."""
    for place, text in enumerate(readings):
        seen = _with_output(block, index, signature.reads_on, place) if signature.reads_on else text
        if found := signature.search(seen, anchors):
            return seen, found
    return readings[0], None


def _outside(readings: Sequence[str]) -> Prefix:
    """The prefix in the wrapper of a line, with time, host or rank."""
    outside = readings[-1].removesuffix(readings[0])
    prefix = parse_prefix(outside, len(outside))
    labelled = _LABEL.fullmatch(outside.rstrip()) if prefix.host is None else None
    return replace(prefix, host=labelled["host"]) if labelled else prefix


def _with_what_stands_outside(scan: Scan) -> list[Event]:
    """The events; if no line of the file has a time or host of its own, with those of the
    wrappers."""
    timed = any(event.prefix.time is not None for event in scan.events)
    hosted = any(event.prefix.host for event in scan.events)
    return [
        (
            replace(
                event,
                prefix=event.prefix.completed(scan.outside[place], time=not timed, host=not hosted),
            )
            if place in scan.outside
            else event
        )
        for place, event in enumerate(scan.events)
    ]


def _with_output(block: Block, index: int, lines: int, place: int = 0) -> str:
    """A line and those below it: a command and its output. place: which form of each line, 0 for
    the one without wrappers."""
    below = range(index, min(index + 1 + lines, len(block.lines)))
    return "\n".join(
        _beginning((readings := block.readings(at))[min(place, len(readings) - 1)]) for at in below
    )


def _frame_above(block: Block, index: int) -> str | None:
    """FILE:LINE of the innermost frame of the traceback that ends with this line; its source and
    marks may be between. Other ranks' frames are not it."""
    own = _RANK_LABEL.search(block.lines[index])
    for at in range(index - 1, max(-1, index - 1 - LINES_OF_A_FRAME), -1):
        found, label = _FRAME.search(block.lines[at]), _RANK_LABEL.search(block.lines[at])
        if found and (own and own.group()) == (label and label.group()):
            _, path, place = found.group().split(b'"', 2)
            number = place.removeprefix(b", line ").partition(b",")[0]
            return f"{path.decode('utf-8', 'replace')}:{number.decode()}"
    return None


def _is_source(block: Block, index: int) -> bool:
    """Whether the line is source code: the previous line is a frame of a Python traceback, and this
    one is indented further. Without its source, a frame is followed by another one or by the
    exception."""
    frame = _FRAME.search(block.lines[index - 1]) if index > 0 else None
    return bool(frame and block.lines[index][frame.start() : frame.start() + 1] in b" \t")


def event_of(
    signature: Signature,
    found: re.Match[str],
    text: str,
    file: str,
    line: int,
    *,
    source: bool = False,
) -> Event:
    """The event of a match; a match in source code is marked as such."""
    quoted = (
        signature.kind not in ("fact", "progress", "folklore")
        and not signature.reads_on
        and is_quotation(text, found.start())
    )
    if signature.reads_on:
        shown = " / ".join(line.strip() for line in text[: found.end()].splitlines())
        return Event(
            signature,
            file,
            line,
            cut_without_secrets(shown, TEXT_LIMIT),
            found.groupdict(),
            parse_prefix(text, found.start()),
        )
    shown = around(text, found.start(), found.end())
    begin, end = _core_of(found)
    at = shown.find(text[begin:end])
    return Event(
        signature,
        file,
        line,
        shown,
        found.groupdict(),
        parse_prefix(text, found.start()),
        quoted,
        source,
        (at, at + end - begin) if at >= 0 else (0, 0),
    )


def _core_of(found: re.Match[str]) -> tuple[int, int]:
    parts = found.groupdict()
    if not (parts.get("seq") and parts.get("op")):
        return found.span()
    return (
        min(found.start("seq"), found.start("op")), max(found.end("seq"), found.end("op"))
    )  # fmt: skip


def names_in(group: str) -> tuple[str, ...]:
    """The facts, or the ids of evidence, that have something in common, by the table of groups."""
    return tuple(table("groups")[group]["names"])


def is_of_a_program(event: Event) -> bool:
    """Whether only a program writes such a line; settings, names and advice may be anybody's."""
    return (event.kind != "folklore" and event.fact not in names_in("names")) or bool(
        event.prefix.pid
    )


def rank_of(event: Event) -> int | None:
    """The rank that the line names, or the name of its file."""
    if event.prefix.rank is not None:
        return event.prefix.rank
    return rank_in_name(event.file)


def rank_in_name(file: str) -> int | None:
    """The one rank in the name of a file or of its folder, such as rank_3.log."""
    name = PurePath(file).name
    found = {*map(int, _RANK_IN_FILE.findall(name) or _RANK_IN_FOLDER.findall(file))}
    return found.pop() if len(found) == 1 else None


def is_quotation(text: str, start: int) -> bool:
    """Whether the text at `start` is only quoted: in a ticket, source code, a search command, or a
    sample of training data."""
    if _CODE.match(text) or _QUOTE.match(text):
        return True
    before = min(start, 4000)
    return bool(_SAMPLE.search(text, 0, before))


def around(text: str, start: int, end: int) -> str:
    """The line, or the part of a long line around the match."""
    if len(text) <= TEXT_LIMIT:
        return text.strip()
    if (masked := without_secrets(text)) != text:
        place = masked.find(text[start:end])
        start, end, text = (
            (start, end, masked) if place < 0 else (place, place + end - start, masked)
        )
    left = max(0, min(start - 150, len(text) - TEXT_LIMIT))
    shown = leading_words(text[left:], TEXT_LIMIT)
    if left:
        shown = leading_words(text[: left + len(shown)][::-1], len(shown))[::-1]
    if text[start : min(end, left + TEXT_LIMIT)] not in shown:  # within one endless word
        shown = text[left : left + TEXT_LIMIT]
    return f"{'…' if left else ''}{shown.strip()}…"


def _remember_last(block: Block, scan: Scan) -> None:
    kept: list[tuple[int, str]] = []
    for index in range(len(block.lines) - 1, max(-1, len(block.lines) - 200), -1):
        if block.lines[index].strip():
            kept.append((block.number(index), _beginning(block.lines[index]).strip()))
            if len(kept) == SHOWN_LINES:
                break
    scan.last = (scan.last + kept[::-1])[-SHOWN_LINES:]
