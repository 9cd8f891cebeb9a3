"""Diagnoses logs: what happened, and what most probably caused it. logs/ reads, matching/ finds
events, rules/ combine them, ranking.py orders the causes."""
