"""Diagnoses logs: what happened, and what most probably caused it. Reading, signatures, facts, causes."""
