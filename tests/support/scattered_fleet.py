"""A run of any number of nodes in which each rule fails on scattered nodes: for the first
screen."""

from __future__ import annotations

import functools

import fleets

TITLE = "A thing that is not as it should be, told in a line that is too long for a narrow terminal"


def finding(rule, host, severity, **more):
    """One finding with a remedy that a role applies, or that a person must consider."""
    remedy = (
        {"role": "host_tuning", "policy": {"host": {"persistence": True}}}
        if len(rule) % 2
        else {"person": "look at " + " and ".join([TITLE] * 4)}
    )
    return fleets.finding(rule, host, severity, TITLE, "e", "f", **{"remedy": remedy, **more})


@functools.cache
def fleet(nodes, criticals, others, unread):
    """A run of this many nodes; each rule fails on scattered nodes among those that were read."""
    names = [f"gpu{number:05d}" for number in range(nodes)]
    gone = names[3::11][:unread]
    hosts = sorted(set(names) - set(gone))
    found = [finding("node-unreachable", host, "error") for host in gone]
    found += [
        finding(f"critical-{rule}", host, "critical")
        for rule in range(criticals)
        for host in hosts[rule :: rule + 7]
    ]
    for rule in range(others):
        found += [
            finding(f"other-{rule}", host, ("error", "warning", "info")[rule % 3])
            for host in hosts[rule :: rule + 3]
        ]
    return fleets.document(found, {"ok": nodes - unread, "unreachable": unread})
