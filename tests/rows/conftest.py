"""Fixtures of the proofs of rows."""

from __future__ import annotations

from unhang.judge.rules.compiled_catalogue import load_catalogue

# Read once for each worker, as for the units.
load_catalogue()
