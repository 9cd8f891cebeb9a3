"""What a run says to people and programs: terminal table, page, JSON."""
