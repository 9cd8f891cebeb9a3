"""Removes prefixes and quotes that launchers, container runtimes and people add to every line of a
log: recognised at the beginning of the log, removed line by line. Layers may be nested (a runtime's
time, around a pod's name, around a rank). Lines that were cut at a terminal's width are joined."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SHARE = 0.9  # minimum share of the lines with text that have the layer
MOST_LAYERS = 5
MOST_SAMPLED = 2000
_INSTANT = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_LAYERS = tuple(
    re.compile(pattern)
    for pattern in (
        _INSTANT + rb" (?:stdout|stderr) [FP] ?",  # container runtimes (CRI)
        _INSTANT + rb" (?![\w.-]{1,80} kernel: )",  # docker logs -t, kubectl logs --timestamps, CI
        # journalctl, syslog
        (
            rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80}"
            rb" (?!kernel:)[\w./@-]{1,64}(?:\[\d{1,10}\])?: ?"
        ),
        # the rest of journalctl -o short-iso
        rb"[\w.-]{1,80} (?!kernel\[)[\w./@-]{1,64}\[\d{1,10}\]: ?",
        # kubectl logs --prefix
        rb"\[(?:pod|job|deployment|statefulset|replicaset|daemonset)/[\w./-]{1,250}\] ?",
        rb"[a-z0-9][\w.-]{0,60}[-_]\d{1,4} {1,60}(?:\| ?|(?=exited with code ))",  # docker compose
        rb"\([\w.:/=, -]{1,120}\bpid=\d{1,10}(?:, ip=[\w.:]{1,60})?\) ?",  # Ray, vLLM
        rb"\[default\d{1,6}\]:",  # torchrun --tee
        rb"\[rank\d{1,6}\]: ?",  # torch
        # mpirun --tag-output, SageMaker
        rb"\[\d{1,3},(?:mpirank:)?\d{1,6}(?:,[\w-]{1,40})?\]<std(?:out|err|diag)>: ?",
        rb"\d{1,5}: ",  # srun --label
        # pdsh, clush: a host, whose name has a number
        rb"[A-Za-z][A-Za-z.-]{0,40}\d[\w.-]{0,40}: ",
        rb"(?:> ?){1,3}",  # a quotation
    )
)
_DIGITS = re.compile(r"\d")
_GOES_ON = re.compile(r" ?\w")
_INDENT = re.compile(rb"[ \t]{0,40}")
_GAP = re.compile(r"  {1,1000}")
_MESSAGES = ("log", "message", "msg", "MESSAGE", "textPayload")
_TIMES = ("time", "@timestamp", "timestamp", "ts")
_PARTS = ("rank", "worker", "source", "src")
_WIDTHS = range(60, 1001)
_USUAL_WIDTHS = (80, 100, 120, 132, 160, 200)
# characters: lines of a table or of several ranks have equal beginnings, but the rest of a cut line
# does not
ALIKE = 4
FEWEST_GAPS = 2
FEWEST_CUT = 3  # minimum number of lines of full width; one is enough for a usual width


@dataclass(frozen=True)
class Wrapping:
    """How the lines of one log are wrapped. layers: outermost first. indent: a common indentation
    within them. columns: where lines were cut."""

    is_json: bool = False
    layers: tuple[re.Pattern[bytes], ...] = ()
    indent: bytes = b""
    columns: int | None = None

    def bare(self, line: bytes) -> tuple[bytes, bytes]:
        """(the line without its layers, the line without the common indentation too)."""
        inner = line
        for layer in self.layers:
            if found := layer.match(inner):
                inner = inner[found.end() :]
        return inner, inner.removeprefix(self.indent)


PLAIN = Wrapping()


def find_wrapping(lines: Sequence[bytes]) -> Wrapping:
    """The wrapping of a log, from its first lines; PLAIN for most logs."""
    sample = [line.rstrip(b"\r") for line in lines[:MOST_SAMPLED]]
    columns = _columns_of(sample)
    if columns:
        sample = joined(sample, list(range(len(sample))), columns)[0]
    sample = [line for line in sample if line.strip()]
    is_json = bool(sample) and _share(sample, lambda line: message_of(line) is not None) >= SHARE
    if is_json:
        sample = [
            line for one in sample for line in (message_of(one) or b"").splitlines() if line.strip()
        ]
    layers: list[re.Pattern[bytes]] = []
    while len(layers) < MOST_LAYERS and (layer := _outermost(sample)):
        layers.append(layer)
        sample = [
            line
            for one in sample
            if (line := layer.sub(b"", one, count=1) if layer.match(one) else one).strip()
        ]
    found = Wrapping(is_json, tuple(layers), _common_indent(sample), columns)
    return PLAIN if found == PLAIN else found  # readers compare with PLAIN itself for each line


def _outermost(sample: Sequence[bytes]) -> re.Pattern[bytes] | None:
    if not sample:
        return None
    shifted = [line.lstrip(b" ") for line in sample]
    for layer in _LAYERS:
        for lines, pattern in ((sample, layer), (shifted, re.compile(rb" {0,6}" + layer.pattern))):
            if _share(lines, layer.match) >= SHARE:
                return pattern
    return None


def _share(lines: Sequence[bytes], holds: Callable[[bytes], Any]) -> float:
    return sum(bool(holds(line)) for line in lines) / len(lines)


def _common_indent(lines: Iterable[bytes]) -> bytes:
    indents = [found[0] for found in map(_INDENT.match, lines) if found]
    common = min(indents, default=b"")
    while not all(one.startswith(common) for one in indents):
        common = common[:-1]
    return common


def message_of(line: bytes) -> bytes | None:
    """The message of a line of JSON, after its time; None if the line is no JSON object with a
    message."""
    if line[:1] != b"{" or line.rstrip()[-1:] != b"}":
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    message = next((row[key] for key in _MESSAGES if isinstance(row.get(key), str)), None)
    if message is None:
        return None
    moment = next((row[key] for key in _TIMES if isinstance(row.get(key), str)), "")
    why = next((f" {row[key]}" for key in ("error", "err") if isinstance(row.get(key), str)), "")
    before = f"{moment} " if moment else ""
    if any(one in row for one in _PARTS):  # a record: its numbers are shown with the message
        why += "".join(f" {key}={one}" for key, one in row.items() if type(one) in (int, float))
    return "\n".join(before + one for one in (message.rstrip("\r\n") + why).split("\n")).encode(
        "utf-8", "replace"
    )


def _columns_of(lines: Sequence[bytes]) -> int | None:
    """The width at which lines were cut: the longest lines have the same length, and words continue
    in the next line. Blanks up to the width, with which some terminals fill each line, do not
    count."""
    texts = [line.decode("utf-8", "replace").rstrip(" ") for line in lines]
    width = max(map(len, texts), default=0)
    if width not in _WIDTHS:
        return None
    full = [(one, following) for one, following in pairwise(texts) if len(one) == width]
    alike = sum(
        _beginning(one) == _beginning(following) or _are_rows(one, following)
        for one, following in full
    )
    within_words = sum(
        one[-1].isalnum() and _GOES_ON.match(following) is not None for one, following in full
    )
    enough = 1 if width in _USUAL_WIDTHS else FEWEST_CUT
    is_cut = len(full) >= enough and within_words > 0 and within_words * 4 >= len(full) >= alike * 4
    return width if is_cut else None


def _beginning(line: str) -> str:
    return _DIGITS.sub("", line)[:ALIKE]


def _are_rows(one: str, following: str) -> bool:
    """Whether two lines are rows of one table: they have equally many commas, or several of their
    gaps, of two blanks or more, are at the same place. What goes on after a cut has none there."""
    if one.count(",") == following.count(",") >= FEWEST_GAPS:
        return True
    blank = "".join(
        " " if first == second == " " else "."
        for first, second in zip(one, following, strict=False)
    )
    return len(_GAP.findall(blank)) >= FEWEST_GAPS


def _is_full(text: str, columns: int) -> bool:
    """Whether text fills the width; the blank between two words may be the last letter."""
    return len(text) == columns and not text.endswith("  ")


def joined(
    lines: Sequence[bytes], numbers: Sequence[int], columns: int
) -> tuple[list[bytes], list[int]]:
    """Lines that were cut at a width, joined, each with the number of its first part."""
    whole: list[bytes] = []
    firsts: list[int] = []
    goes_on = False
    for line, number in zip(lines, numbers, strict=True):
        if goes_on and len(whole[-1]) + len(line) <= 16 * 1024:
            whole[-1] += line
        else:
            whole.append(line)
            firsts.append(number)
        goes_on = len(line) >= columns and _is_full(line.decode("utf-8", "replace"), columns)
    return whole, firsts
