"""report.html as text: it loads nothing, escapes everything, stays small, and contains the
findings."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

import five_situations
import fleets
import hostile
import large_fleet
import pytest

from unhang.audit.report.html import render_html, render_page
from unhang.audit.report.run import summarise_node
from unhang.audit.report.screen import render_screen
from unhang.core.errors import UserError

VOID = {"meta", "link", "br", "wbr", "input", "img", "hr"}
SVG_VOID = {"path", "circle", "rect", "use", "line"}
LONG_TEXT = 200_000  # characters of a node's text; a page of longer ones only takes longer


class Page(HTMLParser):
    """The elements of a page, with a complaint where they do not nest."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: dict[str, str] = {}
        self.goes_on = False  # a place where a line may break does not end a word
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.goes_on = tag == "wbr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SVG_VOID, tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in ("style", "script"):
            self.raw[self.open[-1]] = self.raw.get(self.open[-1], "") + data
        elif self.goes_on and self.texts:
            self.texts[-1] += data
            self.goes_on = False
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page_of(findings, nodes, run=None) -> Page:
    return Page(render_page(findings, run or {}, [summarise_node(entry) for entry in nodes]))


def hash_of(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@pytest.fixture(scope="module")
def five() -> Page:
    return page_of(*five_situations.fleet())


def test_the_policy_allows_this_style_and_this_script_and_nothing_else(five):
    policies = [
        attrs["content"]
        for tag, attrs in five.elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    directives = dict(part.strip().split(" ", 1) for part in policies[0].split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": hash_of(five.raw["style"]),
        "script-src": hash_of(five.raw["script"]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_policy_stands_before_anything_that_it_must_govern(five):
    tags = [tag for tag, _ in five.elements]
    policy = next(
        place
        for place, (tag, attrs) in enumerate(five.elements)
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy < tags.index("style") < tags.index("script")


def test_the_page_loads_nothing_and_runs_nothing_from_elsewhere(five):
    for tag, attrs in five.elements:
        assert tag not in (
            "img",
            "link",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "video",
            "audio",
            "image",
            "foreignobject",
        ), tag
        assert not {"src", "srcset", "style", "xlink:href", "ping", "background"} & set(attrs), (
            tag,
            attrs,
        )
        assert not [name for name in attrs if name.startswith("on")]
        if tag == "use":
            assert attrs["href"].startswith("#g-")
        elif "href" in attrs:
            assert attrs["href"].startswith(("#", "https://"))
            assert attrs["href"].startswith("#") or "noreferrer" in attrs["rel"]
    assert "@import" not in five.raw["style"]
    assert "url(" not in five.raw["style"]


def test_every_link_inside_the_page_leads_somewhere_and_no_id_is_given_twice(five):
    names = [attrs["id"] for _, attrs in five.elements if "id" in attrs]
    assert len(names) == len(set(names))
    for _, attrs in five.elements:
        for name in (
            (attrs.get("href") or "").removeprefix("#").split()
            if (attrs.get("href") or "").startswith("#")
            else []
        ):
            assert name in names
        for name in (attrs.get("aria-labelledby") or "").split():
            assert name in names


def test_the_page_says_what_where_and_what_to_do(five):
    findings = five_situations.fleet()[0]["findings"]
    for finding in findings:
        assert finding["rule"] in five.text
        if finding["verdict"] == "fail":
            assert finding["title"] in five.text
            assert finding["expected"] in five.text
    for text in (
        "dev[01-08] (8 nodes)",
        "gpu004: GPU 5",
        "apply role gpu_driver with driver.version: 535.154.05",
        "check cable and switch port",
        "needs root to read PCI configuration space",
        "image is rebuilt on Monday, by ops until 2026-03-09",
        "2 critical causes and 9 lesser on 24 of 27 nodes",
        "17 of 18 NVLinks active",
    ):
        assert text in five.text, text


def test_a_cause_names_all_its_nodes_also_those_on_which_its_rule_found_it_in_other_words():
    same = {"remedy": {"role": "gpu_driver", "policy": {"driver": {"min": "580.65.06"}}}}
    findings = [
        fleets.finding(
            "deadlock", host, "critical", "A driver deadlocks", "e", f"loaded on {gpus}", **same
        )
        for host, gpus in (("n1", 2), ("n2", 2), ("n3", 8))
    ]
    page = page_of(fleets.document(findings, {"ok": 3}), [])
    assert page.text.index("n[1-2] (2 nodes)") < page.text.index("n3") < page.text.index("Expected")


def test_a_set_of_nodes_ends_a_line_after_a_comma_alone():
    hosts = [f"gpu{number:05d}" for number in range(7, 900, 53)]
    made = fleets.document(
        [fleets.finding("r", host, "error", "t", "e", "f") for host in hosts], {"ok": len(hosts)}
    )
    page = render_page(
        made, {}, [summarise_node(fleets.node(host, ["all"], None)) for host in hosts]
    )
    sets = re.findall(r"<code>(gpu\[.*?\])", page)
    assert len(sets) >= 3
    assert all(one.count(",") == one.count(",<wbr>") > 3 for one in sets)


def test_nodes_are_counted_as_on_the_terminal(five):
    line = next(
        line
        for line in render_screen(five_situations.fleet()[0], 100).splitlines()
        if line.startswith("27 nodes: ")
    )
    assert line in five.text


def test_the_headline_counts_the_nodes_that_the_terminal_does_not_call_healthy():
    findings, nodes = large_fleet.fleet(400)
    healthy, informed = (
        findings["node_verdicts"]["healthy"],
        {one["host"] for one in findings["findings"] if one["severity"] == "info"},
    )
    assert informed & {*healthy}  # info alone
    page = render_page(findings, {}, [summarise_node(node) for node in nodes])
    assert re.search(r"<h1 id=\"headline\">.* on (\d+) of 400 nodes</span>", page)[1] == str(
        400 - len(healthy)
    )
    info = [one for one in findings["findings"] if one["severity"] == "info"]
    page = render_page(fleets.document(info, {"ok": 400}), {}, [])
    assert (
        re.search(r"<span>400 nodes healthy, \d+ remarks?</span>", page)
        and 'class="verdict ok"' in page
    )


def test_a_healthy_node_that_only_a_faulty_one_sets_apart_is_healthy_and_its_row_names_no_finding():
    findings = fleets.compared_with_a_faulty_node()
    rows = [
        attrs
        for tag, attrs in page_of(
            findings, [fleets.node(host, [], {}) for host in ("gpu1", "gpu2")]
        ).elements
        if "data-n" in attrs
    ]
    assert [(attrs["data-k"], attrs["data-n"]) for attrs in rows] == [
        ("critical", "1 2"),
        ("ok", ""),
    ]


def test_a_remark_of_most_healthy_nodes_is_on_no_card_and_in_no_row():
    hosts = [f"n{number}" for number in range(4)]
    usual = [fleets.finding("usual", host, "info", "A remark of all", "e", "f") for host in hosts]
    fault = fleets.finding("fault", "n0", "error", "A fault", "e", "f")
    page = page_of(
        fleets.document([*usual, fault], {"ok": 4}), [fleets.node(host, [], {}) for host in hosts]
    )
    assert [attrs["data-n"] for _, attrs in page.elements if "data-n" in attrs] == ["1", "", "", ""]
    assert [attrs["id"] for tag, attrs in page.elements if tag == "article"] == ["f1"]
    assert "A remark of all" not in page.text


def test_every_node_has_a_cell_with_a_shape_and_a_row(five):
    nodes = five_situations.fleet()[1]
    cells = [
        attrs["href"]
        for tag, attrs in five.elements
        if tag == "a" and re.fullmatch(r"#n\d+", attrs.get("href") or "")
    ]
    assert len(cells) == len(set(cells)) == len(nodes)
    rows = {attrs["id"] for tag, attrs in five.elements if tag == "tr" and "id" in attrs}
    assert {cell[1:] for cell in cells} == rows


def test_tables_have_headers_and_pictures_have_words(five):
    headings = [int(tag[1]) for tag, _ in five.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(headings))
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in five.elements if tag == "th")
    assert all(
        attrs.get("aria-label") or attrs.get("aria-hidden") == "true"
        for tag, attrs in five.elements
        if tag == "svg"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [text[:LONG_TEXT] for text in hostile.TEXTS.values()], ids=hostile.TEXTS.keys()
)
def test_nothing_that_a_node_says_becomes_markup(text):
    made = fleets.h200()
    made["gpus"]["model"] = made["driver"]["loaded"]["version"] = made["kernel"]["release"] = made[
        "nccl"
    ]["libraries"][0]["version"] = made["interconnect"]["fabric_state"] = text
    made["network"]["rdma"][0].update(
        name=text, ports=[{"port": 1, "state": text, "link_layer": text}]
    )
    made["interconnect"]["pairs"][0]["read"] = text
    made[text[:50]] = {"probe": {"status": text}}
    findings = [
        *fleets.findings_that_say(text),
        fleets.finding(
            text[:60],
            None,
            "error",
            text,
            text,
            text,
            scope="group",
            hosts=[text],
            group=text,
            remedy={"role": text, "policy": {text[:9]: {text[:9]: text}}},
            comparison={"majority": None, "counts": [{"value": text, "count": 1, "hosts": [text]}]},
        ),
    ]
    nodes = [fleets.node(text, [text], made), fleets.node("b" + text, [text], None, "failed", text)]
    page = page_of(
        fleets.document(findings, {"ok": 1, "failed": 1}, id=text, started=text),
        nodes,
        {"inventory": [text], "limit": text, "controller": {"unhang": text}},
    )
    harmless = page_of(fleets.document(findings, {"ok": 1, "failed": 1}), [])
    assert page.raw == harmless.raw
    assert not page.open
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "doctype", "alert"}
    assert [tag for tag, _ in page.elements].count("script") == 1
    for tag, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        assert not (attrs.get("href") or "#").startswith(("javascript:", "data:", "http:"))
        for value in attrs.values():
            assert (value or "").isprintable() or tag == "meta"
    assert all(letter.isprintable() or letter == "\n" for part in page.texts for letter in part)


def test_what_a_cause_accounts_for_stands_folded_under_it_with_one_command():
    findings = [
        fleets.finding(
            "xid-fatal",
            "n1",
            "critical",
            "A GPU is lost",
            "no Xid",
            "Xid 79",
            remedy={"person": "return the card"},
        ),
        fleets.finding("gpu-gives-no-handle", "n1", "critical", "No handle", "a handle", "lost"),
        fleets.finding("gpu-gives-no-handle", "n2", "critical", "No handle", "a handle", "lost"),
    ]
    explains = {"xid-fatal": frozenset({"gpu-gives-no-handle"})}
    page = page_of(
        fleets.document(findings, {"ok": 2}, explains=explains),
        [fleets.node(host, [], {}) for host in ("n1", "n2")],
    )
    articles = [
        (attrs["id"], "nested" in (attrs["class"] or ""))
        for tag, attrs in page.elements
        if tag == "article"
    ]
    assert articles == [("f1", False), ("f2", True), ("f3", False)]
    assert "It accounts for 1 more finding" in page.text
    assert page.text.count("Run unhang explain xid-fatal") == 1
    rows = {
        attrs["id"]: attrs["data-n"]
        for tag, attrs in page.elements
        if tag == "tr" and "data-n" in attrs
    }
    assert sorted(len((numbers or "").split()) for numbers in rows.values()) == [1, 2]


def test_a_policy_that_two_causes_want_is_merged_into_one_answer():
    asked = [("one", {"driver": {"min": "535.1"}}), ("two", {"driver": {"min": "580.65.06"}})]
    findings = [
        fleets.finding(
            rule, "n1", "error", rule, "e", "f", remedy={"role": "gpu_driver", "policy": policy}
        )
        for rule, policy in asked
    ]
    text = page_of(fleets.document(findings, {"ok": 1}), [fleets.node("n1", [], {})]).text
    assert text.count("apply role gpu_driver with driver.min: 580.65.06") >= 2
    assert "driver.min: 535.1" not in text


def test_a_command_that_would_be_cut_is_not_shown():
    hosts = [f"a-node-with-a-long-name-{number * 7:05d}.example.org" for number in range(900)]
    findings = [
        fleets.finding("r", host, "error", "t", "e", "f", remedy={"role": "gpu_binding"})
        for host in hosts
    ]
    text = page_of(
        fleets.document(findings, {"ok": 900}), [fleets.node(host, [], {}) for host in hosts]
    ).text
    assert "unhang remediate" not in text
    assert "the command with all its hosts is in findings.json" in text


def test_a_large_fleet_is_sorted_by_harm_of_its_groups_and_by_rack():
    def group(number: int) -> list[str]:
        return ["workstations"] if number < 20 else ["production", f"rack{number // 10}"]

    nodes = [fleets.node(f"n{number}", group(number), {}) for number in range(120)]
    nodes[105] = fleets.node("n105", group(105), None, "unreachable", "no route")
    findings = [
        fleets.finding("idle", f"n{number}", "error", "t", "e", "f") for number in range(20)
    ]
    page = page_of(fleets.document(findings, {"ok": 119, "unreachable": 1}), nodes)
    names = [attrs["title"] for tag, attrs in page.elements if tag == "figcaption"]
    assert [(name or "").split(" ")[:2] for name in names] == [
        ["production,", f"rack{number}"] for number in range(2, 12)
    ] + [["workstations", "20"]]
    cells = [
        attrs
        for tag, attrs in page.elements
        if tag == "a" and attrs.get("class") in ("down", "ok", "error")
    ]
    assert [cell["title"] for cell in cells if cell["class"] == "down"] == ["n105: unreachable"]
    assert len(cells) == 120


def test_source_links_are_https_or_plain_text():
    sources = [
        {"url": url, "says": "s"}
        for url in (
            "https://example.org/a?b=c&d",
            "http://example.org/",
            "javascript:alert(1)",
            "//example.org",
            "https://",
            "https://exa mple.org",
            "https://[",
        )
    ]
    page = page_of(
        fleets.document(
            [fleets.finding("r", "n", "error", "t", "e", "f", sources=sources)], {"ok": 1}
        ),
        [],
    )
    assert [attrs["href"] for _, attrs in page.elements if "rel" in attrs] == [
        "https://example.org/a?b=c&d"
    ]


def test_a_page_of_ten_thousand_nodes_would_stay_under_eight_megabytes():
    sizes = []
    for count in (100, 300):
        findings, nodes = large_fleet.fleet(count)
        sizes.append(
            len(render_page(findings, {}, [summarise_node(entry) for entry in nodes]).encode())
        )
    assert (sizes[1] - sizes[0]) / 200 < 700  # 10,000 nodes stay under 8 MB


def test_topologies_are_drawn_for_troubled_nodes_and_one_of_each_group(five):
    drawn = [
        attrs["aria-label"]
        for tag, attrs in five.elements
        if tag == "svg" and attrs.get("class") == "topology"
    ]
    assert len(drawn) == 6
    assert "gpu004: GPU 5: 17 of 18 NVLinks active" in drawn[0] + drawn[1] + drawn[2] + drawn[3]
    assert [label.endswith("nothing is down") for label in drawn] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("findings", "nodes", "text"),
    [
        (fleets.document([], {}), [], "No nodes: the inventory or the limit names none"),
        (fleets.document([], {"ok": 1}), [fleets.node("n1", [], {})], "1 node healthy"),
        (
            fleets.document([], {"ok": 1}),
            [fleets.node("n1", ["all"], {"gpus": {"probe": {"status": "timeout"}}})],
            "not read: gpus (timeout)",
        ),
    ],
)
def test_a_run_without_findings_has_a_page_too(findings, nodes, text):
    assert text in page_of(findings, nodes).text


def test_a_host_that_was_never_asked_is_on_the_page(tmp_path):
    folder = fleets.write_run(
        tmp_path / "run", fleets.document([], {"ok": 1, "missing": 1}), [fleets.node("n1", [], {})]
    )
    (folder / "run.json").write_text(
        (folder / "run.json").read_text().replace('["n1"]', '["n1", "n2"]')
    )
    text = Page(render_html(folder)).text
    assert "n2 never asked: the audit ended before it asked this node" in text


@pytest.mark.parametrize(
    "text", ["{", "[]", "", "\x00", '{"schema": "unhang/node/1"}', "[" * 100_000]
)
def test_a_node_file_that_is_none_costs_only_itself(tmp_path, text):
    folder = fleets.write_run(tmp_path / "run", *five_situations.fleet())
    (folder / "nodes" / "99999.json").write_text(text)
    assert "dev[01-08] (8 nodes)" in Page(render_html(folder)).text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "unhang judge"),
        ("{", "is not JSON"),
        ("[]", "is of schema 'list'"),
        ('{"schema": "unhang/findings/9"}', "is of schema 'unhang/findings/9'"),
    ],
)
def test_a_run_that_was_not_judged_says_what_to_type(tmp_path, text, message):
    if text is not None:
        (tmp_path / "findings.json").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        render_html(tmp_path)
