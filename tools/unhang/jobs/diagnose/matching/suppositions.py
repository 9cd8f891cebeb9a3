"""Whether a sentence of a person only supposes, passes on, asks or denies what it names. Such a sentence is no evidence, whatever its words.

Only what a person wrote is looked at: programs suppose too ("this might be caused by insufficient shared memory"), and there it is what they found.
"""

from __future__ import annotations

import re

from unhang.jobs.diagnose.matching.statements import FAILS, effect_of, is_of_a_program, sentence_around

_PERHAPS = r"maybe|perhaps|possibly|probably|presumably"
_ONE_THINKS = (
    r"(?:i|we)(?:'d| would| do| can)?(?: \w{1,8}ly| also| still| now| just)? "
    r"(?:think|thought|guess|suspect(?:ed)?|assumed?|believed?|suppose|wonder|bet|fear|imagine)"
)
_BEFORE = re.compile(
    rf"(?i:\b(?:{_PERHAPS}|{_ONE_THINKS}|"
    r"(?:my|our) (?:\w{1,12} )?(?:guess|suspicion|theory|hypothesis|assumption|bet|feeling|hunch)(?: (?:is|was))?|"
    r"(?:might|may|could) be (?:that|because|due)|(?:could|can|might|may) (?:it|this|that) be|is (?:it|this|that) (?:because|possible)|"
    r"(?:it|this|that) (?:looks|seems|sounds|feels) (?:like|as (?:if|though)|that)|"
    r"(?:colleague|friend|somebody|someone|people|forum|thread|post|blog|article|chatgpt)s?(?: \w{1,12}){0,3} "
    r"(?:says?|said|thinks?|suggest\w{0,3}|claim\w{0,2}|blames?|told|wrote|writes?)|(?:i|we) (?:have )?(?:read|heard)|"
    r"(?:no|not (?:a|any)) (?:sign|evidence|indication|hint|trace)s? (?:of|that|for)|"
    r"(?:is|are|was|were|it's|that's) ?(?:not|n't) (?:that|because|due|caused)|not because|cannot be (?:that|because)|"
    r"ruled? out)\b)"
)
_AFTER = re.compile(rf"(?i:[^\n]{{0,60}}?\b(?:{_PERHAPS}|{_ONE_THINKS}|(?:is|was) ruled out)\W{{0,4}}(?:(?:[,;(]|but )[^\n]{{0,160}})?$)")
_DENIED = re.compile(
    r"(?i:\b(?:no(?! (?:longer|matter)\b)|(?P<without>without)|"
    r"(?:do|does|did|is|are|am|was|were)(?: not|n't) (?:\w{1,8} )?(?:us(?:e|es|ing|ed)|in|on|under|run|running|with)|"
    r"(?:not|never) (?:us(?:e|ing|ed)|in|on|under|via|with|within|inside)|neither|nor)(?: (?:any|a|an|the))?(?: \w{2,12},?(?: or| and| nor)?){0,2} \W{0,2}$)"
)
_ABSENT = re.compile(  # "did not appear", or "no" right before the name; in brackets the name repeats what was said in Chinese
    r"(?:[没沒]有|[并並]?未|无|無)(?:再)?(?:出现|出現|发现|發現|看到|见到|見到)[^，。；！？：:,.;\n]{0,24}$"
    r"|[没沒]有(?:任何)?[^\w\n：:,.;，。；]{0,3}$|[没沒]有(?!足够|足夠|响应|反应|回应|可用|空闲|剩余|更多)[^，。；！？：:,.;\n]{1,16}[（(]\s?$"
)
_NO_FAULT = re.compile(  # at most one word between: "no heartbeat, CUDA out of memory" and "no output but ..." have the fault
    r"(?i:\b(?:no(?! (?:longer|matter|other|more|doubt)\b)|without|never (?:saw|seen|had)|neither|nor)(?: (?:any|a|an|the|more|further|single))?"
    r"(?: (?!but\b|only\b|just\b|except\b|besides\b|other\b|longer\b|than\b)\w{2,12}(?: or| nor| and)?)? \W{0,2}$)"
)
_AVERTED = re.compile(r"(?i:(?<!t )\b(?:avoid|prevent)(?:s|ed|ing)?(?: (?:an?|the|any|such|possible|potential))? \W{0,2}$)")  # not "cannot avoid"
_DOUBTED = re.compile(
    r"(?i:\b(?:is|was|could|might) (?:this|it|that)(?: be)?(?: maybe| perhaps)?(?: a| the)? (?:case|kind|sign|instance)s? of(?: an?| the)? \W{0,2}$)"
)
_IN_QUOTES = re.compile(r"(?<=[\s(:][\"'`\u201c\u2018\u00ab])[^\"'`\u201d\u2019\u00bb]{1,60}$")  # what a quotation has before the part that is looked at
_SOUGHT = re.compile(r"(?i:\b(?:look|search|grep|check|scan)(?:ed|ing|s)? (?:\w{1,12} ){0,4}(?:for|of) (?:an?y? |the )?\W{0,2}$)")
_NOT_FOUND = re.compile(r"(?i:[^\n]{0,80}?\b(?:found nothing|nothing|none|no (?:match|hit|result|line|trace)|not (?:found|there)|0 (?:match|hit|line)))")
_TURN = re.compile(r"(?i:\b(?:but|however|although|though|yet|whereas|because dmesg|since dmesg)\b|;)")
_OPEN_QUOTE = re.compile(r"(?:^|[\s(:])[\"'`\u201c\u2018\u00ab][^\"'`\u201d\u2019\u00bb]{0,160}$")


def is_supposed(text: str, start: int, end: int) -> bool:
    """Whether a person's sentence around start to end of a line only supposes, passes on or denies that part. A message in quotation marks was seen."""
    if is_of_a_program(text):
        return False
    first, last = sentence_around(text, start, end)
    if _OPEN_QUOTE.search(text[min(first, start) : start]):
        return False
    turns = [found.end() for found in _TURN.finditer(text, first, start)]
    return bool(_BEFORE.search(text, turns[-1] if turns else first, max(start, first)) or _BEFORE.match(text, start) or _AFTER.match(text[end:last]))


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether a sentence says that the part of a job that it names is not there ("no vLLM", "we do not use Slurm"). "It works without X" says that X is there
    otherwise.
    """
    first, _ = sentence_around(text, start, end)
    found = _DENIED.search(text[max(first, start - 60) : start])
    return found is not None and not (found["without"] and effect_of(text, start, end) == FAILS)


def is_no_fault(text: str, start: int, end: int) -> bool:
    """Whether a sentence says that the fault that it names is not there, was looked for in vain, averted, or is asked about. A program says "no" of what is
    missing, so its lines deny nothing.
    """
    first, last = sentence_around(text, start, end)
    before = _IN_QUOTES.sub("", text[max(first, start - 60) : start])
    if _ABSENT.search(before) or _AVERTED.search(before):
        return True
    if is_of_a_program(text):
        return False
    return bool(_DOUBTED.search(before) or _NO_FAULT.search(before) or (_SOUGHT.search(before) and _NOT_FOUND.match(text[end:last])))
