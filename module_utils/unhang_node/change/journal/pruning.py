"""Removes the oldest saved states, so that they never fill a node; what going back to a state that stays takes is left."""

from __future__ import annotations

from typing import Any

from .saved_states import read_states, remove_state, sweep_removed

CLOSED = ("finished", "rolled_back")


def states_to_prune(states: list[dict[str, Any]], keep: int) -> list[str]:
    """Ids of those that may go, oldest first, so that `keep` that are closed are left. states: oldest first. Pure.

    Of the chain only the oldest part goes: a state is reached by undoing all that were saved after it, so whatever is newer than one that stays, stays. One
    that was rolled back is no part of the chain any more. One that failed or was cut off stays, unless a later one of its role was closed: then
    the role has done since what was left undone, and it counts as that one does.
    """
    if any(state["status"] == "broken" for state in states):
        return []  # nobody knows when that one was begun
    closed = [state["id"] for state in states if state["status"] in CLOSED or _is_done_since(state, states)]
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
    """Ids of the states that were removed, oldest first: killed at any point, what stays can be gone back to. For who has the lock. Raises OSError."""
    states = read_states(rootfs)
    pruned = states_to_prune(states, keep)
    for state_id in pruned:
        remove_state(rootfs, state_id)
    if states:
        sweep_removed(rootfs)
    return pruned


def _is_done_since(state: dict[str, Any], states: list[dict[str, Any]]) -> bool:
    return any(later["status"] == "finished" and later["role"] == state["role"] and later["number"] > state["number"] for later in states)
