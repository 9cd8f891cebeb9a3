"""Links between pages lead somewhere: to a file of the checkout, and to a heading of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
PAGES = sorted([*(path for path in HOME.glob("*.md") if path.name != "CHANGELOG.md"), *(HOME / "docs").rglob("*.md"), *(HOME / "roles").glob("*/README.md")])


def without_code(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Of its headings, as code hosts make them."""
    bare = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).strip().lower() for text in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in bare}


def test_links_lead_to_files_and_headings_that_are_there():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)) if not re.match(r"[a-z]+:", link)]
    assert len(links) > 300
    dead = []
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / name)) if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(f"{page.relative_to(HOME)}: {link}")
    assert dead == []


PLACES = r"(?<![\w/.-])((?:tests|tools|module_utils|plugins|library|roles|playbooks|inventory|awx|\.ci)/[\w./-]*\w)"
INVENTED = ("inventory/mycluster", "roles/swappiness", ".ci/passed/NAME", ".ci/tiers/NAME")  # what a reader puts a name of his own for


def test_files_that_pages_name_are_there():
    named = {(page, path) for page in PAGES for path in re.findall(PLACES, page.read_text(encoding="utf-8")) if not path.startswith(INVENTED)}
    assert len(named) > 150
    assert sorted(f"{page.relative_to(HOME)}: {path}" for page, path in named if not (HOME / path).exists()) == []
