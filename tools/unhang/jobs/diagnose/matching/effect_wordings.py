r"""The wordings by which people tell what came of something that they tried: families of verbs with their negations, and signs of a question or of advice.

Each row is a part of a regular expression, and the rows of a table are its alternatives, tried from the first on. Letters count in either case.
"""

from __future__ import annotations

import re

NOT = r"(?:do|does|did|is|was|has|have|had|will|are|were|could|can)(?: ?n[o']?t|n[o']t)|cannot|never|no longer|not"
FAILING = (
    r"(?:hang|freez|crash|fail|stall|stop|dead-?lock|block|time out|die|happen|occur|appear|break|get stuck|do (?:this|that|it)|show (?:this|that|it|the))"
)

SAME = (
    r"(?:the )?same (?:error|hang|problem|issue|thing|behaviou?r|result|place|point|outcome|failure|timeout|message)",
    r":\s{0,2}same\b",
    r"\bsame as (?:before|without)",
    r"still (?:works?|working|runs?|running|trains?|fine|ok)\b",
    r"no (?:change|difference|effect|luck|improvement|avail|success)",
    r"(?:changes?|changed|helps?|helped) nothing",
    r"nothing (?:changes|changed|helps|helped)",
    r"without (?:any )?(?:luck|success|effect)",
    r"(?:but|still) no\b",
    r"none of (?:it|them|these|this|that|those|which)",
    r"either way",
    r"in both (?:cases|modes)",
    rf"(?:{NOT})(?: really| seem to)? (?:help|change|matter|fix|solve|cure|make (?:a|any) difference|have any effect)\w{{0,2}}",
    r"(?:also|still|too)(?: just| always)? (?:hang|freez|crash|fail|stop|stuck|die|dead|block|time|get stuck|the same)\w{0,4}",
    r"(?:hangs?|fails?|crashes|freezes|stops?|stuck|dies|blocks)(?: \w{1,8}){0,2} (?:too|as well|again|also|either way)\b",
)

_PARTS = (
    "jobs|they|all|both|scripts|tests|examples|programs|ones|nodes|it|cards|GPUs|ranks|workers|processes|pods|machines|servers|"
    "collectives|messages|sizes|packets"
)
_NO_END = r"(?! (?:(?:an?|our|my|their|its|until|till)\b|(?:\w{1,9} ){1,2}(?:until|till)\b))"  # "runs an example" and "works until" tell no success
_WORKING = (
    rf"(?:{_PARTS}) (?!steps|epochs)(?:\w{{1,6}} )?(?:run|work|train|pass|finish|complete|start|connect)",
    r"(?:it|everything|all|job|training|server|node|cluster|engine) (?:now |then |also )?(?:starts|started|connects|connected|joins|joined|comes up|came up)",
    rf"(?<!before )(?:works|worked|working|runs|ran|running(?! \S{{0,30}}(?:run|python|launch)\b)|trains|trained){_NO_END}",
    r"training starts|finish(?:es|ed)|passes",
    r"(?<!is )(?<!are )(?<!be )(?<!was )(?<!were )(?<!been )passed",
    r"complet(?:es|ed)|succeeds?|succeeded|serves?|starts? (?:up )?(?:normally|fine|training)|loads?",
    r"helps?|helped|fix(?:es|ed)|solve[sd]|resolve[sd]|cure[sd]|repair(?:s|ed)|did the trick|does the trick|fits|fine|perfectly",
)
WORKS = (
    rf"(?:{NOT})(?: \w{{1,9}}){{0,2}} {FAILING}\w{{0,4}}",
    r"(?:not|never) seen\b",
    r"(?:hang|error|problem|issue|freeze|crash|fault|failure|it) (?:is |was |has )?(?:gone|went away|goes away|disappear\w{0,3}|vanish\w{0,3}|cured|away)",
    r"(?:cannot|can't|can not|could not|couldn't) (?:reproduce|be reproduced)",
    r"(?:no|without)(?: \w{1,9}){0,2} (?:hangs?|hanging|freez(?:e|es|ing)|problems?|issues?|trouble|errors?|crash(?:es)?|timeouts?|failures?|stalls?|harm)\b",
    r"(?:both|they|all|these) (?:are|were) gone",
    r"(?:have|has|had)(?: not|n't) had (?:one|any|a single|it)",
    r"(?:the )?old (?:numbers|speed|performance|rate)",
    r"back to (?:normal|full|the old|what it was)",
    r"as before\b",
    r"(?:went|goes?|go|gone) (?:away|through|on|fine|well)",
    r"got rid",
    r"(?:gets?|got|made it|makes it|comes?|came) (?:further|past|through|by|around|going|done)",
    r"(?:is|was|are|were|all|runs?|ran|works?|it's|all's|everything|be)(?: all| just| quite| also| then)? "
    r"(?:fine|ok(?:ay)?|well|good|right|green|stable|healthy|normal|as (?:it should|expected))\b",
    rf"(?:{'|'.join(_WORKING)})\b",
    r"\bok\b",
    r"(?:full|twice the|expected|normal) (?:speed|bandwidth|rate)",
    r"\d times (?:faster|as fast)",
    r"(?:much |far |a lot |way )?faster\b",
    r"down to \d",
    r"(?:does|do) (?:see|show|get) (?:all|both|the GPU)",
)

