"""Rules that read none of a node's own values: judged once for each distinct vector of the values that they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unhang.audit.judge.evaluating import Evaluator
from unhang.audit.judge.memory import BundleVerdicts, Memory
from unhang.audit.judge.own_rules import TheWorld, keyed


class SteadyBundle:
    """Rules that read the same sections. Their verdicts are cached together by all values that they read, and for each rule by its own values."""

    def __init__(self, numbers: list[int], places: Callable[[int], Sequence[int]], reads_facts: bool):
        """places(number): places in a vector of the values that a rule reads."""
        self.rules = numbers
        self.reads_facts = reads_facts
        self._key = keyed(sorted({place for number in numbers for place in places(number)}))
        self._keys = [keyed(places(number)) for number in numbers]
        self._memory = Memory()
        self._memories = [Memory() for _ in numbers]

    def judge(self, vector: Sequence[Any], world: TheWorld, evaluator: Evaluator) -> BundleVerdicts:
        """The verdicts on a node with these values."""
        key = self._key(vector)
        outcome = self._memory.get(key)
        if outcome is None:
            answers = [
                (number, self._answer(number, memory, take(vector), world, evaluator))
                for number, memory, take in zip(self.rules, self._memories, self._keys, strict=True)
            ]
            outcome = evaluator.verdicts(answers)
            self._memory.put(key, outcome)
        return outcome

    def forget(self) -> None:
        """Drops all cache entries whose keys are numbers of a vector."""
        for memory in (self._memory, *self._memories):
            memory.answers.clear()

    def _answer(self, number: int, memory: Memory, key: Any, world: TheWorld, evaluator: Evaluator) -> Any:
        answer = memory.get(key)
        if answer is None:
            answer = evaluator.answer(number, world())
            memory.put(key, answer)
        return answer
