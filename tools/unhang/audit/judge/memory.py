"""The engine's cache: verdicts by the values from which they follow, never documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unhang.audit.judge.groups import Compared
from unhang.audit.judge.node_rules import Judged

FORGET_AFTER = 4096  # a cache of this size with hardly any hits is dropped
MOST_KEPT = 16 * FORGET_AFTER


@dataclass(eq=False)
class BundleVerdicts:
    """The verdicts of a bundle of rules for one vector of values. hits: nodes that have it."""

    counts: tuple[tuple[int, str, int], ...]  # rule, verdict, how many items
    listed: tuple[tuple[int, Judged], ...]
    compared: tuple[tuple[int, Compared], ...]
    hits: int = 0


@dataclass
class Memory:
    """A cache of answers by key. It is dropped when nearly every key is new, so that samples cannot fill the memory."""

    answers: dict[Any, Any] = field(default_factory=dict)
    hits: int = 0
    given_up: bool = False

    def get(self, key: Any) -> Any:
        """The answer, or None."""
        found = self.answers.get(key)
        if found is not None:
            self.hits += 1
        return found

    def put(self, key: Any, answer: Any) -> None:
        """Stores an answer."""
        if self.given_up:
            return
        self.answers[key] = answer
        if len(self.answers) >= FORGET_AFTER and self.hits < len(self.answers):
            self.answers.clear()
            self.given_up = True
        elif len(self.answers) >= MOST_KEPT:
            self.answers.clear()
