"""Builds dist/unhang-inspect.pyz: what a node shows of a running job, in one file for Python 3.8 or newer, for nodes and pods without unhang.

python tools/collector/job.py [--python python3.12 ...] [TARGET]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder of the collector is no installed package
from collector.build import HERE, build_as_asked, build_entry


def build(target: Path, pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target`, atomically. pythons: further interpreters to compile for."""
    text = (HERE / "__main__.py").read_text("utf-8")
    for old, new in (("unhang_node.facts.command", "unhang_node.job.command"), ("unhang-collect", "unhang-inspect")):
        if old not in text:
            raise SystemExit(f"{HERE / '__main__.py'}: expected {old}, found none; tools/collector/job.py replaces it")
        text = text.replace(old, new)
    return build_entry(target, "unhang_node.job.command", text.encode("utf-8"), pythons)


if __name__ == "__main__":
    build_as_asked(build, "look at running jobs", "unhang-inspect.pyz")
