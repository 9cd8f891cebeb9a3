"""Fixtures of all unit tests."""

from __future__ import annotations

import gc

from unhang.judge.rules.compiled_catalogue import load_catalogue

# Read once for each worker: modules that load it when they are imported, and the children in which
# commands judge and explain, find it read.
load_catalogue()


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the garbage collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
