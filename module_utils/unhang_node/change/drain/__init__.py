"""Takes a node out of its scheduler's hands, and gives back only what it took."""
