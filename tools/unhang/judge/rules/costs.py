"""What a severity is worth, in what it costs jobs."""

from __future__ import annotations

COSTS = {
    "no job may start": ("critical", "no job may start on this node now"),
    "jobs fail": ("error", "jobs on this node fail"),
    "jobs hang": ("error", "jobs on this node hang"),
    "jobs are slow": ("error", "jobs on this node are slow by a tenth or more"),
    "some jobs": (
        "warning",
        "some jobs break or are slow, and the facts of the node show what they meet",
    ),
    "next boot": ("warning", "jobs break after the next boot"),
    "next upgrade": ("warning", "jobs break with the next upgrade"),
    "larger jobs": ("warning", "larger jobs break"),
}
"""What a severity above info is worth: `costs` of a rule -> the severity for that, and it in
words."""
