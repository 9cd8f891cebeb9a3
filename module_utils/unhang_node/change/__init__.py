"""How a node is changed: contents of files worked out from what they were, writing them whole, and what is needed to undo it."""
