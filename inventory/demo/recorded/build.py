"""Writes the recorded fleet of `make demo`: layers/, hosts/ and nvml/ beside this file, from what
trees.py, boards.py and drivers.py describe.

    python3 inventory/demo/recorded/build.py

A node's root is its own folder hosts/<host> over the layers that the inventory names. What differs
between nodes is small and lies in fleet.py.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fleet import LAYERS, hosts, recordings  # noqa: E402 - the folder of this file is no package
from trees import Link, Tree  # noqa: E402

MADE = ("layers", "hosts", "nvml")


def write_tree(folder: Path, tree: Tree) -> None:
    """Writes one layer."""
    for path, content in sorted(tree.items()):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            place.symlink_to(content.target)
        elif isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content, encoding="utf-8")


def write_recording(place: Path, recording: dict[str, Any]) -> None:
    """One recording, one call a line."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(recording, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def build(target: Path) -> None:
    """Writes everything below `target`; what was made before is removed."""
    for name in MADE:
        shutil.rmtree(target / name, ignore_errors=True)
    for name, tree in LAYERS.items():
        write_tree(target / "layers" / name, tree)
    for name, tree in hosts().items():
        write_tree(target / "hosts" / name, tree)
    for name, recording in recordings().items():
        write_recording(target / "nvml" / f"{name}.json", recording)


if __name__ == "__main__":
    build(HERE)
