"""Reads what people write in other languages as English words, from the catalogue's table `words_of_languages`.

Only the words of the table change; versions, settings and messages of programs stay as they are. The word order of the other language is kept, which the
signatures of statements do not depend on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from unhang.core import catalogue

LANGUAGES = ("zh", "ja", "ko", "es", "ru")
FEWEST_LATIN = 2  # words of a language in Latin letters that make a line one of that language
LONGEST_LINE = 4000  # bytes; longer lines are no sentences
LONGEST_POST = 256 * 1024  # bytes; in a longer text nobody tells in Spanish what happened
_SPANISH = (b" el ", b" la ", b" con ", b" los ", b" las ", b" una ", b" una ", b" del ", b" se ", b" sin ", b" pero ")  # one is in every Spanish post
_LETTERS = re.compile(rb"[\xc2-\xdf\xe3-\xef]")  # first bytes of the table's scripts; blocks of progress bars, arrows and quotes begin with E2
_PUNCTUATION = str.maketrans({"，": ", ", "。": ". ", "：": ": ", "；": "; ", "？": "? ", "！": "! ", "、": ", ", "（": " (", "）": ") ", "＝": "=", "　": " "})
# No blank is written between a version and letters of these scripts, and none of the signatures' words ends there without one.
_SEAM = re.compile(r"(?<=[A-Za-z0-9_])(?=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])(?=[A-Za-z0-9_])")
_BLANKS = re.compile(r"(?<=\S) {2,8}")
_SET_FIRST = re.compile(r"\bset ([A-Z][A-Z0-9_]{3,40}=\S{1,40}) after\b")  # Chinese says "after" behind what came first


@cache
def _words() -> tuple[dict[str, str], re.Pattern[str], dict[str, str], re.Pattern[str]]:
    """(word -> English, pattern) of languages with letters of their own, and of those in Latin letters."""
    own: dict[str, str] = {}
    latin: dict[str, str] = {}
    for row in catalogue.table("words_of_languages").values():
        for language in LANGUAGES:
            for word in row[language]:
                (latin if language == "es" else own).setdefault(word.lower(), row["english"])
    return own, _any_of(own, r"{}"), latin, _any_of(latin, r"\b(?:{})\b")


def _any_of(words: dict[str, str], around: str) -> re.Pattern[str]:
    """The longest word first; a Russian word only as a whole, a Chinese one anywhere."""
    parts = [rf"\b{re.escape(word)}\b" if "а" <= word[0] <= "я" else re.escape(word) for word in sorted(words, key=len, reverse=True)]
    return re.compile(around.format("|".join(parts)), re.IGNORECASE)


def may_be_foreign(text: bytes) -> bool:
    """Whether lines of a text may be in another language than English: a quick look, before lines are read."""
    return _has_letters(text) or (len(text) <= LONGEST_POST and any(word in text for word in _SPANISH))


def _has_letters(text: bytes) -> bool:
    return not text.isascii() and _LETTERS.search(text) is not None


def in_english(lines: Sequence[bytes]) -> dict[int, bytes]:
    """index of a line -> the line with its words in English, for lines in another language."""
    found: dict[int, bytes] = {}
    latin = _SPANISH if sum(map(len, lines)) <= LONGEST_POST else ()
    for index, line in enumerate(lines):
        if len(line) <= LONGEST_LINE and (_has_letters(line) or any(word in line for word in latin)):
            text = line.decode("utf-8", "replace")
            english = _translated(text)
            if english != text:
                found[index] = english.encode("utf-8", "replace")
    return found


def _translated(text: str) -> str:
    own, of_own, latin, of_latin = _words()
    plain = text.translate(_PUNCTUATION)
    english = of_own.sub(lambda found: f" {own[found.group().lower()]} ", plain)
    if len(of_latin.findall(english)) >= FEWEST_LATIN:
        english = of_latin.sub(lambda found: latin[found.group().lower()], english)
    if english == plain:
        return text
    english = _BLANKS.sub(" ", _SEAM.sub(" ", english)).replace(" ,", ",").replace(" .", ".").strip()
    return _SET_FIRST.sub(r"after setting \1", english)
