"""Two groups, inventories or environments side by side: where the configuration of their nodes differs, whether or not a rule knows the difference."""
