"""The first screen of a verdict on a job, of diagnose, inspect and watch alike: the verdict,
what to do, who and where, the line that shows it, and one command to paste. Values in, lines out.

Text in it comes from logs and nodes: every part becomes one printable line here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.core.quotes import quote
from unhang.core.text import ascii_only, visible, wrapped
from unhang.core.verdict.waited_rows import WaitedRow, in_ranks, waited_headline, waited_lines

FAULTS = "dmesg -T | grep -e Xid -e NVRM -e AER -e 'Killed process' -e oom | tail -40"
MOST_LINES = 12
_GLUE = "\u00a0"  # a blank at which no line is broken
MOST_OF_HEADLINE, MOST_OF_ONE = 3, 2  # lines
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
# what a placeholder of a command may hold; a value from a log that is anything else is not pasted
_FILLS = {
    "pid": re.compile(r"[1-9][0-9]{0,9}"),
    "job": re.compile(r"[1-9][0-9]{0,11}"),
    "port": re.compile(r"[1-9][0-9]{0,4}"),
    "pci": re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"),
    "address": re.compile(
        r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}"
    ),
    "host": _HOST,
    "interface": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}"),
    "pod": re.compile(r"[a-z0-9][a-z0-9.-]{0,252}"),
    "path": re.compile(r"/[\w./+@=,-]{1,200}"),
}  # fmt: skip
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(_FILLS)})\}}")


@dataclass(frozen=True)
class Quote:
    """A line of the evidence. place: its file and line, as log.txt:9. matched: the part of the
    text that shows it."""

    text: str
    place: str = ""
    matched: str = ""


@dataclass(frozen=True)
class VerdictScreen:
    """headline: the verdict. certainty: sure, likely, possible; "" where nothing is claimed. lines:
    who and where, the most important first. quoted: the lines that show it. advice: what to do, and
    why. next_command: to be pasted on next_host, "" for where one is. next_tells: what its answer
    means. more: what -v shows."""

    headline: str
    certainty: str = ""
    lines: tuple[str, ...] = ()
    quoted: tuple[Quote, ...] = ()
    advice: tuple[str, ...] = ()
    next_host: str = ""
    next_command: str = ""
    next_tells: str = ""
    more: str = ""


def render_screen(screen: VerdictScreen, width: int = 100, *, plain: bool = False) -> str:
    """At most MOST_LINES lines. A command is never broken; what finds no room is shown with -v, our
    sentences as a whole."""
    head = _within(screen.headline, width, MOST_OF_HEADLINE, 0, tail=screen.certainty)
    then = _next(screen, width)
    lines = [*head, *_body(screen, width, MOST_LINES - len(head) - len(then)), *then]
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    return ascii_only(text) if plain else text


def _body(screen: VerdictScreen, width: int, room: int) -> list[str]:
    """What to do, lines, quotes, why, in this order. After what to do each gets a line, but two
    quotes come before the lines and why last, if it fits; then those that need one get a second."""
    shown = _within("".join(screen.advice[:1]), width, room - 1, 2)
    room -= len(shown)
    quoted = _once(screen.quoted, width)[: max(2, room - len(screen.lines))]
    lines = screen.lines[: max(0, room - len(quoted))]
    parts: list[str | Quote] = [*lines, *quoted, *screen.advice[1:]]
    spare = max(0, room - len(parts))
    for one in parts[:room]:
        most, least = (room, 0) if one in screen.advice else (MOST_OF_ONE, 1)
        part = _part(one, width, most)
        part = part if len(part) <= 1 + spare else _part(one, width, least)
        spare -= len(part) - 1
        shown += part
    return shown


def _once(quoted: Sequence[Quote], width: int) -> list[Quote]:
    """The quotes without those of a line that was quoted, or that would look like another."""
    shown: dict[str, Quote] = {}
    room = max(20, width - 4 - max((len(one.place) for one in quoted), default=0))
    for one in quoted:
        place = one.place.rpartition("/")[2]
        is_new = not any(
            place and place == other.place.rpartition("/")[2]
            and (one.text in other.text or other.text in one.text)
            for other in shown.values()
        )  # fmt: skip
        if is_new:
            shown.setdefault(quote(visible(one.text.strip(), 4000), room, one.matched), one)
    return list(shown.values())


def _part(part: str | Quote, width: int, most: int) -> list[str]:
    return _quote(part, width, most) if isinstance(part, Quote) else _within(part, width, most, 2)


def with_waited_for(screen: VerdictScreen, row: WaitedRow | None) -> VerdictScreen:
    """The screen with who is waited for before its lines; as its headline where there is a root or
    a mismatch, unless the screen's own verdict is surer."""
    if row is None:
        return screen
    quotes = waited_quotes(row)
    lines, headline = waited_lines(row), waited_headline(row)
    names = row.roots.count or any(wait.calls for wait in row.waits)
    is_surer = (screen.certainty[:6], row.certainty) == ("likely", "possible")
    if is_surer or screen.certainty == "sure" or not names:
        return replace(
            screen, lines=(headline, *lines, *screen.lines),
            quoted=(*screen.quoted[:1], *quotes, *screen.quoted[1:]),
        )  # fmt: skip
    own = f"{screen.headline} ({screen.certainty})" if screen.certainty else screen.headline
    # a verdict may say who is waited for in its own words
    says_so = "waited for" in screen.headline and f"{in_ranks(row.roots)} " in screen.headline
    owns = (own,) * (not says_so)
    return replace(
        screen, headline=headline, certainty=row.certainty, lines=(*lines, *owns, *screen.lines),
        quoted=(*quotes[:1], *screen.quoted[:1], *quotes[1:], *screen.quoted[1:]),
        next_host=next(filter(None, (host_name(one.host) for one in row.named)), screen.next_host),
    )  # fmt: skip


