"""The journal of a node that is being changed: its lock and its saved states."""
