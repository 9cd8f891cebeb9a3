"""Each rule is found under the facts that it reads."""

from __future__ import annotations

import pytest

from unhang.core.schemas.shapes import fact_shapes
from unhang.judge.reference.rules_by_fact import rules_by_fact
from unhang.judge.rules.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()
USED = rules_by_fact(CATALOGUE)


def test_there_are_facts_of_every_section():
    assert len(USED) > 300
    assert {path.partition(".")[0] for path in USED} == {*fact_shapes()}


def only_asks_what_was_read(rule):
    """Whether all that it asks is that a section could be read."""
    asked = {
        path
        for path in rule.decision_reads
        if path[0] not in ("policy", "groups", "host", "run_status", "message", "policy_error")
    }
    return all("probe" in path for path in asked)


def test_every_rule_is_found_under_a_fact():
    found = {rule_id for ids in USED.values() for rule_id in ids}
    rules = [rule for rule in CATALOGUE.rules if rule.reads_facts]
    assert [
        rule.id for rule in rules if rule.id not in found and not only_asks_what_was_read(rule)
    ] == []


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("driver.loaded.version", "driver-545-23-08-p2p-deadlock"),
        ("gpus.devices[*].pcie.width_now", "pcie-width-below-max"),
        ("faults.events[*].code", "xid-fatal"),
        ("torch.environments[*].packages", "torch-wheels-of-another-cuda"),
        ("gpus.devices[*].clocks.throttle_reasons", "gpu-slowed-by-hardware"),
    ],
)
def test_facts_are_joined_with_the_rules_that_read_them(path, rule):
    assert rule in USED[path]
