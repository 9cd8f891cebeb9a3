"""The smoke test on the controller's side: plans who runs what, starts it (here, over ssh, under Slurm), judges what came back, experiments, isolates.

The payload (roles/smoke_test/files/unhang_smoke.py) measures; everything that decides is here, and decides from values.
"""

from __future__ import annotations
