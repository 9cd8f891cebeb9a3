"""What a person's sentence says of something that was tried: it works, it fails, nothing changed, or it is only asked or advised.

The wordings are families, not sentences: verbs of success and of failure with their negations ("no longer hangs", "did not help"), conditions that turn a
statement round ("hangs unless"), and signs of a question or of advice. The subject is found by a signature; here the clauses around it are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.matching.effect_wordings import ADVISING, EFFECT

WORKS, FAILS, SAME, ASKED = "works", "fails", "same", "asked"
TOLD = "told"  # any of these except ASKED, or no effect at all: the subject is an observation
EFFECTS = (WORKS, FAILS, SAME, TOLD)  # names of groups in the patterns of signatures
REACH = 320  # characters on each side of the subject that are read
_SENTENCE_END = re.compile(
    r"(?<![ .(][a-z])(?<!e\.g)(?<!i\.e)(?<!vs)(?<!approx)(?<!etc)(?:[.!?;]+[)\"'*]{0,2}\s+(?=\S)|\s[-=]{1,2}>\s(?=(?:what|why|how|should|is|does)\b))"
)
_CLAUSE_END = re.compile(
    r"(?i:,\s|:\s|\s[-\u2013\u2014]{1,2}>?\s|\s=>\s|\s->\s|;\s|\s\(|\)\s|\b(?:but|while|whereas|although|though|however|yet)\b|"
    r"\band (?:then|now|after|with|without|it|the)\b)"
)
_ASKING = re.compile(
    r"(?i:^\W{0,6}(?:(?:and|so|but|or|ok|q:|hi|hello)\W{1,3})?(?:should|shall|can|could|would|will|do|does|did|is|are|was|has|have|"
    r"how|what|why|which|where|when (?:should|do|is)|who|"
    r"any(?:one|body| idea| way)|may i)\b[^\n]{0,300}\?)"
)
_TURNS = re.compile(
    r"(?i:\b(?:unless|without|except (?:when|with|if|for)|until|if (?:i|we|it) (?:do not|don't|did not|didn't)(?: \w{1,8})?|not)(?: \w{1,10}){0,2}\W{0,4}$)"
)
_UNHARMED = re.compile(r"(?i:\b(?:everything|it|all|that|this) still (?:just )?(?:works?|runs?|trains?)\b)")
_FOLLOWS = re.compile(
    r"(?i:^\W{0,3}(?:that|this|it|then|now|so far|with (?:it|that|this)|since then|after that|afterwards|no|none|same|still|works?|"
    r"runs?|did|does|helps?|helped|and|but|all|everything|nothing|fixed|solved)\b)"
)
_WORD = re.compile(r"\w+")
_OWN_WORDS = frozenset((
    "the", "a", "an", "is", "it", "i", "we", "my", "our", "with", "to", "of", "on", "but", "if", "when", "not", "this", "that", "in", "for", "after", "as",
    "so", "and", "does", "do", "was", "only", "same", "without", "no", "from", "at", "work", "works", "hang", "hangs", "its", "their", "them", "they",
    "last", "had", "gets", "were", "been", "be", "have", "has", "are", "or", "by", "then", "you", "me", "one", "both", "all", "any", "there", "here", "also",
    "now", "still",
))  # fmt: skip
_MACHINE = re.compile(
    r"\s{0,12}(?:\[[^\]\n]{1,40}\]|\d{4}-\d\d-\d\d|\d{1,2}:\d\d|[\w.-]{1,64}:\d{1,8}:\d{1,8} |[IWEF]\d{4} |"
    r"\(?[A-Z][A-Za-z]{2,20}(?:Error|Warning|Exception)\b|(?:INFO|WARN|ERROR|DEBUG|WARNING|FATAL|CRITICAL)\b|"
    r"Traceback|File \"|\+ |\$ |#!|#SBATCH|export |import |from \w+ import|def |return |\S{1,60} NCCL |[\w.]{2,60}\([^\n]{0,200}\)\s{0,4}$)"
)
_RESULT = re.compile(
    r"\s{0,4}(?:[-*] )?[\w./=+-]{2,60}(?: [\w./=+-]{1,40}){0,7} ?(?:->|=>|:) ?(?i:ok\b|works?\b|fails?\b|hangs?\b|fine\b|same\b|"
    r"no (?:change|hang|luck)|runs?\b|stuck\b|crash)"
)
_RAISED = re.compile(
    r"\w(?:Error|Exception|Warning): |\.(?:cc|cpp|cu|py|h):\d|\[(?:WARN|INFO|ERROR|DEBUG|WARNING|E|W|I)\]|^\S{1,40}: (?:error|warning|fatal|info)\b"
)


def is_spoken(text: str) -> bool:
    """Whether a person may have written a line: several of its words bind a sentence together, and it does not begin as a program's lines do; or it is an
    entry of a list of attempts, such as "enforce_eager -> ok".
    """
    return _RESULT.match(text) is not None or (not is_of_a_program(text) and len(_OWN_WORDS.intersection(_WORD.findall(text[:600].lower()))) >= 3)


def is_of_a_program(text: str) -> bool:
    """Whether a line begins as lines of programs, commands and code do, or has one of their messages near its beginning."""
    return _MACHINE.match(text) is not None or _RAISED.search(text, 0, 160) is not None


def tells(text: str, start: int, end: int, wanted: str) -> bool:
    """Whether the sentence tells the wanted effect of the subject at start to end of a line."""
    effect = effect_of(text, start, end)
    return effect == wanted or (wanted == TOLD and effect != ASKED)


def effect_of(text: str, start: int, end: int) -> str | None:
    """WORKS, FAILS, SAME or ASKED for the subject at start to end of a line; None if the sentences around it tell no effect."""
    left, right = max(0, start - REACH), end + REACH
    sentences = [(left + one, left + other) for one, other in _parts(text[left:right], _SENTENCE_END)]
    at = next((place for place, (_, after) in enumerate(sentences) if start < after), len(sentences) - 1)
    first, last = sentences[at]
    if _is_asked(text[first:last]):
        return ASKED
    found = _in_clauses(text, first, last, start, end)
    if found is None and at + 1 < len(sentences) and _FOLLOWS.match(text[slice(*sentences[at + 1])]) and not _is_asked(text[slice(*sentences[at + 1])]):
        found = next(_effects(text, *sentences[at + 1]), None)
    if found is None:
        return None
    effect, place, place_end = found
    if ADVISING.search(text, first, max(place, end)) and not (effect == SAME or "as it should" in text[place:place_end]):
        return ASKED
    between = text[max(first, start - 40) : start]
    return {WORKS: FAILS, FAILS: WORKS}.get(effect, effect) if _TURNS.search(between) else effect


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The first and the last place of the sentence in which the part from start to end of a line begins."""
    left = max(0, start - REACH)
    sentences = [(left + one, left + other) for one, other in _parts(text[left : end + REACH], _SENTENCE_END)]
    return next((one for one in sentences if start < one[1]), sentences[-1])


