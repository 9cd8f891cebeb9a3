"""Durations of steps are stored when a rollout ends, and the next plan uses them."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from rollout_plans import planned

from unhang.act.plan.description import describe_steps
from unhang.act.plan.plan_document import Plan, Remedy, StepMinutes
from unhang.act.plan.planning import step_minutes
from unhang.act.rollout.step_durations import (
    FILE,
    LONGEST_S,
    MOST_DURATIONS,
    MOST_ROLLOUTS,
    SCHEMA,
    durations_of,
    keep_durations,
    measured_steps,
)
from unhang.act.rollout.steps import BEGUN, DONE, FAILED, Entry

FRAME = (("lock", 10), ("drain", 5), ("save", 5), ("audit", 30), ("release", 10))


@pytest.fixture
def plan(tmp_path):
    """A node with one role and a node with two."""
    example = planned(tmp_path)
    one, two = (
        dataclasses.replace(example.hosts[0], host=host, remedies=remedies)
        for host, remedies in (("one", remedies(1)), ("two", remedies(2)))
    )
    return Plan(example.run, example.day, example.limits, (one, two), ())


def remedies(count):
    return tuple(Remedy(role, {}, ("rule",)) for role in ("gpu_driver", "host_tuning")[:count])


def at(seconds):
    return f"2026-11-20T10:{seconds // 60:02d}:{seconds % 60:02d}Z"


def journal(host, *steps, status=DONE, evidence=None):
    """Entries of steps, one after the other, each of so many seconds."""
    entries, clock = [], 0
    for step, seconds in steps:
        entries.append(Entry(at(clock), host, step, BEGUN))
        clock += seconds
        entries.append(Entry(at(clock), host, step, status, evidence=evidence or {}))
    return entries


def test_what_each_node_took_is_kept_under_the_names_of_the_table(plan):
    entries = [
        *journal(
            "one",
            *FRAME,
            ("smoke_before", 20),
            ("apply", 200),
            ("reboot", 240),
            ("smoke_alone", 30),
        ),
        *journal("two", ("apply", 300), ("reboot", 100)),
    ]
    assert durations_of(entries, plan) == {
        "frame": [60],
        "gpu_driver": [200],
        "reboot": [100, 240],
        "smoke": [20, 30],
    }
    assert set(durations_of(entries, plan)) <= set(step_minutes([]))


@pytest.mark.parametrize(
    "entries",
    [
        journal("one", ("reboot", 200), status=FAILED),
        [Entry(at(0), "one", "reboot", BEGUN), *journal("one", ("reboot", 200))],
        journal("one", ("smoke_alone", 1), evidence={"skipped": "unhang_smoke is false"}),
        [Entry(at(60), "one", "reboot", BEGUN), Entry(at(0), "one", "reboot", DONE)],
        [
            Entry("2026-11-20T10:00:00Z", "one", "reboot", BEGUN),
            Entry("2026-11-22T10:00:00Z", "one", "reboot", DONE),
        ],
        journal("somebody else", ("reboot", 200)),
    ],
    ids=[
        "failed",
        "begun twice",
        "skipped",
        "a clock set back",
        "a clock set forward",
        "no host of the plan",
    ],
)
def test_what_is_no_measurement_is_not_kept(plan, entries):
    assert durations_of(entries, plan) == {}


def test_a_step_that_took_no_time_or_a_whole_day_is_a_measurement_and_a_frame_without_one_of_its_five_is_none(
    plan,
):
    assert durations_of(journal("one", ("reboot", 0)), plan) == {"reboot": [0]}
    day = [
        Entry("2026-11-20T10:00:00Z", "one", "reboot", BEGUN),
        Entry("2026-11-21T10:00:00Z", "one", "reboot", DONE),
    ]
    assert durations_of(day, plan) == {"reboot": [LONGEST_S]}
    for missing in range(len(FRAME)):
        assert durations_of(journal("one", *FRAME[:missing], *FRAME[missing + 1 :]), plan) == {}


def test_the_file_has_its_time_to_the_second_and_its_steps_in_order(plan, tmp_path):
    keep_durations(
        tmp_path, plan, journal("one", *FRAME, ("smoke_alone", 1), ("reboot", 2)), at(59)
    )
    kept = json.loads((tmp_path / FILE).read_text())
    assert (kept["schema"], kept["ended"], list(kept["seconds"].items())) == (
        SCHEMA,
        at(59),
        [("frame", [60]), ("reboot", [2]), ("smoke", [1])],
    )


def kept(runs, name, ended, seconds, **other):
    """A rollout's file, as it may be found."""
    (runs / name).mkdir(parents=True)
    (runs / name / FILE).write_text(
        json.dumps({"schema": SCHEMA, "ended": ended, "seconds": seconds, **other})
    )


