"""The gate: who may join a cluster, what is kept of it, and whether a node in service is still the one that was admitted."""
