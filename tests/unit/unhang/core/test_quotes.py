"""A quote is never false: it is cut at words, it contains what matched, and no screen has it twice."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unhang.core.quotes import GAP, leading_words, quote
from unhang.core.text import visible
from unhang.core.verdict.screen import Quote, VerdictScreen, render_screen

WATCHDOG = (
    "[rank0]:[E1121 03:14:20.104882000 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=812, OpType=COALESCED, NumelIn=4718592, NumelOut=4718592,"
    " Timeout(ms)=600000) ran for 1800021 milliseconds before timing out."
)
WORDS = st.text("aZ09_.,:=()[]-/ ", min_size=1, max_size=24)
LINES = st.lists(WORDS, min_size=1, max_size=40).map(
    lambda parts: " ".join(" ".join(parts).split())
)


def parts_of(shown):
    """What stands between the marks, with (cut before, cut behind)."""
    parts = shown.split(GAP)
    return [
        (part.strip(), bool(at), at < len(parts) - 1)
        for at, part in enumerate(parts) if part.strip()
    ]  # fmt: skip


def is_whole(text, begin, end):
    """Whether no word or number of the text goes on over these edges."""
    return not any(re.fullmatch(r"\w\w", text[at - 1 : at + 1]) for at in (begin, end))


@given(text=LINES, most=st.integers(20, 120))
def test_quote_never_begins_or_ends_within_a_word_or_a_number(text, most):
    assume(GAP not in text)
    shown = quote(text, most)
    assert len(shown) <= most
    place = 0
    for part, cut_before, cut_behind in parts_of(shown):
        places = [
            found.start() for found in re.finditer(f"(?={re.escape(part)})", text)
            if found.start() >= place and is_whole(text, found.start(), found.start() + len(part))
            and (cut_before or found.start() == 0)
            and (cut_behind or found.start() + len(part) == len(text))
        ]  # fmt: skip
        assert places, (part, text)
        place = places[0] + len(part)


@given(before=LINES, match=st.text("aZ09=", min_size=1, max_size=12), behind=LINES,
       most=st.integers(40, 120))  # fmt: skip
def test_quote_contains_what_matched(before, match, behind, most):
    text = f"{before} {match} {behind}"
    assume(text.count(match) == 1)
    assert match in quote(text, most, match)


@given(text=LINES, most=st.integers(30, 120))
def test_leading_words_are_the_beginning_and_end_at_a_word(text, most):
    shown = leading_words(text, most)
    assert text.startswith(shown) and len(shown) <= most
    assert shown == text or is_whole(text, 0, len(shown)) or len(shown) == most


@given(lines=st.lists(st.tuples(st.sampled_from(("812", "813", "8")), st.integers(1, 3)), max_size=6),
       width=st.integers(60, 160))  # fmt: skip
def test_no_screen_has_a_quote_twice(lines, width):
    quotes = tuple(
        Quote(WATCHDOG.replace("812", seq), f"{'/long' * at}/job.log:{at}", f"SeqNum={seq}")
        for seq, at in lines
    )
    shown = render_screen(VerdictScreen("verdict", quoted=quotes), width).splitlines()[1:]
    texts = [re.sub(r"\s+\S*job\.log:\d+$", "", line).strip() for line in shown]
    texts = [one for one in texts if "SeqNum" in one]
    assert len(texts) == len(set(texts)) == len({seq for seq, _ in lines})


@pytest.mark.parametrize("most", range(60, len(WATCHDOG)))
def test_number_and_operation_of_a_collective_stay_and_no_number_is_halved(most):
    shown = quote(WATCHDOG, most, "812, OpType=COALESCED")
    assert "SeqNum=812, OpType=COALESCED" in shown and len(shown) <= most
    whole = set(re.findall(r"\d+", WATCHDOG))
    assert set(re.findall(r"\d+", shown)) <= whole
    assert set(re.findall(r"\d+", quote(WATCHDOG, most))) <= whole


def test_quote_without_a_match_has_the_beginning_and_the_end():
    line = f"h:1:2 [0] NCCL WARN {'x' * 900} failed : No route to host"
    assert quote(line, 240) == "h:1:2 [0] NCCL WARN [...] failed : No route to host"


def test_cut_text_of_any_reader_ends_at_a_word():
    assert visible("took 1800021 ms", 8) == "took… (cut, 15 characters)"
    assert visible("x" * 20, 8) == "xxxxxxxx… (cut, 20 characters)"
