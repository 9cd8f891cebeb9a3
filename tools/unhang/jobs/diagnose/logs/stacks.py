"""Stacks of processes in a log, whichever tool printed them: py-spy's dumps, Python's faulthandler,
and frames below a heading such as "rank 3:". One file may hold those of many processes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unhang.core.verdict.activities import MAIN, OTHER
from unhang.core.verdict.by_stacks import Frame, Stack
from unhang.jobs.diagnose.logs.reading import Block

MOST_STACKS, MOST_FRAMES, MOST_RANKS = 8192, 200, 4096
LONGEST_LINE = 4200
LINES_TO_A_STACK = 4  # without a frame, from a heading on
# A block without one of these is not read line by line. Each begins with letters, which are fast to
# find: a frame of py-spy, of faulthandler, and of a traceback below a heading that names a rank.
_ANY_FRAME = (
    re.compile(rb"\.py:\d{1,7}\)\r?(?:\n|$)"),
    re.compile(rb"\", line \d{1,7} in "),
    re.compile(rb"ank \d{1,5}[^\n]{0,30}:[ \t]{0,4}\n(?:[ \t]{0,8}\n)?[ \t]{1,12}File \""),
)
_LABELLED = re.compile(r"\[(?:rank ?)?(\d{1,6})\]:? ?|\s{0,4}(\d{1,6}): ?")
_PROCESS = re.compile(r"Process (\d{1,10}): (.{1,4000})$")
_THREAD = re.compile(
    r"Thread (?:(?P<id>\d{1,20})|0x[0-9A-Fa-f]{1,16}|(?P<word>\w{1,40})) "
    r"\((?P<state>active|idle)(?P<gil>\+gil)?[^)]{0,20}\)(?:: \"(?P<name>[^\"]{1,100})\")?$"
)
_FAULT = re.compile(
    r"(?:Current thread|Thread) 0x[0-9A-Fa-f]{1,16}.{0,60}\(most recent call first\):$"
)
_SPY_FRAME = re.compile(r"\s{2,24}(\S.{0,200}?) \(([^()]{1,300}?)(?::(\d{1,7}))?\)$")
# of py-spy dump --locals: the other end of a message, as a rank of the job
_PEER = re.compile(r"\s{6,32}((?:src|dst): \d{1,6})$")
_FILE_FRAME = re.compile(r"\s{1,12}File \"([^\"]{1,300})\", line (\d{1,7})(,?) in (\S{1,200})$")
_HEADING = re.compile(
    r"(?:^\W{0,4}|[.;] )(?:[\w-]{1,12},? ){0,4}(?:(?i:ranks? |worker )|TP)"
    r"(?P<ranks>\d{1,5}(?:(?: to |-|, | and )\d{1,5}){0,40})(?: [^\n:]{0,60})?:$"
)
_REMARK = re.compile(
    r"(?:[$#=>*-]|[^\n]{0,100}py-spy)[^\n]{0,160}?\brank[ =:_-]{0,2}(\d{1,6})\b", re.I
)
# Processes beside the ranks: workers of data loaders and compilers, and launchers.
_NO_RANK = re.compile(
    r"\(/?\S*(?:torch/utils/data/_utils/worker|torch/_inductor/compile_worker/\S*|torch/distributed/launcher/\w+|accelerate/commands/\w+|deepspeed/launcher/\w+)\.py"
)
_OF_COMMAND = re.compile(r"\bRANK=(\d{1,6})\b|--(?:local[-_])?rank[= ](\d{1,6})\b")
_DIGITS = re.compile(r"\d+")
_PART = re.compile(r"(\d{1,5})(?: to |-)(\d{1,5})|(\d{1,5})")


@dataclass
class _Open:
    """What was read of one printer: a file, or the lines with one rank's label."""

    ranks: tuple[int, ...] = ()
    pid: int | None = None
    of_command: int | None = None
    command: str = ""  # "" unless a heading named the process; then its first thread has its number
    idle: bool = False
    gil: bool = False
    thread: str | None = None
    frames: list[Frame] = field(default_factory=list)
    idle_lines: int = 0

    def begin(self, *ranks: int) -> None:
        """A heading names the ranks whose stack follows."""
        self.ranks, self.pid, self.of_command, self.command = ranks, None, None, ""


