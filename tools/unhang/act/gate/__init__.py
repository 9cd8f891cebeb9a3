"""The gate: which nodes may join a cluster, their admission records, and whether a node in service
still matches its record."""
