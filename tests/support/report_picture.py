"""Writes docs/images/report.png: the first screen of report.html, as Chromium shows it. `make
pictures` calls it with the page of the demo fleet.

python tests/support/report_picture.py PAGE [TARGET]
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from page_visit import SIZES, Visit, chromium

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"
WORDS = "h1, .counts button, #f1 h3"  # headline, counters, the first cause
_HEAD = 33  # bytes of a PNG's signature and its first chunk
# of an international text that is not compressed, in no particular language
_KEY = b"Description\0\0\0\0\0"


def write_picture(browser, page: Path, target: Path) -> None:
    """The first screen of a page, light, in the size of a desktop. The file also holds the words
    that it shows, so that a test sees when it is out of date."""
    with Visit(browser, page) as visit:
        shot, text = visit.page.screenshot(), _KEY + shown_words(visit).encode()
    chunk = b"iTXt" + text
    target.write_bytes(
        shot[:_HEAD]
        + len(text).to_bytes(4, "big")
        + chunk
        + zlib.crc32(chunk).to_bytes(4, "big")
        + shot[_HEAD:]
    )


def shown_words(visit: Visit) -> str:
    """The headline, counters and first cause of an open page."""
    return " | ".join(
        " ".join(text.split()) for text in visit.page.locator(WORDS).all_inner_texts()
    )


def words_in(picture: Path) -> str:
    """The words that write_picture() put into the file; "" if there are none."""
    head = picture.read_bytes()[_HEAD:]
    size = int.from_bytes(head[:4], "big")
    return head[8 + len(_KEY) : 8 + size].decode() if head[4:].startswith(b"iTXt" + _KEY) else ""


def size_of(picture: Path) -> tuple[int, int]:
    """Columns and rows of a PNG file."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


if __name__ == "__main__":
    with chromium() as browser:
        write_picture(
            browser,
            Path(sys.argv[1]).absolute(),
            Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE,
        )
    assert size_of(PICTURE) == SIZES["desktop"]
