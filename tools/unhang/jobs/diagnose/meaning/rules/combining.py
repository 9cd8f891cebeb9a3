"""Causes that follow from several facts together: ranks that differ, work that was in progress, a
hang without a message.

Each public function facts -> evidence of these modules is a rule, with the same weights as
signatures. The order does not matter; rules are independent of each other. A rule stays if it
decides logs or keeps a healthy one silent. Its docstring names them below tests/fixtures; a log of
a batch by the first part of its folder's name. A test takes each rule away and looks at these logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang.jobs.diagnose.meaning.rules import (
    collective_rules,
    device_rules,
    failures,
    guard_rules,
    memory_rules,
    network_rules,
    recording_rules,
    stack_rules,
    time_rules,
    work_rules,
)

_MODULES = (
    failures, collective_rules, recording_rules, stack_rules, work_rules, time_rules,
    device_rules, memory_rules, network_rules, guard_rules,
)  # fmt: skip
_IS_RULE = {"facts": "Facts", "return": "Iterator[Evidence]"}
RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = tuple(
    rule
    for module in _MODULES
    for name, rule in vars(module).items()
    if getattr(rule, "__annotations__", None) == _IS_RULE
    and rule.__module__ == module.__name__
    and not name.startswith("_")
)


@lru_cache(maxsize=1)
def combined_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The evidence of all rules; the ranking and the outcome both ask for it."""
    return tuple(one for rule in RULES for one in rule(facts))