def test_a_plan_counts_with_the_median_of_rollouts_that_ended_before_its_audit(plan, tmp_path):
    runs = tmp_path / "runs"
    for name, seconds, ended in (
        ("a", 60, "2026-11-01T00:00:00Z"),
        ("b", 180, "2026-11-02T00:00:00Z"),
        ("c", 600, "2026-11-04T23:59:59Z"),
        ("just then", 6, "2026-11-05T00:00:00Z"),
        ("later", 6, "2026-11-09T00:00:00Z"),
    ):
        (runs / name).mkdir(parents=True)
        keep_durations(runs / name, plan, journal("one", ("reboot", seconds)), ended)
    measured = measured_steps(runs, "2026-11-05T00:00:00Z")
    assert measured == [StepMinutes("reboot", 3.0, 3)]
    steps = step_minutes(measured)
    assert (steps["reboot"], steps["smoke"], steps["kernel"].minutes) == (
        StepMinutes("reboot", 3.0, 3),
        StepMinutes("smoke", 0.5),
        None,
    )
    shown = dataclasses.replace(plan, steps=(steps["reboot"], steps["smoke"], steps["kernel"]))
    assert (
        describe_steps(shown)
        == "reboot 3 (measured here, 3 times), smoke 0.5 (assumed), kernel unknown"
    )
    assert (
        measured_steps(tmp_path / "nothing", "2026-11-05T00:00:00Z")
        == measured_steps(runs, "no time")
        == []
    )


def test_minutes_have_one_decimal_steps_are_in_order_and_a_step_without_a_duration_is_none(
    tmp_path,
):
    kept(tmp_path, "a", "2026-11-01T00:00:00Z", {"smoke": [20], "reboot": [100], "kernel": []})
    assert measured_steps(tmp_path, "2026-11-05T00:00:00Z") == [
        StepMinutes("reboot", 1.7, 1),
        StepMinutes("smoke", 0.3, 1),
    ]


def test_the_newest_rollouts_count_and_older_ones_no_more(tmp_path):
    older = MOST_ROLLOUTS - 1
    for number in range(older + MOST_ROLLOUTS):  # the oldest have the names that sort last
        kept(
            tmp_path,
            f"{999 - number}",
            f"2026-11-01T{number // 60:02d}:{number % 60:02d}:00Z",
            {"reboot": [600 if number < older else 60]},
        )
    assert measured_steps(tmp_path, "2026-11-05T00:00:00Z") == [
        StepMinutes("reboot", 1.0, MOST_ROLLOUTS)
    ]


@pytest.mark.parametrize(
    "found",
    [
        {"seconds": {"reboot": ["long"]}},
        {"seconds": {"reboot": [1.5]}},
        {"seconds": {"reboot": [True]}},
        {"seconds": {"reboot": [-1]}},
        {"seconds": {"reboot": [LONGEST_S * len(FRAME) + 1]}},
        {"seconds": {"reboot": 5}},
        {"seconds": {"reboot": {"5": 5}}},
        {"seconds": [["reboot", [5]]]},
        {"schema": "unhang/step-durations/9"},
        {"ended": "yesterday"},
        {"ended": 5},
        {"ended": None},
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over_and_the_others_count(tmp_path, found):
    kept(tmp_path, "good", "2026-11-01T00:00:00Z", {"reboot": [60]})
    kept(
        tmp_path,
        "damaged",
        **{"ended": "2026-11-02T00:00:00Z", "seconds": {"reboot": [600]}, **found},
    )
    assert measured_steps(tmp_path, "2026-11-05T00:00:00Z") == [StepMinutes("reboot", 1.0, 1)]


@pytest.fixture
def far_from_utc(monkeypatch):
    """The controller's own zone, which no time of a file is in."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "content", [b"", b"no JSON", b"[]", b"\xff", b'{"schema": "unhang/step-durations/1"}', None]
)
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path, content, far_from_utc):
    # a time without a zone is UTC
    kept(tmp_path, "good", "2026-11-01T00:00:00", {"frame": [LONGEST_S * len(FRAME)]})
    (tmp_path / "bad").mkdir()
    if content is None:
        (tmp_path / "bad" / FILE).mkdir()
    else:
        (tmp_path / "bad" / FILE).write_bytes(content)
    assert measured_steps(tmp_path, "2026-11-01T00:00:01Z") == [StepMinutes("frame", 7200.0, 1)]
    assert measured_steps(tmp_path, "2026-11-01T00:00:00Z") == []


def test_of_many_nodes_few_durations_are_kept_and_the_median_stays(plan):
    hosts = tuple(dataclasses.replace(plan.hosts[0], host=f"gpu{number}") for number in range(1001))
    entries = [
        entry
        for number, host in enumerate(hosts)
        for entry in journal(host.host, ("reboot", number))
    ]
    [spread] = durations_of(entries, dataclasses.replace(plan, hosts=hosts)).values()
    assert len(spread) == MOST_DURATIONS
    assert abs(spread[MOST_DURATIONS // 2] - 500) <= 5
    assert spread[0] == 1000 - spread[-1] == 2  # as far from the quickest as from the slowest
    [all_of_them] = durations_of(
        entries[: 2 * MOST_DURATIONS], dataclasses.replace(plan, hosts=hosts)
    ).values()
    assert all_of_them == list(range(MOST_DURATIONS))
