"""The language of rules: rows of the catalogue and facts in, verdicts and their texts out."""
