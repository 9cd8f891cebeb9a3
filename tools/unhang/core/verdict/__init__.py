"""Suspects of a hang, by the reports of ranks: for smoke tests and for running jobs."""
