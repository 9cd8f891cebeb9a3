"""Rollouts: the state machine, journal, failure limit and status; whether a policy may be applied
to a node, and whether the node is proved healthy afterwards."""
