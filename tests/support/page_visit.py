"""A page in a real browser, and every error and request that it causes."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

CHROMIUM = next(
    (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path),
    None,
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ON_DEBIAN_AS_ROOT = (
    os.geteuid() == 0 and "\nID=debian\n" in "\n" + Path("/etc/os-release").read_text()
    if Path("/etc/os-release").exists()
    else False
)
SIZES = {"desktop": (1400, 900), "phone": (390, 844)}

# make test installs it where it can; there a missing browser is a failure and not a skip.
MARKS = [
    pytest.mark.skipif(
        CHROMIUM is None and not ON_DEBIAN_AS_ROOT,
        reason="no Chromium on this machine: the page is not looked at in a browser",
    ),
    pytest.mark.xdist_group("browser"),
]


@contextlib.contextmanager
def chromium():
    """The system's browser, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


class Visit:
    """An open page, and every error and request that it caused."""

    def __init__(
        self, browser, path: Path, size: str = "desktop", scheme: str = "light", script: bool = True
    ):
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=script,
            offline=True,
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.blocked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfinished", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.blocked.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
