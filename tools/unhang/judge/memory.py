"""What the engine remembers: verdicts by the values that they were made from, never documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unhang.judge.groups import Compared
from unhang.judge.node_rules import Judged

FORGET_AFTER = 4096  # a memory of this size that is hardly ever of use is given up
MOST_KEPT = 16 * FORGET_AFTER


@dataclass(eq=False)
class BundleVerdicts:
    """What a bundle of rules says about one vector of values. hits: nodes that have it."""

    counts: tuple[tuple[int, str, int], ...]  # rule, verdict, how many items
    listed: tuple[tuple[int, Judged], ...]
    compared: tuple[tuple[int, Compared], ...]
    hits: int = 0


@dataclass
class Memory:
    """Answers by key. Gives itself up when nearly every key is new, so that samples cannot fill the memory."""

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
        """Remembers an answer."""
        if self.given_up:
            return
        self.answers[key] = answer
        if len(self.answers) >= FORGET_AFTER and self.hits < len(self.answers):
            self.answers.clear()
            self.given_up = True
        elif len(self.answers) >= MOST_KEPT:
            self.answers.clear()
