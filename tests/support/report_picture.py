"""Writes docs/images/report.png: the first screen of report.html, as Chromium shows it. `make pictures` calls it with the page of the demo fleet.

python tests/support/report_picture.py PAGE [TARGET]
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_visit import SIZES, Visit, chromium

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"


def write_picture(browser, page: Path, target: Path) -> None:
    """The first screen of a page, light, in the size of a desktop."""
    with Visit(browser, page) as visit:
        visit.page.screenshot(path=target)


def size_of(picture: Path) -> tuple[int, int]:
    """Columns and rows of a PNG file."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


if __name__ == "__main__":
    with chromium() as browser:
        write_picture(browser, Path(sys.argv[1]).absolute(), Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE)
    assert size_of(PICTURE) == SIZES["desktop"]
