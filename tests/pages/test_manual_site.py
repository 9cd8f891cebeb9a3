"""The manual as a web site: each of its links works, no page is missing, and a browser that shows
it sends no request to another server."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from pathlib import Path

import pytest

from unhang.audit.reference.pages import PAGES

PROJECT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def maker():
    """tools/release/site.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "manual_site", PROJECT / "tools" / "release" / "site.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(maker, tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("manual")
    maker.build(maker.lay_out(folder / "source"), folder / "site")
    return folder / "site"


def test_every_link_within_leads_somewhere_and_nothing_is_loaded_from_elsewhere(maker, site):
    assert maker.faults_of(site) == []


@pytest.mark.parametrize(
    ("markup", "fault"),
    [
        ('<a href="nosuch.html">a</a>', "rollout.html: nosuch.html leads nowhere"),
        ('<a href="roles.html#nosuch">a</a>', "rollout.html: roles.html#nosuch leads nowhere"),
        ('<img src="images/nosuch.png">', "rollout.html: images/nosuch.png leads nowhere"),
        (
            '<script src="https://example.org/y.js"></script>',
            "rollout.html: asks https://example.org/y.js",
        ),
        ('<a href="roles.html">a</a><a href="https://example.org/">b</a>', None),
    ],
)
def test_the_check_names_what_leads_nowhere_and_what_is_asked_of_others(
    maker, site, tmp_path, markup, fault
):
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / "rollout.html").write_text((copy / "rollout.html").read_text() + markup)
    assert maker.faults_of(copy) == ([fault] if fault else [])


def test_every_page_stands_in_the_navigation():
    def pages(part):
        for one in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else [part]
        ):
            yield from [one] if isinstance(one, str) else pages(one)

    navigation = tomllib.loads((PROJECT / "tools" / "release" / "site.toml").read_text())[
        "project"
    ]["nav"]
    assert sorted(page for page in pages(navigation) if "/" not in page) == sorted(
        [*PAGES, *(path.name for path in (PROJECT / "docs").glob("*.md"))]
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
def test_a_browser_that_opens_the_manual_asks_for_files_of_it_alone(site):
    from playwright.sync_api import sync_playwright

    asked, complaints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.goto((site / "index.html").as_uri())
        assert "unhang" in page.title()
        page.get_by_role("link", name="glossary").first.click()
        page.wait_for_url("**/glossary.html")
        browser.close()
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:", "blob:"))] == []
    assert complaints == []