def waited_quotes(row: WaitedRow) -> tuple[Quote, ...]:
    """The last line of each rank that is waited for, then that of the wait itself."""
    last = [
        Quote(f"last line of rank {one.rank}: {said.text}", place_of(said.file, said.line))
        for one in row.named
        if (said := one.last)
    ]
    wait = row.waits[0]
    call = f"SeqNum={wait.seq}, OpType={wait.operation}"
    first = [one for one in [wait.line] if one and one.text]
    return (*last[:2], *(Quote(one.text, place_of(one.file, one.line), call) for one in first))


def filled(command: str, values: Mapping[str, Sequence[str]]) -> str | None:
    """A command with its placeholders, such as {pid}, filled; None if one has no value that is
    harmless in a shell. values: placeholder -> candidates, the best first."""
    chosen: dict[str, str] = {}
    for name in _PLACEHOLDER.findall(command):
        fitting = [one for one in values.get(name, ()) if _FILLS[name].fullmatch(one)]
        if not fitting:
            return None
        chosen[name] = shlex.quote(fitting[0])
    return _PLACEHOLDER.sub(lambda found: chosen[found[1]], command)


def host_name(value: object) -> str:
    """The value, if it can be a host's name; else ""."""
    return value if isinstance(value, str) and _HOST.fullmatch(value) else ""


def place_of(file: str, line: int | None) -> str:
    """log.txt:9; a path that is too long without its beginning, because its end names the file."""
    return f"{path_shown(file, 40)}{f':{line}' if line else ''}"


def path_shown(path: str, most: int = 80) -> str:
    """A path that is too long without its beginning. most: characters of it that are shown."""
    if len(path) <= most:
        return visible(path, most)
    _, slash, end = path[-most:].partition("/")
    return f"...{visible(slash + end if end else path[-most:], most)}"


def _next(screen: VerdictScreen, width: int) -> list[str]:
    lines = [f"next, on {visible(screen.next_host, 100)}:" if screen.next_host else "next:"]
    lines = [*lines, f"  {visible(screen.next_command, 1000)}"] if screen.next_command else []
    tells = _within(screen.next_tells, width, MOST_OF_ONE, 4)
    return [*lines, *tells, *_within(screen.more, width, 1, 0)]


def _within(text: str, width: int, most: int, indent: int, tail: str = "") -> list[str]:
    """The text in at most `most` lines; one that is too long loses its end, at a word. tail: what
    always follows it."""
    if most < 1 or not text:
        return []
    glued = f" {_GLUE}{_GLUE}{tail}" if tail else ""
    lines = wrapped(f"{visible(text, 4000)}{glued}", width - indent, 2)
    if len(lines) > most:
        room = width - indent - 2 - len(glued)
        last = lines[most - 1][:room].rpartition(" ")[0].rstrip(" ,;:(")
        lines = [*lines[: most - 1], f"{last} …{glued}"]
    return [f"{' ' * indent}{line}".replace(_GLUE, " ") for line in lines]


def _quote(one: Quote, width: int, most: int) -> list[str]:
    """A line of a log with its place at the right; too long, it loses what is farthest from what
    shows it."""
    place = f"  {one.place}" if one.place else ""
    free = max(20, width - 2 - len(place))
    text = visible(one.text.strip(), 4000)
    lines = [text] if len(text) <= free else wrapped(text, width - 2, 2)
    if len(lines) > most or len(lines[-1]) > free:
        lines = [quote(text, free, one.matched)]
    return [*(f"  {line}" for line in lines[:-1]), f"  {lines[-1]:<{free}}{place}"]
