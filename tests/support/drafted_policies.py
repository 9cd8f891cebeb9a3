"""What a drafted policy pins, as a policy."""

from __future__ import annotations


def policy_of(draft):
    policy = {}
    for pin in draft.pins:
        policy.setdefault(pin.section, {})[pin.name] = pin.value
    return policy
