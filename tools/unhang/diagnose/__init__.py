"""From logs to what happened and what most probably caused it: reading, signatures, facts, causes."""
