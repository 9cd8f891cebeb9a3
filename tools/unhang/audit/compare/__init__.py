"""Compares two groups, inventories or environments: where the configuration of their nodes differs,
whether or not a rule knows the difference."""
