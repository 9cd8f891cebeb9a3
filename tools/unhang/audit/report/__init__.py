"""Reports of a run: terminal table, page, JSON and other formats."""
