"""The controller's side of the smoke test: plans the ranks, starts them (here, over ssh, under Slurm), judges the results, experiments, isolates.

The payload (roles/smoke_test/files/unhang_smoke.py) measures; this package makes all decisions, from values.
"""

from __future__ import annotations
