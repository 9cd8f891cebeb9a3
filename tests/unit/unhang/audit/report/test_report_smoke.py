"""Smoke tests on the page: the timeline of the phases, the heat map of bandwidth, and files that
are no results."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import fleets
import hostile
import page_smoke
import pytest

from unhang.audit.report.html import render_html
from unhang.audit.report.smoke_results import (
    Member,
    Phase,
    SmokeResult,
    SmokeTests,
    read_smoke_tests,
)
from unhang.audit.report.smoke_view import LABEL, level_of, smoke_view, timeline
from unhang.cli import main
from unhang.core.run.record import Bandwidth


def result(host="n1", verdict="pass", **more):
    return SmokeResult(verdict, more.pop("ranks", 8), [Member(host)], **more)


def test_phases_stand_one_after_another_each_as_long_as_it_took():
    phases = [
        Phase("environment", "ok", 6.0, {"import torch": 4.0, "": 1.0}),
        Phase("build", "skip", 0.0),
        Phase("ddp", "stall", 2.0),
    ]
    bars = timeline(result(phases=phases)).bars
    assert [(bar.name, bar.kind) for bar in bars] == [
        ("environment", "ok"),
        ("build", "skip"),
        ("ddp", "bad"),
    ]
    assert (bars[0].x, bars[2].x - LABEL) == (LABEL, bars[0].width)
    assert bars[2].width * 3 == pytest.approx(bars[0].width)
    assert [bar.summary for bar in bars] == ["6.0 s, import torch 4.0 s", "skip", "✕ stall, 2.0 s"]
    assert timeline(result()) is None and timeline(result(phases=[Phase("x", "ok", 0.0)])) is None


@pytest.mark.parametrize(
    ("value", "level"), [(0, 0), (49, 0), (50, 1), (80, 2), (90, 3), (97, 4), (120, 4)]
)
def test_a_level_is_a_part_of_the_whole(value, level):
    assert level_of(value, 100) == level
    assert level_of(value, 0) == 4


def test_tests_of_as_many_ranks_stand_beside_each_other_the_slowest_first():
    many = [
        result(
            f"n{number}",
            bandwidth=[Bandwidth("all_reduce", 1 << 30, 70.0 if number == 2 else 360.0)],
        )
        for number in range(4)
    ]
    judged = result(
        "odd", ranks=4, bandwidth=[Bandwidth("all_reduce", 1 << 30, 99.0, 340.0, "fail")]
    )
    few, eight = smoke_view(SmokeTests((*many, judged))).tables
    assert [(row.hosts, [cell.level for cell in row.cells]) for row in eight.rows] == [
        (("n2",), [0]),
        (("n0",), [4]),
        (("n1",), [4]),
        (("n3",), [4]),
    ]
    assert (eight.columns, few.ranks, few.rows[0].cells[0].level) == (("all_reduce 1 GiB",), 4, 0)


def test_what_failed_stands_first_and_is_open():
    phases = [Phase("ddp", "ok", 1.0)]
    view = smoke_view(
        SmokeTests(
            tuple(
                result(f"n{number}", "fail" if number == 15 else "pass", phases=phases)
                for number in range(20)
            ),
            unread=3,
        )
    )
    assert [(test.hosts, test.is_open) for test in view.tests[:3]] == [
        (("n15",), True),
        (("n0",), False),
        (("n1",), False),
    ]
    assert (len(view.tests), view.undrawn, view.notes) == (12, 8, ("3 older results not read",))
    assert smoke_view(SmokeTests(())) is None


def test_results_of_a_rollout_of_the_gate_and_of_a_file_are_read_and_what_is_none_costs_only_itself(
    tmp_path,
):
    page_smoke.write_results(
        tmp_path, page_smoke.result("gpu001"), page_smoke.result("gpu004", 3, 0.5)
    )
    (tmp_path / "smoke" / "20260302T031401Z" / "group" / "result.json").rename(
        tmp_path / "given.json"
    )
    (tmp_path / "smoke" / "20260302T031401Z" / "group" / "result.json").write_text('{"verdict": 5}')
    alone = {
        host: {"verdict": "pass", "hosts": [host], "world_size": 8, "bandwidth": []}
        for host in ("gpu001", "gpu009")
    }
    (tmp_path / "gate.json").write_text(
        json.dumps({"smoke": {"alone": {**alone, "gpu010": None}, "together": None}})
    )
    found = read_smoke_tests(tmp_path, [tmp_path / "given.json"])
    assert [[member.host for member in one.hosts] for one in found.results] == [
        ["gpu004"],
        ["gpu001"],
        ["gpu009"],
    ]
    (fault,) = found.faults
    assert " is not a result of the smoke test: " in fault and "\n" not in fault


def test_nothing_that_a_smoke_test_says_becomes_markup(tmp_path):
    folder = fleets.write_run(
        tmp_path / "run", fleets.document([], {"ok": 1}), [fleets.node("n1", ["all"], None)]
    )
    texts = [text[:2000].encode("utf-8", "replace").decode() for text in hostile.TEXTS.values()]
    made = []
    for text in texts:
        one = page_smoke.result(text, 3, 0.5)
        one["phases"][0] |= {"name": text, "status": text, "steps": {text: 5.0}}
        one["bandwidth"][0]["op"] = one["suspects"][0]["why"] = one["group"]["gpu"] = text
        made.append(one)
    page_smoke.write_results(folder, *made)
    page, seen = render_html(folder), []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.append((tag, attrs))
    parser.feed(page)
    tags = [tag for tag, _ in seen]
    assert tags.count("script") == 1 and "img" not in tags and "rect" in tags
    assert [
        name for _, attrs in seen for name, _ in attrs if name.startswith("on") or name == "style"
    ] == []
    assert all(character.isprintable() or character == "\n" for character in page)


def test_a_file_of_a_smoke_test_is_shown_on_the_page_alone(tmp_path, capsys):
    folder = fleets.write_run(
        tmp_path / "run", fleets.document([], {"ok": 1}), [fleets.node("n1", ["all"], None)]
    )
    (tmp_path / "one.json").write_text(json.dumps(page_smoke.result("gpu004", 3, 0.5)))
    assert (
        main(
            [
                "report",
                str(folder),
                "--smoke",
                str(tmp_path / "one.json"),
                "-o",
                "html",
                "--out",
                "-",
            ]
        )
        == 0
    )
    assert 'class="timeline"' in capsys.readouterr().out
    assert main(["report", str(folder), "--smoke", str(tmp_path / "one.json")]) == 2
    assert "--smoke needs --format html" in capsys.readouterr().err
