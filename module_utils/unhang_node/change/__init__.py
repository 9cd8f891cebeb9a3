"""Changes a node: computes the new contents of files, writes them atomically, and saves what is
needed to undo it."""
