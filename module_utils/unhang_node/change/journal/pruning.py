"""Removes the oldest saved states so that they never fill a node, except those that a rollback to a
kept state needs."""

from __future__ import annotations

from typing import Any

from .saved_states import read_states, remove_state, sweep_removed

CLOSED = ("finished", "rolled_back")


def states_to_prune(states: list[dict[str, Any]], keep: int) -> list[str]:
    """Ids of states to remove, oldest first, so that `keep` closed ones remain. states: oldest
    first. No I/O. A rollback to a state undoes all later states first. So only the oldest states
    are removed: every state that is newer than a kept one is kept. A state that was rolled back
    does not count. A failed or interrupted one is kept, unless a later state of its role was
    closed: then the role has completed its work since, and the older one counts as closed."""
    if any(state["status"] == "broken" for state in states):
        return []  # the time of a broken state is unknown
    closed = [
        state["id"]
        for state in states
        if state["status"] in CLOSED or _is_done_since(state, states)
    ]
    surplus = set(closed[: max(0, len(closed) - keep)])
    pruned, chain_stays = [], False
    for state in states:
        in_chain = state["status"] != "rolled_back"
        if state["id"] in surplus and not (in_chain and chain_stays):
            pruned.append(state["id"])
        elif in_chain:
            chain_stays = True
    return pruned


def prune_states(rootfs: str, keep: int) -> list[str]:
    """Removes states and returns their ids, oldest first. If it is killed at any point, every
    remaining state can still be rolled back. The caller must have the lock. Raises OSError."""
    states = read_states(rootfs)
    pruned = states_to_prune(states, keep)
    for state_id in pruned:
        remove_state(rootfs, state_id)
    if states:
        sweep_removed(rootfs)
    return pruned


def _is_done_since(state: dict[str, Any], states: list[dict[str, Any]]) -> bool:
    return any(
        later["status"] == "finished"
        and later["role"] == state["role"]
        and later["number"] > state["number"]
        for later in states
    )
