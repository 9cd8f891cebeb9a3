"""Drains a node in its scheduler, and releases only nodes that it drained itself."""
