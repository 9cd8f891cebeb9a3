"""Outputs that a page shows and that a slow test compares with a file."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_the_page_shows_the_inventory_of_slurm_as_it_is():
    graph = (PROJECT / "tests" / "fixtures" / "slurm_graph.txt").read_text(encoding="utf-8")
    assert f"nodes.unhang_slurm.yml --graph\n{graph}```" in (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
