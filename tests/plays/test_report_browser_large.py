"""The page of ten thousand nodes in a real browser: it opens, filters and shows a node, and its
headline counts nodes as the terminal does."""

from __future__ import annotations

import re

import large_fleet
import pytest
from page_visit import MARKS, Visit

from unhang.audit.report.html import render_page
from unhang.audit.report.run import summarise_node

pytestmark = MARKS
NODES = 10_000
SUNK = "gpu00003"  # a driver that deadlocks
PATIENCE_MS = 240_000  # not a target: the test fails when a result never comes


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(page, node verdicts, findings)."""
    findings, nodes = large_fleet.fleet(NODES)
    page = tmp_path_factory.mktemp("huge") / "report.html"
    page.write_text(
        render_page(findings, {}, [summarise_node(node) for node in nodes]), encoding="utf-8"
    )
    return page, findings["node_verdicts"], findings["findings"]


@pytest.fixture(scope="module")
def visit(browser, written):
    with Visit(browser, written[0]) as open_page:
        open_page.page.set_default_timeout(PATIENCE_MS)
        yield open_page


@pytest.fixture(autouse=True)
def whole(visit):
    """Each test begins with everything shown, and ends without an error, a request, or an element
    wider than the window."""
    visit.page.get_by_label("Filter").fill("")
    yield
    assert (visit.complaints, visit.blocked, len(visit.requests)) == ([], [], 1)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1400


def headline(visit):
    return visit.page.locator("h1").inner_text().strip()


def cells(visit, selector):
    return visit.page.evaluate("selector => document.querySelectorAll(selector).length", selector)


def test_it_opens_with_a_cell_for_each_node_and_counts_nodes_as_the_terminal_does(visit, written):
    assert cells(visit, "#fleet a") == NODES
    unhealthy = NODES - len(written[1]["healthy"])
    assert headline(visit).endswith(f" on {unhealthy:,} of {NODES:,} nodes")
    assert visit.page.get_by_role(
        "button", name=f"{len(written[1]['healthy']):,} nodes healthy"
    ).is_visible()
    assert visit.page.get_by_role(
        "button", name=f"{len(written[1]['unread']):,} nodes unread"
    ).is_visible()


@pytest.mark.parametrize(
    ("asked", "severities"),
    [
        ("critical", {"critical"}),
        ("info", {"info"}),
        ("gpu[00000-00999]", {"critical", "error", "warning", "info"}),
    ],
)
def test_a_filter_leaves_what_was_asked_for_and_the_headline_counts_it(
    visit, written, asked, severities
):
    visit.page.get_by_label("Filter").fill(asked)
    left = [
        one
        for one in written[2]
        if one["severity"] in severities and ("[" not in asked or one["host"] < "gpu01000")
    ]
    blamed = {one["host"] for one in left if one["severity"] != "info" or severities == {"info"}}
    number, found = re.match(
        r"([\d,]+) (?:\w+ causes?|remarks?).* on ([\d,]+) ", headline(visit)
    ).groups()
    worst = next(
        severity for severity in ("critical", "error", "warning", "info") if severity in severities
    )
    assert number == f"{len({one['rule'] for one in left if one['severity'] == worst}):,}"
    assert found == f"{len(blamed):,}"
    assert cells(visit, "#fleet a:not(.out)") == (
        1000 if "[" in asked else len({one["host"] for one in left})
    )


def test_a_click_on_a_cell_shows_that_node(visit):
    visit.page.locator(f"#fleet a[title^='{SUNK}:']").click()
    card = visit.page.get_by_role("region", name=f"Node {SUNK}")
    assert card.get_by_text("545.23.08", exact=True).first.is_visible()
    card.get_by_role("link", name="Driver 545.23.08 deadlocks").click()
    assert (
        visit.page.locator("article:target h3").inner_text()
        == "Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs"
    )
