"""Builds the manual as a site: copies docs/ and the pages outside of it to build/site-source, runs
zensical, and checks every internal link.

    python -P tools/release/site.py [TARGET]

TARGET (build/site) is a folder of pages that need no other server: they load no font, script or
picture from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PROJECT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=(?:#[^)]*)?\))")
OUTSIDE = (
    "action.yml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "roles/*/README.md",
    "tools/unhang/core/schemas/*.yaml",
    "deploy/skill/*.md",
)
# what a browser loads by itself
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NO_REQUEST = ("canonical", "prev", "next")  # kinds of <link> that a browser does not load


def lay_out(folder: Path) -> Path:
    """The source of the site: every page with links that lead to pages of it. Gives the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    places = {
        path: Path("docs") / path.relative_to(PROJECT / "docs")
        for path in (PROJECT / "docs").rglob("*")
        if path.is_file()
    }
    places |= {path: Path("docs", path.name) for path in manual_pages(folder / "manual")}
    places |= {
        path: Path("docs", "files", path.relative_to(PROJECT))
        for pattern in OUTSIDE
        for path in PROJECT.glob(pattern)
    }
    for path, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(_with_links(path, place, places), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    shutil.copyfile(PROJECT / "tools" / "release" / "site.toml", folder / "zensical.toml")
    return folder


def manual_pages(folder: Path) -> list[Path]:
    """The pages that are written from the catalogue, in a folder of their own."""
    subprocess.run(
        [sys.executable, "-P", "-m", "unhang.audit.reference.pages", str(folder)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return sorted(folder.glob("*.md"))


def _with_links(page: Path, place: Path, places: dict[Path, Path]) -> str:
    """A page's text; a link to a file of the repository that the site does not have stays as it is,
    and is a fault of the check."""

    def moved(found: re.Match[str]) -> str:
        target = places.get((page.parent / found["path"]).resolve())
        return os.path.relpath(target, place.parent) if target else found["path"]

    return LINK.sub(moved, page.read_text(encoding="utf-8"))


def build(source: Path, target: Path) -> None:
    """Runs zensical. Raises SystemExit with its output if it found a fault."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "zensical", "build", "--clean", "--strict"],
        cwd=source, env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"}, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"zensical could not build {source}: {(done.stdout + done.stderr)[-3000:]}"
        )
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(source / "site", target)


class _Page(HTMLParser):
    """ids: targets of links; links: those that a reader may follow; loads: those that a browser
    loads by itself."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADS.get(tag) in given and given.get("rel") not in NO_REQUEST:
            self.loads.append(given[LOADS[tag]])


def faults_of(site: Path) -> list[str]:
    """Links within the site without a target, and everything that a page would load from another
    host."""
    pages = {
        path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    faults = [
        f"{path.name}: asks {load}"
        for path, page in pages.items()
        for load in page.loads
        if urlsplit(load).netloc
    ]
    for style in site.rglob("*.css"):
        faults += [
            f"{style.name}: asks {found}"
            for found in re.findall(
                r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")]+)",
                style.read_text(encoding="utf-8"),
            )
        ]
    for path, page in pages.items():
        # served under any address, so its links are relative to the root
        if path.name != "404.html":
            faults += [
                f"{path.relative_to(site.resolve())}: {link} leads nowhere"
                for link in {*page.links, *page.loads}
                if not _leads(link, path, pages)
            ]
    return sorted(faults)


def _leads(link: str, page: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return (
        not parts.fragment
        or target not in pages
        or parts.fragment.startswith("__")
        or unquote(parts.fragment) in pages[target].ids
    )


def main(target: Path) -> None:
    """Builds and checks. Raises SystemExit with the faults."""
    build(lay_out(PROJECT / "build" / "site-source"), target)
    if faults := faults_of(target):
        raise SystemExit("\n".join(faults))
    sys.stdout.write(f"{target / 'index.html'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PROJECT / "build" / "site")
