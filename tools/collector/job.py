"""Builds dist/unhang-inspect.pyz: what a node shows of a running job, in one file for Python 3.8 or
newer, for nodes and pods without unhang.

python tools/collector/job.py [--python python3.12 ...] [TARGET]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

# the folder of the collector is no installed package
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from collector.build import MAINS, build_as_asked, build_program


def build(target: Path, pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target`, atomically. pythons: further interpreters to compile for."""
    return build_program(target, MAINS / "inspect.py", pythons)


if __name__ == "__main__":
    build_as_asked(build, "look at running jobs", "unhang-inspect.pyz")
