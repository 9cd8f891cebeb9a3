"""A rollout's state for given states of its nodes."""

from __future__ import annotations

from unhang.act.rollout.rollout_state import RolloutState


def standing_of(waves, nodes, epoch=None):
    """nodes: {host: its state}. epoch: of the newest controller; that of the newest entry about a
    node if it is not given."""
    newest = max((node.epoch for node in nodes.values()), default=0)
    return RolloutState(waves, nodes.values(), newest if epoch is None else epoch)
