"""The folder of a run: one place reads and writes it."""
