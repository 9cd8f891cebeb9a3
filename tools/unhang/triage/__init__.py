"""From findings to causes: what one fault makes of many findings, what to do about it, and the command that does it."""
