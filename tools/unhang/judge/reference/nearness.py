"""Which topics a person may have meant by a name or a phrase that nothing is known of. Values in,
values out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from unhang.core.catalogue import checked_files
from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import every_fact, every_place, policy_shape
from unhang.judge.rules.compiled_catalogue import Catalogue

KINDS = {
    "xid": ("xids",), "sxid": ("sxids",), "driver": ("driver_branches", "driver_versions"),
    "nccl": ("nccl_wheels",), "torch": ("torch_wheels",),
    "pytorch": ("torch_wheels",), "cuda": ("cuda_toolkits", "cuda_majors"),
    "gpu": ("gpu_models", "gpu_architectures"), "cudnn": ("cudnn_releases",),
    "kernel": ("kernel_issues",),
}  # fmt: skip
"""What may come before a number, a version or a model, and the tables in which that is a key."""
CLOSE = 0.81  # of two words that differ by a slip of the finger
SHORTEST = 5  # letters of a word that may be misspelt; shorter ones are near to too many
MOST = 3
_EMPTY = frozenset(
    (
        "the",
        "and",
        "not",
        "was",
        "has",
        "have",
        "are",
        "for",
        "with",
        "from",
        "that",
        "this",
        "error",
        "nccl",
        "here",
    )
)
_COMMON = 0.2  # the share of topics from which on a word alone proposes nothing: `gpu`
_ALONE = {
    "xid": "xid 79",
    "sxid": "sxid 12028",
    "driver": "driver 535.154.05",
    "nccl": "nccl 2.21.5",
    "gpu": "gpu H200",
}
_ENDINGS = re.compile(r"(?:ing|led|ed|es|s|e)$")


@cache
def causes() -> tuple[Mapping[str, Any], ...]:
    """The rows of causes that `unhang diagnose` can name, read once."""
    return tuple(
        row for _path, content in checked_files("causes", "cause-1") for row in content["causes"]
    )


def suggestions(catalogue: Catalogue, asked: str) -> str:
    """What to say behind an unknown name: ' (did you mean …?)', the topics near in meaning with
    their titles, a line each, or '' if nothing is near; for the name of a kind alone, the text that
    must follow it."""
    word = asked.strip().removeprefix("unhang_policy.")
    kind, _, number = word.lower().partition(" ")
    if kind in _ALONE and not number:
        return f" alone; it is asked with what it is of: unhang explain {_ALONE[kind]}"
    if kind in ("xid", "sxid"):
        return ""  # a code is near to no other
    if kind in KINDS and number[:1].isdigit():
        return nearest(
            number, (key for name in KINDS[kind] for key in catalogue.tables.get(name, {}))
        )
    meant = near_in_meaning(catalogue, word)
    is_name = len(word.split()) == 1 and get_close_matches(word, _names(catalogue), 1, CLOSE)
    if not meant or is_name:
        return nearest(word, _names(catalogue))
    titles = _titles(catalogue)
    width = max(map(len, meant))
    return "; did you mean one of these?" + "".join(
        f"\n  {one:<{width}}  {titles[one]}" for one in meant
    )


def near_in_meaning(catalogue: Catalogue, asked: str) -> list[str]:
    """Ids whose own words or title have the asked words, those with the rarest of them first; [] if
    none has. A misspelt word is read as the one that it is near to; what only the text of a cause
    has counts less."""
    own = {name: _words(f"{name} {title}") for name, title in _titles(catalogue).items()}
    more = _text(catalogue)
    texts = {name: words | _words(more[name]) for name, words in own.items()}
    met = Counter(word for words in texts.values() for word in words)
    asked_words = _words(asked)
    wanted = {_respelt(word, met) for word in asked_words} & met.keys()
    if 2 * len(wanted) < len(asked_words) or not any(
        met[word] < _COMMON * len(texts) for word in wanted
    ):
        return []
    scores = {
        name: sum((1.0 if word in own[name] else 0.3) / met[word] ** 0.5 for word in wanted & words)
        for name, words in texts.items()
    }
    best = max(scores.values())
    near = [name for name in scores if scores[name] > 0.6 * best]
    return sorted(near, key=lambda name: (-round(scores[name], 6), len(own[name]), name))[:MOST]


def _words(text: str) -> set[str]:
    """The stems of its words: `throttling` and `throttled` are one."""
    found = {word for word in re.findall(r"[a-z0-9]{3,}", text.lower()) if word not in _EMPTY}
    return {_ENDINGS.sub("", word) if len(word) > 4 else word for word in found}


def _respelt(word: str, known: Collection[str]) -> str:
    """The known word that a misspelt one is nearest to; the word itself if it is known, or far from
    all."""
    return (
        word
        if word in known or len(word) < SHORTEST
        else next(iter(get_close_matches(word, known, 1, CLOSE)), word)
    )


def _titles(catalogue: Catalogue) -> dict[str, str]:
    """Id -> title of what a phrase may mean."""
    rows = [*(rule.row for rule in catalogue.rules), *catalogue.entries, *causes()]
    return {row["id"]: row["title"] for row in rows}


def _text(catalogue: Catalogue) -> dict[str, str]:
    """Id -> what a topic says of itself beside its title: what a cause means, what a person sees of
    a rule's fault."""
    rows = (*(rule.row for rule in catalogue.rules), *catalogue.entries)
    seen = {
        row["id"]: "; ".join(
            [*row.get("symptoms", ()), *(source["says"] for source in row["sources"])]
        )
        for row in rows
    }
    return seen | {row["id"]: row["means"] for row in causes()}


def _names(catalogue: Catalogue) -> list[str]:
    """All names that can be asked for."""
    keys = [str(key) for name, table in catalogue.tables.items() for key in table]
    roles = {
        str(rule.row["remedy"]["role"])
        for rule in catalogue.rules
        if rule.row["remedy"].get("role")
    }
    return [
        *_titles(catalogue),
        *keys,
        *sorted(roles),
        *(
            path.replace("[*]", "")
            for path, _ in (*every_place(policy_shape().fields), *every_fact())
        ),
    ]