def is_asked(text: str, start: int, end: int) -> bool:
    """Whether the part of a line from start to end is in a question, is only advised or supposed, or did no harm."""
    first, last = sentence_around(text, start, end)
    return _is_asked(text[first:last]) or bool(ADVISING.search(text, first, end)) or bool(_UNHARMED.search(text, first, last))


def _is_asked(sentence: str) -> bool:
    return bool(_ASKING.match(sentence)) or (sentence.rstrip(" )*\"'").endswith("?") and not re.search(r"\?\?|\(\?\)|[!?]{2}", sentence[-4:]))


def _in_clauses(text: str, first: int, last: int, start: int, end: int) -> tuple[str, int, int] | None:
    """The effect that is nearest to the subject in its own clause, else in the next one, else in the previous one."""
    clauses = [(first + one, first + other) for one, other in _parts(text[first:last], _CLAUSE_END)]
    own = [place for place, (low, high) in enumerate(clauses) if low < end and start < high]
    low, high = (clauses[own[0]][0], clauses[own[-1]][1]) if own else (first, last)
    near = [one for one in _effects(text, low, high) if one[2] <= start or one[1] >= end]
    if near:
        return min(near, key=lambda one: one[1] - end if one[1] >= end else (start - one[2]) + 8)
    for one in own[-1:]:
        for later in clauses[one + 1 : one + 3]:
            if found := next(_effects(text, *later), None):
                return found
    for one in own[:1]:
        for earlier in reversed(clauses[max(0, one - 1) : one]):
            if told := [*_effects(text, *earlier)]:
                return told[-1]
    return None


def _effects(text: str, low: int, high: int) -> Iterator[tuple[str, int, int]]:
    for found in EFFECT.finditer(text, low, high):
        yield str(found.lastgroup), found.start(), found.end()


def _parts(text: str, ends: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    at = 0
    for found in ends.finditer(text):
        yield at, found.end()
        at = found.end()
    if at < len(text) or not text:
        yield at, len(text)
