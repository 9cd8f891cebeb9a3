"""The controller's side of the smoke test: plans the ranks, starts them (here, over ssh, under
Slurm), judges the results, experiments, isolates.

The payload (smoke/payload) measures; this package makes all decisions, from values.
"""

from __future__ import annotations
