"""No line that matches a signature is skipped: not by the search for anchors, nor by what is
remembered of the shapes of lines."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

from support.wrapped_logs import every_log, lines_of

from unhang.jobs.diagnose.logs.calls import without_calls
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.matching import scanning
from unhang.jobs.diagnose.matching.scanning import Scan, Sieve, scan_blocks
from unhang.jobs.diagnose.matching.sieve import DIGITS
from unhang.jobs.diagnose.matching.signatures import Signature, load_signatures

SIGNATURES = load_signatures()


@cache
def fixture_lines() -> Sequence[str]:
    """The signatures' own examples, and the distinct lines of every third fixture log."""
    examples = [
        line
        for row in SIGNATURES
        for line in (*row.examples["match"], *row.examples.get("near_miss", ()))
        if "\n" not in line
    ]
    return list(
        dict.fromkeys([*examples, *(line for path in every_log()[::3] for line in lines_of(path))])
    )


@cache
def matches() -> list[tuple[bytes, list[tuple[Signature, re.Match[str]]]]]:
    """(line, (signature, match) of all that match it): each anchor is searched in each line."""
    lines = [line.encode("utf-8", "replace") for line in fixture_lines()]
    tried: list[dict[str, Signature]] = [{} for _ in lines]
    whole = b"\n".join(lines)
    for row in SIGNATURES:
        for anchor in (
            row.anchors if not row.reads_on and any(one in whole for one in row.anchors) else ()
        ):
            for index in (
                (index for index, line in enumerate(lines) if anchor in line)
                if anchor in whole
                else ()
            ):
                tried[index][row.id] = row
    found = [
        [(row, match) for row in rows.values() if (match := row.search(line.decode()))]
        for line, rows in zip(lines, tried, strict=True)
    ]
    return list(zip(lines, found, strict=True))


def test_fixtures_hold_matches_of_most_signatures():
    """Otherwise the tests below would prove little."""
    assert len({row.id for _, found in matches() for row, _ in found}) > 0.9 * sum(
        not row.reads_on for row in SIGNATURES
    )


def test_sieve_lets_no_line_fall_that_a_signature_reads():
    sieve = Sieve(SIGNATURES)
    for line, found in matches():
        shape = without_calls(line).translate(None, DIGITS)
        tried = {one.id: anchors for one, anchors in sieve.trials(shape)}
        for row, match in found:
            if row.program.startswith("people") and b" NCCL INFO " in line:
                continue
            again = row.search(line.decode(), tried[row.id])
            assert again and again.span() == match.span(), (row.id, line)


def other_digits(line: str, noise: random.Random) -> str:
    return re.sub(r"[0-9]", lambda _: str(noise.randrange(10)), line)


def ids_by_line(scan: Scan) -> dict[int, set[str]]:
    by_line: dict[int, set[str]] = {}
    for event in scan.events:
        by_line.setdefault(event.line, set()).add(event.signature.id)
    return by_line


def test_lines_with_other_digits_before_it_hide_no_line():
    """A result for a line_shape from lines that a signature does not match must not decide for a
    line that it matches."""
    noise = random.Random(4)
    lines = [line for line in fixture_lines() if len(line) < 2000]
    mixed = [
        one
        for line in lines
        for one in (
            other_digits(line, noise),
            other_digits(line, noise),
            other_digits(line, noise),
            line,
        )
    ]
    rows = [row for row in SIGNATURES if not row.reads_on]
    alone = ids_by_line(
        scan_blocks(
            [Block(1, [line.encode("utf-8", "replace") for line in lines])], "log", Sieve(rows)
        )
    )
    among = ids_by_line(
        scan_blocks(
            [Block(1, [line.encode("utf-8", "replace") for line in mixed])], "log", Sieve(rows)
        )
    )
    plentiful = {row.id for row in rows if row.once}
    lost = {
        lines[number - 1]: missing
        for number, ids in alone.items()
        if (missing := ids - among.get(number * 4, set()) - plentiful)
    }
    assert lost == {}


def test_memory_that_is_full_is_emptied_and_hides_nothing(monkeypatch):
    lines = [line.encode("utf-8", "replace") for line in fixture_lines()[::7]]
    blocks = [Block(at + 1, lines[at : at + 50]) for at in range(0, len(lines), 50)]
    plain = ids_by_line(scan_blocks(blocks, "log", Sieve(SIGNATURES)))
    monkeypatch.setattr(scanning, "MOST_REMEMBERED", 20)
    small = ids_by_line(scan_blocks(blocks, "log", Sieve(SIGNATURES)))
    assert plain.keys() <= small.keys() and all(plain[number] <= small[number] for number in plain)
