"""report.html in a real browser: it loads nothing and logs no error, it fits a phone, and the
filter finds a host inside a folded set."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path

import five_situations
import fleets
import hostile
import large_fleet
import page_smoke
import pytest
from page_visit import MARKS, SIZES, Visit
from report_picture import PICTURE, size_of, write_picture

from unhang.audit.report.html import render_html, render_page
from unhang.audit.report.run import summarise_node
from unhang.audit.report.screen import render_screen

pytestmark = MARKS
# (size, scheme), where one does not change what the other does
EACH_ONCE = [("desktop", "light"), ("phone", "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = fleets.write_run(tmp_path_factory.mktemp("report") / "run", *five_situations.fleet())
    page_smoke.write_results(
        folder, page_smoke.result("gpu001"), page_smoke.result("gpu004", slow_gpu=3, share=0.55)
    )
    pasts = {
        "gpu004": (
            "2026-03-02 03:14 kernel.release: 6.8.0-45-generic -> 6.8.0-57-generic",
            "2026-03-02 03:14 new: error: An NVLink is down",
        )
    }
    (folder / "report.html").write_text(render_html(folder, pasts=pasts), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    findings, nodes = large_fleet.fleet(1000)
    page = tmp_path_factory.mktemp("large") / "report.html"
    page.write_text(
        render_page(findings, {}, [summarise_node(node) for node in nodes]), encoding="utf-8"
    )
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_loads_nothing_complains_of_nothing_and_fits(
    browser, report, size, scheme, tmp_path
):
    with Visit(browser, report, size, scheme) as visit:
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => { part.open = true; })"
        )
        shot = visit.page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert visit.complaints == []
        assert visit.requests == [report.as_uri()]
        assert visit.blocked == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert len(shot) > 50_000


def test_what_is_broken_where_and_what_to_do_stand_on_the_first_screen(browser, report):
    with Visit(browser, report) as visit:
        for text in (
            "Driver 545.23.08 deadlocks",
            "dev[01-08] (8 nodes)",
            "apply role gpu_driver with driver.version",
        ):
            box = visit.page.get_by_text(text, exact=False).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < SIZES["desktop"][1]


def test_the_picture_in_the_documentation_is_a_first_screen_as_the_browser_shows_it(
    browser, report, tmp_path
):
    write_picture(browser, report, tmp_path / "report.png")
    assert size_of(tmp_path / "report.png") == size_of(PICTURE) == SIZES["desktop"]


def test_the_policy_stops_foreign_script_and_style(browser, report, tmp_path):
    tampered = tmp_path / "tampered.html"
    tampered.write_text(
        report.read_text(encoding="utf-8").replace(
            "</main>",
            '<script>document.title = "owned"</script><style>main { display: none }</style><img'
            ' src="x.png"></main>',
        ),
        encoding="utf-8",
    )
    with Visit(browser, tampered) as visit:
        assert visit.page.title() != "owned"
        assert visit.page.locator("main").is_visible()
        assert len(visit.complaints) >= 3
        assert visit.requests == [tampered.as_uri()]
        assert [address.rpartition("/")[2] for address in visit.blocked] == ["x.png"]


def test_a_hostile_fleet_changes_nothing_but_text(browser, tmp_path):
    texts = {
        name: text[:5000].encode("utf-8", "replace").decode()
        for name, text in hostile.TEXTS.items()
    }
    findings = [
        fleets.finding(
            text[:60],
            text,
            "critical",
            text,
            text,
            text,
            remedy={"person": text},
            sources=[{"url": text, "says": text}],
        )
        for text in texts.values()
    ]
    folder = fleets.write_run(
        tmp_path / "run",
        fleets.document(findings, {"ok": len(texts)}),
        [fleets.node(text, [text], {}) for text in texts.values()],
    )
    (folder / "report.html").write_text(render_html(folder), encoding="utf-8")
    with Visit(browser, folder / "report.html", "phone") as visit:
        assert visit.complaints == []
        assert visit.requests == [(folder / "report.html").as_uri()]
        assert visit.page.locator("article.finding").count() == len(texts)
        assert visit.page.evaluate("document.scripts.length") == 1
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"][0]


def test_the_filter_finds_a_host_inside_a_folded_set(browser, report):
    with Visit(browser, report) as visit:
        visit.page.get_by_label("Filter").fill("gpu008")
        shown = visit.page.locator("article.finding:visible h3").all_inner_texts()
        assert shown == ["An RDMA port is down"]
        visit.page.get_by_label("Filter").fill("no such thing")
        assert visit.page.get_by_text("Nothing on this page matches.").is_visible()
        visit.page.get_by_label("Filter").fill("")
        assert visit.page.locator("article.finding:visible").count() == 12


def test_the_filter_moves_headline_map_cards_and_drawings_together(browser, report):
    with Visit(browser, report) as visit:
        page = visit.page
        page.keyboard.press("/")
        page.keyboard.type("gpu004")
        assert page.locator("h1").inner_text().strip() == "1 error cause on gpu004"
        assert page.locator("article.finding:visible h3").all_inner_texts() == ["An NVLink is down"]
        assert page.locator("#fleet a:not(.out)").count() == 1
        assert page.locator("figure.joined:visible").count() == 1
        assert (
            page.locator("#left").inner_text()
            == "Left: 1 of 12 causes, 1 of 27 nodes, 1 of 6 drawings"
        )
        page.keyboard.press("Escape")
        assert (
            page.locator("h1").inner_text().strip()
            == "2 critical causes and 9 lesser on 24 of 27 nodes"
        )
        page.get_by_label("Filter").fill("gpu[001-004] nccl_timeout")
        assert page.locator("h1").inner_text().strip() == "1 warning cause on gpu001"
        page.get_by_label("Filter").fill("gpu015")
        assert page.get_by_text("gpu015 healthy.").is_visible()
        assert page.locator("article.finding:visible").count() == 0
        assert visit.complaints == []


def test_the_filter_moves_smoke_tests_and_their_bandwidth_too(browser, report):
    with Visit(browser, report) as visit:
        tests, rows = (
            visit.page.locator("details.smoke:visible"),
            visit.page.locator(".heat tbody tr:visible"),
        )
        assert (tests.count(), rows.count()) == (2, 2)
        assert visit.page.locator("details.smoke[open] svg.timeline").count() == 1
        visit.page.get_by_label("Filter").fill("gpu[001-003]")
        assert (tests.count(), rows.count(), rows.first.locator("code").inner_text()) == (
            1,
            1,
            "gpu001",
        )
        visit.page.get_by_label("Filter").fill("gpu002")
        assert (tests.count(), rows.count()) == (0, 0)


def test_severities_are_buttons_and_words_that_filter_severities(browser, report):
    with Visit(browser, report) as visit:
        page = visit.page
        button = page.get_by_role("button", name="nodes critical")
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert (
            page.locator("article.finding:visible").count()
            == page.locator("article.finding.critical").count()
            == 2
        )
        assert page.locator("#fleet a:not(.out)").count() == 9
        button.click()
        page.get_by_label("Filter").fill("critical")
        assert page.locator("article.finding:visible").count() == 2
        page.get_by_label("Filter").fill("")
        page.get_by_role("button", name="unread").click()
        assert page.locator("#fleet a:not(.out)").count() == 2
        assert page.locator("article.finding:visible h3").all_inner_texts() == [
            "A node did not answer",
            "A node did not finish in time",
        ]


def test_the_counter_of_healthy_nodes_shows_those_nodes(browser, report):
    """Healthy means no finding above info: nodes with findings of severity info are included."""
    with Visit(browser, report) as visit:
        page = visit.page
        page.get_by_role("button", name="3 nodes healthy").click()
        shown = page.locator("details.nodes tr[data-k]:visible")
        assert sorted(shown.locator("th").all_inner_texts()) == ["gpu003", "gpu011", "gpu015"]
        assert set(shown.evaluate_all("rows => rows.map((row) => row.dataset.k)")) <= {
            "unknown",
            "ok",
        }
        assert page.locator("article.finding:visible:not(.info)").count() == 0
        assert page.locator("h1").inner_text().strip() == "gpu003, gpu011, gpu015 healthy"
        assert (
            page.locator("h1 use").get_attribute("href") == "#g-ok"
            and "ok" in page.locator(".verdict").get_attribute("class").split()
        )
        assert "show=healthy" in page.url
        page.get_by_role("button", name="Show all").click()
        assert page.locator("h1 use").get_attribute("href") == "#g-critical"


@pytest.mark.parametrize(("size", "scheme"), EACH_ONCE)
def test_headline_counters_map_and_terminal_speak_of_the_same_things(browser, report, size, scheme):
    findings = five_situations.fleet()[0]
    line = next(
        line for line in render_screen(findings, 100).splitlines() if re.match(r"\d+ nodes: ", line)
    )
    nodes = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (critical|error|warning|unread|healthy)", line)
    }
    causes = Counter(one["severity"] for one in findings["causes"])
    with Visit(browser, report, size, scheme) as visit:
        page = visit.page
        said = [int(number) for number in re.findall(r"\d+", page.locator("h1").inner_text())]
        assert said == [
            causes["critical"],
            causes["error"] + causes["warning"],
            sum(nodes.values()) - nodes["healthy"],
            sum(nodes.values()),
        ]
        counters = [
            " ".join(one.split()) for one in page.locator(".verdict button").all_inner_texts()
        ]
        assert [
            one for one in counters if re.fullmatch(r"\d+ nodes? (critical|error|warning)", one)
        ] == [
            f"{nodes[one]} nodes {one}" for one in ("critical", "error", "warning") if one in nodes
        ]
        assert (
            any(one.startswith(f"{nodes['unread']} nodes unread") for one in counters)
            and f"{nodes['healthy']} nodes healthy" in counters
        )
        kinds = Counter(
            page.locator("#fleet a use").evaluate_all(
                "marks => marks.map((mark) => mark.getAttribute('href').slice(3))"
            )
        )
        assert {kind: kinds[kind] for kind in ("critical", "error", "warning")} == {
            kind: nodes.get(kind, 0) for kind in ("critical", "error", "warning")
        }
        assert (
            kinds["ok"] + kinds["unknown"] == nodes["healthy"]
            and kinds.total() == sum(nodes.values())
            and not kinds["info"]
        )
        assert line in " ".join(page.locator("#fleet").inner_text().split())
        assert page.locator("h1 use").get_attribute("href") == "#g-critical"


@pytest.mark.parametrize(("size", "scheme"), EACH_ONCE)
def test_remarks_are_one_line_each_at_the_end_and_their_nodes_are_green(
    browser, tmp_path, size, scheme
):
    hosts = [f"gpu{number:03d}" for number in range(9)]
    remarks = [
        fleets.finding(
            f"r{rule}", host, "info", f"A remark of rather many words, number {rule}", "e", "f"
        )
        for rule in range(3)
        for host in hosts[:4]
    ]
    fault = fleets.finding("fault", "gpu000", "critical", "A GPU is lost", "e", "f")
    page = tmp_path / "page.html"
    page.write_text(
        render_page(
            fleets.document([fault, *remarks], {"ok": 9}),
            {},
            [summarise_node(fleets.node(host, ["all"], {})) for host in hosts],
        )
    )
    with Visit(browser, page, size, scheme) as visit:
        assert visit.page.locator("h1").inner_text().strip() == "1 critical cause on 1 of 9 nodes"
        assert visit.page.locator(".findings > article.info").count() == 0
        lines = visit.page.locator("#remarks article.info")
        assert [
            round(lines.nth(place).bounding_box()["height"]) <= 50 for place in range(lines.count())
        ] == [True] * 3
        assert [
            visit.page.locator(f"#fleet a use[href='#g-{kind}']").count()
            for kind in ("critical", "ok", "info")
        ] == [1, 8, 0]
        visit.page.get_by_role("button", name="8 nodes healthy").click()
        assert visit.page.locator("h1").inner_text().strip() == "8 nodes healthy, 3 remarks"
        assert visit.page.locator("h1 use").get_attribute("href") == "#g-ok"
        assert not visit.page.get_by_text("A GPU is lost").first.is_visible()
        lines.first.locator("summary").first.click()
        assert lines.first.locator("dl.facts").is_visible()


@pytest.mark.parametrize(("size", "scheme"), EACH_ONCE)
def test_a_remark_of_most_healthy_nodes_is_on_no_card_and_the_filter_works_without_it(
    browser, tmp_path, size, scheme
):
    hosts = [f"gpu{number:03d}" for number in range(9)]
    usual = [
        fleets.finding("usual", host, "info", "A remark of all nodes", "e", "f") for host in hosts
    ]
    fault = fleets.finding("fault", "gpu000", "critical", "A GPU is lost", "e", "f")
    page = tmp_path / "page.html"
    page.write_text(
        render_page(
            fleets.document([*usual, fault], {"ok": 9}),
            {},
            [summarise_node(fleets.node(host, ["all"], {})) for host in hosts],
        )
    )
    with Visit(browser, page, size, scheme) as visit:
        visit.page.get_by_role("button", name="8 nodes healthy").click()
        assert visit.page.locator("h1").inner_text().strip() == "8 nodes healthy"
        assert visit.page.locator("h1 use").get_attribute("href") == "#g-ok"
        visit.page.get_by_label("Filter").fill("gpu000")
        visit.page.get_by_role("button", name="8 nodes healthy").click()
        assert visit.page.locator("h1").inner_text().strip() == "1 critical cause on gpu000"
        assert "A remark of all nodes" not in visit.page.content()
        assert visit.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_cause_names_who_acts(browser, tmp_path, scheme):
    page = tmp_path / "page.html"
    owners = ["user", "sre", "facility", "vendor"]
    faults = [
        fleets.finding(
            f"fault-{owner}", "gpu000", "critical", f"A fault of the {owner}", "e", "f", owner=owner
        )
        for owner in owners
    ]
    page.write_text(
        render_page(
            fleets.document(faults, {"ok": 1}),
            {},
            [summarise_node(fleets.node("gpu000", ["all"], {}))],
        )
    )
    with Visit(browser, page, "phone", scheme) as visit:
        shown = visit.page.locator("article.finding").all_inner_texts()
        assert [
            owner
            for owner in owners
            if [f"for: {owner}" in text for text in shown if f"A fault of the {owner}" in text]
            != [True]
        ] == []


def test_a_phone_is_not_scrolled_for_ever(browser, report):
    with Visit(browser, report, "phone") as visit:
        assert visit.page.evaluate("document.documentElement.scrollHeight") < 8000


def test_the_filter_lives_in_the_address(browser, report):
    with Visit(browser, report) as visit:
        visit.page.get_by_label("Filter").fill("dev[01-03]")
        visit.page.get_by_role("button", name="nodes critical").click()
        address = visit.page.url
        line = visit.page.locator("h1").inner_text()
    with Visit(browser, report) as visit:
        visit.page.goto(address)
        assert visit.page.get_by_label("Filter").input_value() == "dev[01-03]"
        assert visit.page.locator("h1").inner_text() == line
        assert line.strip() == "1 critical cause on dev01, dev02, dev03"
        visit.page.get_by_role("button", name="Show all").click()
        assert "?" not in visit.page.url
        assert visit.page.locator("article.finding:visible").count() == 12


def test_a_cell_of_the_map_shows_its_node_where_the_eye_is_and_leads_to_its_findings(
    browser, report
):
    with Visit(browser, report) as visit:
        visit.page.locator("a:has(text:text-is('gpu004'))").click()
        card = visit.page.get_by_role("region", name="Node gpu004")
        assert visit.page.evaluate("scrollY") == 0
        for text in ("8 × NVIDIA H200", "570.133.20", "2.26.2+cuda12.8", "6.8.0-57-generic"):
            assert card.get_by_text(text, exact=True).is_visible(), text
        assert card.locator("svg.topology line.bad").count() == 1
        assert card.get_by_text("kernel.release: 6.8.0-45-generic -> 6.8.0-57-generic").is_visible()
        card.get_by_role("link", name="An NVLink is down").click()
        assert visit.page.locator("article:target h3").inner_text() == "An NVLink is down"
        assert visit.page.locator("article:target dl.facts").is_visible()
        visit.page.keyboard.press("Escape")
        assert visit.page.locator("#node").count() == 0
        assert visit.complaints == []


def test_a_node_tells_what_was_found_on_many_of_its_gpus_once_and_its_commands_name_the_run_as_it_is_typed(
    browser, tmp_path
):
    many = [
        fleets.finding(
            "rule-of-a-gpu",
            "n1",
            "error",
            "A GPU is slow",
            "a fast one",
            f"GPU {gpu} is slow",
            where={"index": gpu},
        )
        for gpu in range(8)
    ]
    other = fleets.finding(
        "rule-of-a-node", "n1", "warning", "The clock is wrong", "UTC", "a day ahead"
    )
    run = fleets.write_run(
        tmp_path / "run",
        fleets.document([*many, other], {"ok": 1}),
        [fleets.node("n1", ["all"], {})],
    )
    page = tmp_path / "page.html"
    page.write_text(
        render_html(run, run_name="elsewhere/a-run", program=".venv/bin/unhang"), encoding="utf-8"
    )
    with Visit(browser, page) as visit:
        visit.page.locator("a:has(text:text-is('n1'))").click()
        card = visit.page.get_by_role("region", name="Node n1")
        assert card.locator(".node-findings li").all_inner_texts() == [
            "error A GPU is slow × 8",
            "warning The clock is wrong",
        ]
        # its state would repeat the first of them
        assert card.locator("> p:not(.fine)").count() == 0
        assert card.locator("code").all_inner_texts() == [
            ".venv/bin/unhang report elsewhere/a-run --host n1 -v",
            ".venv/bin/unhang history n1",
        ]
    assert ".venv/bin/unhang judge elsewhere/a-run" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_group_of_a_large_fleet_is_named_whole_and_says_how_it_stands(browser, large, size):
    with Visit(browser, large, size) as visit:
        cut = visit.page.evaluate(
            "Array.from(document.querySelectorAll('.panel figcaption')).filter((one) =>"
            " one.scrollWidth > one.clientWidth).length"
        )
        assert cut == 0
        assert (
            visit.page.evaluate(
                "Array.from(document.querySelectorAll('.panel figcaption b')).filter((one) =>"
                " one.offsetWidth > one.parentNode.clientWidth).length"
            )
            == 0
        )


def test_a_node_of_an_address_is_shown(browser, report):
    with Visit(browser, report) as visit:
        visit.page.goto(report.as_uri() + "#n3")
        assert visit.page.locator("#node h3").is_visible()


def test_without_script_everything_can_still_be_opened(browser, report):
    with Visit(browser, report, script=False) as visit:
        assert not visit.page.get_by_label("Filter").is_visible()
        lesser = visit.page.locator("article.warning").first
        lesser.locator("summary").first.click()
        assert lesser.locator("dl.facts").is_visible()
        visit.page.locator("a:has(text:text-is('gpu004'))").click()
        row = visit.page.locator("tr:target")
        assert row.is_visible()
        row.get_by_text("2 changes").click()
        assert row.get_by_text("new: error: An NVLink is down").is_visible()
        row.locator("a.n").first.click()
        assert visit.page.locator("article:target h3").inner_text() == "An NVLink is down"


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_axe_finds_nothing_serious_on_the_page(browser, report, size, scheme):
    with Visit(browser, report, size, scheme) as visit:
        visit.page.locator("#fleet a").nth(3).click()
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => { part.open = true; })"
        )
        assert axe_finds(visit) == []


def test_axe_finds_nothing_serious_on_the_map_of_a_large_fleet(browser, large):
    with Visit(browser, large) as visit:
        visit.page.locator("#fleet a").nth(3).click()
        assert axe_finds(visit, "#fleet") == []


def axe_finds(visit: Visit, part: str = "html") -> list[tuple[str, str]]:
    from axe_playwright_python.base import AXE_FILE_PATH

    visit.page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    answer = visit.page.evaluate("part => axe.run(part, { resultTypes: ['violations'] })", part)
    assert len(answer["passes"]) > 10
    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in answer["violations"]
        if one["impact"] in ("serious", "critical")
    ]


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parse = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const part = value => value / 255 <= .03928 ? value / 255 / 12.92 : ((value / 255 + .055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) => .2126 * part(red) + .7152 * part(green) + .0722 * part(blue);
  const seen = new Set(), poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest('svg, script, style') || !element.checkVisibility()) continue;
    let back = element;
    while (back && parse(getComputedStyle(back).backgroundColor)[3] < 255) back = back.parentElement;
    const front = getComputedStyle(element).color, behind = getComputedStyle(back || document.body).backgroundColor;
    if (seen.has(front + behind)) continue;
    seen.add(front + behind);
    const [dark, bright] = [light(parse(front)), light(parse(behind))].sort((one, other) => one - other);
    const ratio = (bright + .05) / (dark + .05);
    if (ratio < 4.5) poor.push(`${element.className || element.tagName} ${front} on ${behind}: ${ratio.toFixed(2)}`);
  }
  return [seen.size, poor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_told_from_its_ground(browser, report, scheme):
    with Visit(browser, report, scheme=scheme) as visit:
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => { part.open = true; })"
        )
        pairs, poor = visit.page.evaluate(CONTRAST)
        assert poor == []
        assert pairs > 5


def test_print_shows_what_was_folded_away_when_all_is_asked_for(browser, report, tmp_path):
    with Visit(browser, report) as visit:
        visit.page.get_by_label("Print everything").check()
        visit.page.emulate_media(media="print")
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.page.locator("article.info dl.facts").first.is_visible()
        assert not visit.page.get_by_label("Filter").is_visible()
        assert pages(visit.page.pdf(path=tmp_path / "page.pdf", format="A4")) > 2


def pages(pdf: bytes) -> int:
    assert pdf.startswith(b"%PDF")
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_what_is_printed_is_a_summary_of_two_pages(browser, report, large, script):
    for path in (report, large):
        with Visit(browser, path, script=script) as visit:
            visit.page.emulate_media(media="print")
            assert (
                visit.page.locator(".summary")
                .get_by_text("Driver 545.23.08 deadlocks")
                .is_visible()
            )
            assert not visit.page.locator("article.finding").first.is_visible()
            assert 1 <= pages(visit.page.pdf(format="A4")) <= 2
            assert 1 <= pages(visit.page.pdf(format="Letter")) <= 2


def test_the_printed_summary_is_of_what_the_filter_left(browser, report):
    with Visit(browser, report) as visit:
        visit.page.get_by_label("Filter").fill("gpu004")
        visit.page.emulate_media(media="print")
        assert visit.page.locator(".summary .causes tbody tr:visible b").all_inner_texts() == [
            "An NVLink is down"
        ]


def test_what_is_shown_can_be_had_as_csv_and_json(browser, report):
    with Visit(browser, report) as visit:
        visit.page.get_by_label("Filter").fill("gpu[007-008]")
        with visit.page.expect_download() as given:
            visit.page.get_by_role("button", name="as CSV").click()
        rows = list(csv.DictReader(given.value.path().read_text(encoding="utf-8").splitlines()))
        assert [(row["host"], row["severity"], row["rule"], row["expected"]) for row in rows] == [
            (host, "error", "rdma-port-down", "every port active") for host in ("gpu007", "gpu008")
        ]
        with visit.page.expect_download() as given:
            visit.page.get_by_role("button", name="as JSON").click()
        reported = json.loads(given.value.path().read_text(encoding="utf-8"))
        assert [node["node"] for node in reported["nodes"]] == ["gpu007", "gpu008"]
        assert reported["nodes"][0]["driver"] == "570.133.20"
        assert reported["asked"]["q"] == "gpu[007-008]"
        assert [finding["nodes"] for finding in reported["findings"]] == [["gpu007", "gpu008"]]
        assert visit.complaints == []
        assert visit.blocked == []


def test_a_command_is_copied_whole(browser, report):
    with Visit(browser, report) as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        command = visit.page.locator("article.critical dd.copied").first
        command.get_by_role("button", name="Copy").click()
        command.get_by_text("Copied", exact=True).wait_for()
        assert (
            visit.page.evaluate("navigator.clipboard.readText()")
            == command.locator("code").inner_text()
        )
