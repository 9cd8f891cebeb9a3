"""Each rule has a near miss that differs from a match in nothing but the fact that decides."""

from __future__ import annotations

from unhang.audit.rules.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules if rule.decision_reads}
ABSENT = object()
TELL_TOGETHER = {
    ("faults", "events"): "an event's code and its line are one thing that happened",
    ("fabric_manager", "imex"): "what is not installed has no version",
    ("node", "slurm"): "what is not installed has no version",
    ("interconnect",): "a link's errors are counted in its GPU's sum as well",
    ("fabric_manager",): "what is not installed has no version",
}
"""Facts that cannot change one without the other count as one."""


def changes(one, other, path=()):
    """Places at which two examples differ; an item or a key that is only on one side is one place. Numbers of items become *."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from changes(one.get(key, ABSENT), other.get(key, ABSENT), (*path, key))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            here, there = (side[place] if place < len(side) else ABSENT for side in (one, other))
            yield from changes(here, there, (*path, "*"))
    elif one is ABSENT or other is ABSENT or one != other:
        yield path


def decides(path, reads):
    """Whether a change at this place can reach the verdict."""
    return any(path[: len(read)] == read or read[: len(path)] == path or (read[-1] == "**" and path[: len(read) - 1] == read[:-1]) for read in reads)


def deciding_changes(rule, match, near_miss):
    found = {path[1:] if path[:1] == ("*",) else path for path in changes(match, near_miss)}
    deciding = {path for path in found if decides(path, rule.decision_reads)}
    for whole in TELL_TOGETHER:
        if len({path for path in deciding if path[: len(whole)] == whole}) > 1:
            deciding = {path for path in deciding if path[: len(whole)] != whole} | {whole}
    return deciding


def fewest_changes(rule):
    """What decides between the match and the near miss that are most alike."""
    examples = rule.row["examples"]
    return min((deciding_changes(rule, match, miss) for match in examples["match"] for miss in examples["near_miss"]), key=len)


def test_a_near_miss_differs_from_a_match_in_just_the_deciding_fact():
    changed = {rule_id: fewest_changes(rule) for rule_id, rule in RULES.items()}
    assert {rule_id: fewest for rule_id, fewest in changed.items() if len(fewest) != 1} == {}