_FAILED = (
    r"hang|hung|hangs|hanging|freez\w{1,3}|froze|frozen|stuck|stall\w{0,3}|crash\w{0,3}|fail\w{0,3}|dead-?lock\w{0,3}|die[sd]?|dying",
    r"block(?:s|ed)|stops?|stopped|segfault\w{0,3}|time[sd]? out|timeout|errors? out|breaks?|broke|aborts?|aborted|killed|throws?|OOMs?|refuse[sd]",
    r"goes down|went down|standstill|stands? still|stood still|worse|slower|waits? for ever|forever",
)
FAILS = (
    rf"(?:{NOT})(?: \w{{1,9}}){{0,2}} "
    r"(?:work|run|start|train|finish|return|connect|come|get|go|continue|complete|succeed|end|load|respond|pass|fit|show up|see (?:any|the))\w{0,4}\b",
    rf"(?:{'|'.join(_FAILED)})\b",
    r"out of memory",
    r"no (?:progress|output)",
    r"(?:dies|ends|ended) with",
    r"stopped working",
    r"(?:does|do|did)(?: not|n't)(?=\s?[.,;)]|\s?$)",
)

_SUPPOSED = (
    r"maybe|perhaps|please|recommend\w{0,3}|suggest\w{0,3}|supposed to|in order to|wonder\w{0,3}|whether|let me know",
    r"(?:you|one|they|people|somebody|someone|docs?|guides?|documentation) "
    r"(?:can|could|need|have to|has to|reads?|says?|said|claims?|recommends?|wants?|uses?)",
    r"(?:i|we) (?:read|guess|thought|think|hope|expect|assume|suspect|will (?:try|test)|could try)",
    r"according to|in theory|theoretically|idea(?:s)? (?:is|how|why)|not sure|feature request|if (?:you|someone|somebody|one|anybody)",
    r"try(?: to)? (?:set|add|us|disabl|export|pass|install|run)\w{0,4}|as one reads",
)
ADVISED = (
    r"\b(?:would|could|should|might|may|must)\b(?! ?n[o']t| not| never)",
    r"\b(?:can|will)(?: \w{3,12}ly)? (?:help|fix|solve|avoid|cause|lead|result|be (?:set|used|tried))",
    rf"\b(?:{'|'.join(_SUPPOSED)})\b",
    r"\b(?:had|have|i've|we've) (?:already )?(?:met|seen|encountered|had) (?:this|it|the same|a similar|such) [^.!?\n]{0,80}\bbefore\b",  # another case
    r"(?:^|[:.!]\s{1,2}|[*>-]\s)(?:try|set|use|add|export|disable|enable|check|make sure|consider|install|increase|reduce|run)\b"
    r"(?![^\n]{0,60}\b(?:fixed|solved|helped|worked|works for me)\b)",
)


def any_of(*tables: tuple[str, ...]) -> str:
    """The alternatives of tables as one expression."""
    return "|".join(row for table in tables for row in table)


EFFECT = re.compile(rf"(?i:(?P<same>{any_of(SAME)})|(?<![\w-])(?<!\bto )(?P<works>{any_of(WORKS)})|(?<![\w-])(?P<fails>{any_of(FAILS)}))")
ADVISING = re.compile(f"(?i:{any_of(ADVISED)})")
