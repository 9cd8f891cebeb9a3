"""Nodes in, the results of smoke tests and burn-ins out."""
