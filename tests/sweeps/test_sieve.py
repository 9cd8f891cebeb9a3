"""No line that matches a signature is skipped: not by the search for anchors, nor by needed texts,
nor by the cache of line shapes."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

from support.wrapped_logs import every_log, lines_of

from unhang.jobs.diagnose.logs import line_prefixes
from unhang.jobs.diagnose.logs.calls import without_calls
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.matching import line_shapes, scanning
from unhang.jobs.diagnose.matching.needed_texts import holds
from unhang.jobs.diagnose.matching.scanning import Scan, Sieve, scan_blocks
from unhang.jobs.diagnose.matching.sieve import DIGITS, LITTLE, Trial
from unhang.jobs.diagnose.matching.signatures import Signature, load_signatures

SIGNATURES = load_signatures()
FILLER = [b"~" * 400] * (LITTLE // 400 + 1)


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


def asked_much() -> Sieve:
    """A sieve that has seen more text than it searches in the simple way."""
    sieve = Sieve(SIGNATURES)
    assert list(sieve.likely(FILLER)) == []
    return sieve


def trials_by_line(sieve: Sieve, lines: Sequence[bytes]) -> dict[bytes, dict[str, Trial]]:
    return {
        line_shape: {one.signature.id: one for one in trials}
        for line_shape, trials in sieve.likely(lines)
    }


def test_fixtures_hold_matches_of_most_signatures():
    """Otherwise the tests below would prove little."""
    assert len({row.id for _, found in matches() for row, _ in found}) > 0.9 * sum(
        not row.reads_on for row in SIGNATURES
    )


def test_sieve_lets_no_line_fall_that_a_signature_reads():
    alike = {line: without_calls(line).translate(None, DIGITS) for line, _ in matches()}
    trials = trials_by_line(asked_much(), list(dict.fromkeys(alike.values())))
    for line, found in matches():
        for row, match in found:
            if row.program.startswith("people") and b" NCCL INFO " in line:
                continue
            trial = trials[alike[line]][row.id]
            again = None if trial.is_in_vain(line) else row.search(line.decode(), trial.anchors)
            assert again and again.span() == match.span(), (row.id, line)


def test_sieve_that_was_asked_little_lets_no_line_fall_either():
    lines = [line.translate(None, DIGITS) for line, found in matches() if found]
    much, few = trials_by_line(asked_much(), lines), {}
    for line in lines[::40]:
        few.update(trials_by_line(Sieve(SIGNATURES), [line]))
    for line, trials in few.items():
        assert [
            one
            for one in trials
            if holds(trials[one].signature.needed, line) or trials[one].signature.reads_on
        ] == list(much.get(line, {}))


def test_what_a_pattern_needs_stands_in_each_of_its_matches():
    excluded = 0
    for line, found in matches():
        bare = line.translate(None, DIGITS)
        assert all(holds(row.needed, bare) for row, _ in found)
        excluded += sum(not holds(row.needed, bare) for row in SIGNATURES[::50])
    assert excluded > len(matches()) * len(SIGNATURES[::50]) // 2


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
    for name, most in (("MOST_REMEMBERED", 5000), ("MOST_WANTED", 20), ("MOST_TRIES", 20)):
        monkeypatch.setattr(line_shapes, name, most)
    sizes = []

    class Watched(line_shapes.LineShapes):
        def forget_many(self):
            super().forget_many()
            sizes.append((len(self.wanted), len(self._tries), sum(map(len, self.dull))))

    monkeypatch.setattr(scanning, "LineShapes", Watched)
    small = ids_by_line(scan_blocks(blocks, "log", Sieve(SIGNATURES)))
    assert (
        all(wanted <= 20 and tries <= 20 and dull < 30_000 for wanted, tries, dull in sizes)
        and sizes
    )
    assert plain.keys() <= small.keys() and all(plain[number] <= small[number] for number in plain)


def test_short_looks_before_long_patterns_leave_none_of_their_matches_out():
    for line in (text[: line_prefixes.LOOKED_AT] for text in fixture_lines()):
        if any(pattern.search(line) for pattern in line_prefixes._STAMPS):
            assert line_prefixes._ANY_STAMP.search(line), line
        if line_prefixes._SYSLOG_HOST.search(line):
            assert line_prefixes._ANY_TIME.search(line), line
        if line_prefixes._NCCL.search(line):
            assert line_prefixes._NCCL_BEHIND_HOST.search(line), line
        assert all(
            held in line for held, pattern in line_prefixes._RANKS if pattern.search(line)
        ), line