@dataclass
class Stacks:
    """found: in the order of the file. rank_of_file: for dumps that name no rank."""

    file: str
    rank_of_file: int | None = None
    found: list[Stack] = field(default_factory=list)
    open: dict[int | None, _Open] = field(default_factory=dict)

    def note(self, block: Block, text: bytes) -> None:
        """Adds the stacks of a block. text: the block as one."""
        if not any(frame.search(text) for frame in _ANY_FRAME):
            for state in self.open.values():
                self._close(state)
            return
        for index in range(len(block.lines)):
            readings = [
                one[:LONGEST_LINE].decode("utf-8", "replace").rstrip()
                for one in block.readings(index)
            ]
            # a rank's label counts as a wrapper, so that the line as it is has it
            label = _without_label(readings[-1])[0]
            self._note_line(readings[0], label, block.number(index))

    def done(self) -> list[Stack]:
        """All stacks, once the file is read."""
        for state in self.open.values():
            self._close(state)
        self.open.clear()
        return self.found

    def _note_line(self, line: str, label: int | None, number: int) -> None:
        line = _without_label(line)[1]
        state = self.open.setdefault(label, _Open()) if len(self.open) < MOST_RANKS else _Open()
        if self._is_frame(state, line, number) or self._is_heading(state, line):
            state.idle_lines = 0
        elif state.frames and (found := _PEER.match(line)):
            frame = state.frames[-1]
            if "/torch/distributed/" in frame.text:
                state.frames[-1] = replace(frame, shown=f"{frame.shown} {found[1]}")
        elif not line.startswith((" ", "\t")):
            state.idle_lines += 1
            if state.frames or state.idle_lines > LINES_TO_A_STACK:
                self._close(state)
            if state.idle_lines > LINES_TO_A_STACK:
                self.open[label] = _Open()

    def _is_frame(self, state: _Open, line: str, number: int) -> bool:
        if state.thread is None:
            return False
        if found := _SPY_FRAME.match(line):
            (call, path, at), is_last = found.groups(), False
        elif found := _FILE_FRAME.match(line):
            path, at, comma, call = found.groups()
            is_last = bool(comma)  # a traceback's order
        else:
            return False
        said, full = (f"{call} ({one}{f':{at}' if at else ''})" for one in (path, _full(path)))
        if len(state.frames) < MOST_FRAMES:
            place = 0 if is_last else len(state.frames)
            state.frames.insert(place, Frame(said, full, number, line.strip()))
        return True

    def _is_heading(self, state: _Open, line: str) -> bool:
        if found := _PROCESS.match(line):
            self._close(state)
            state.pid, state.of_command = int(found[1]), _rank_of_command(found[2])
            state.command = _DIGITS.sub("", found[2])
        elif found := _THREAD.match(line):
            self._close(state)
            # the threads of C++ that call Python have no name
            is_main = not found["id"] or state.pid in (None, int(found["id"]))
            state.thread = found["name"] or found["word"] or (MAIN if is_main else OTHER)
            state.idle, state.gil = found["state"] == "idle", bool(found["gil"])
            if not state.command and found["id"] and state.thread == MAIN:
                state.pid = int(found["id"])
        elif _FAULT.match(line):
            self._close(state)
            state.thread, state.idle, state.gil = "", False, False
        elif found := _HEADING.search(line):
            self._close(state)
            state.begin(*_ranks(found["ranks"]))
            state.thread, state.idle, state.gil = MAIN, False, False
        elif found := _REMARK.match(line):
            self._close(state)
            state.begin(int(found[1]))
        else:
            return False
        return True

    def _close(self, state: _Open) -> None:
        frames, thread = tuple(state.frames), state.thread
        state.frames, state.thread = [], None
        if not frames or len(self.found) >= MOST_STACKS:
            return
        if not thread:  # faulthandler names no thread
            thread = MAIN if frames[-1].text.startswith("<module> ") else OTHER
        label = next((key for key, one in self.open.items() if one is state), None)
        named = [one for one in (label, self.rank_of_file, state.of_command) if one is not None]
        ranks: Sequence[int | None] = state.ranks or named[:1] or (None,)
        of_file = not state.ranks and label is None and self.rank_of_file is not None
        given = (state.command, state.idle, state.gil, of_file)
        self.found += [Stack(rank, state.pid, thread, frames, self.file, *given) for rank in ranks]


def _without_label(line: str) -> tuple[int | None, str]:
    found = _LABELLED.match(line)
    if not found:
        return None, line
    return int(found[1]) if found[1] else ~int(found[2]), line[found.end() :]


def _rank_of_command(command: str) -> int | None:
    found = _OF_COMMAND.search(command)
    return int(found[1] or found[2]) if found else None


def _ranks(text: str) -> Iterator[int]:
    for first, last, one in _PART.findall(text):
        yield from (
            range(int(first), min(int(last), int(first) + MOST_RANKS) + 1) if first else [int(one)]
        )


def _full(path: str) -> str:
    """A path that begins with /, of one that py-spy shortened by the folder of its package."""
    if path.startswith(("/", "<")):
        return path
    is_pythons = path.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names
    return f"/lib/python3.0/{path}" if is_pythons else f"/{path}"


def by_thread(stacks: Sequence[Stack]) -> Mapping[str, dict[str, Stack]]:
    """thread -> name of the rank or process -> its last stack there. Of several processes in a
    rank's file the first is the rank, and the others are its children. A number that processes of
    several files have is a local rank on several nodes: those are named by their pids."""
    first: dict[tuple[int | None, str], int | None] = {}
    pids: dict[int | None, set[int | None]] = {}
    stacks = [one for one in stacks if not any(map(_NO_RANK.search, one.calls))]
    for stack in stacks:
        pid = first.setdefault((stack.rank, stack.file), stack.pid)
        pids.setdefault(stack.rank, set()).add(pid if stack.of_file else stack.pid)
    found: dict[str, dict[str, Stack]] = {}
    for stack in stacks:
        is_child = stack.of_file and stack.pid != first[stack.rank, stack.file]
        is_shared = (is_child or len(pids[stack.rank] - {None}) > 1) and stack.pid is not None
        one = replace(stack, rank=None) if is_shared else stack
        before = found.setdefault(one.thread, {}).get(one.name)
        if before and before.pid == one.pid:
            one = replace(one, before=replace(before, before=None))
        found[one.thread][one.name] = one
    return found
