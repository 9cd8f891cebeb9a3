"""Verdicts of burn-ins."""
