"""Writes the page of fleets of 23, 1,000 and 10,000 nodes, opens it in a browser, and prints rows
of docs/benchmarks.md.

    python tests/bench/bench_page.py [--nodes N]

Opened: until the page is laid out and its script has run, without network; filtered: from a word in
the filter to the page that shows what is left. Medians of five. Without Chromium the sizes alone
are measured.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils"), str(ROOT / "tests" / "support")]

import large_fleet  # noqa: E402

from unhang.audit.report.html import render_page  # noqa: E402
from unhang.audit.report.run import summarise_node  # noqa: E402

ROUNDS = 5
LAID_OUT = "document.documentElement.getBoundingClientRect().height"
FILTERED = """() => {
  const field = document.getElementById("filter"), began = performance.now();
  field.value = "critical";
  field.dispatchEvent(new Event("input"));
  document.documentElement.getBoundingClientRect();
  return performance.now() - began;
}"""


def written(folder: Path, count: int) -> tuple[Path, float]:
    """The page of a made-up fleet, and the seconds of CPU that writing it took."""
    findings, nodes = large_fleet.fleet(count)
    summaries = [summarise_node(node) for node in nodes]
    started = time.process_time()
    text = render_page(findings, {}, summaries)
    used = time.process_time() - started
    page = folder / f"{count}.html"
    page.write_text(text, encoding="utf-8")
    return page, used


def opened(page: Path, browser: Any) -> tuple[float, float]:
    """(seconds until it is open, milliseconds of a filter)."""
    opening, filtering = [], []
    for _ in range(ROUNDS):
        context = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True)
        tab = context.new_page()
        started = time.monotonic()
        tab.goto(page.as_uri(), timeout=120_000)
        tab.evaluate(LAID_OUT)
        opening.append(time.monotonic() - started)
        filtering.append(tab.evaluate(FILTERED))
        context.close()
    return statistics.median(opening), statistics.median(filtering)


def main() -> None:
    """Prints a row for each fleet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--nodes",
        type=int,
        action="append",
        help="instead of 23, 1000 and 10000; may be given again",
    )
    counts = parser.parse_args().nodes or [23, 1000, 10_000]
    chromium = next(
        (
            path
            for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
            if path
        ),
        None,
    )
    columns = ("page of", "MB", "written, CPU s", "opened, s", "filtered, ms")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
    with tempfile.TemporaryDirectory(prefix="unhang-bench-") as name:
        pages = [(count, *written(Path(name), count)) for count in counts]
        if chromium is None:
            rows = [
                (count, page, used, "not measured", "not measured") for count, page, used in pages
            ]
        else:
            rows = list(in_browser(pages, chromium))
        for count, page, used, opening, filtering in rows:
            sys.stdout.write(
                f"| {count:,} nodes | {page.stat().st_size / 1e6:.2f} | {used:.2f} | {opening} |"
                f" {filtering} |\n"
            )


def in_browser(pages: list[tuple[int, Path, float]], chromium: str) -> Any:
    """Rows of the pages, opened one after another in one browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for count, page, used in pages:
            opening, filtering = opened(page, browser)
            yield count, page, used, f"{opening:.2f}", f"{filtering:.0f}"
        browser.close()


if __name__ == "__main__":
    main()
