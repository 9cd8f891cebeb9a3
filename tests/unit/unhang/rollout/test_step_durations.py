"""How long steps took is kept when a rollout ends, and is what the next plan counts with."""

from __future__ import annotations

import dataclasses
import json

import pytest
from rollout_plans import planned

from unhang.plan.description import describe_steps
from unhang.plan.plan_document import Plan, Remedy, StepMinutes
from unhang.plan.planning import step_minutes
from unhang.rollout.step_durations import FILE, SCHEMA, durations_of, keep_durations, measured_steps
from unhang.rollout.steps import BEGUN, DONE, FAILED, Entry

FRAME = (("lock", 10), ("drain", 5), ("save", 5), ("audit", 30), ("release", 10))


@pytest.fixture
def plan(tmp_path):
    """A node with one role and a node with two."""
    example = planned(tmp_path)
    one, two = (dataclasses.replace(example.hosts[0], host=host, remedies=remedies) for host, remedies in (("one", remedies(1)), ("two", remedies(2))))
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
        *journal("one", *FRAME, ("smoke_before", 20), ("apply", 200), ("reboot", 240), ("smoke_alone", 30)),
        *journal("two", ("apply", 300), ("reboot", 100)),
    ]
    assert durations_of(entries, plan) == {"frame": [60], "gpu_driver": [200], "reboot": [100, 240], "smoke": [20, 30]}
    assert set(durations_of(entries, plan)) <= set(step_minutes())


@pytest.mark.parametrize(
    "entries",
    [
        journal("one", ("reboot", 200), status=FAILED),
        [Entry(at(0), "one", "reboot", BEGUN), *journal("one", ("reboot", 200))],
        journal("one", ("smoke_alone", 1), evidence={"skipped": "unhang_smoke is false"}),
        [Entry(at(60), "one", "reboot", BEGUN), Entry(at(0), "one", "reboot", DONE)],
        [Entry("2026-11-20T10:00:00Z", "one", "reboot", BEGUN), Entry("2026-11-22T10:00:00Z", "one", "reboot", DONE)],
        journal("somebody else", ("reboot", 200)),
    ],
    ids=["failed", "begun twice", "skipped", "a clock set back", "a clock set forward", "no host of the plan"],
)
def test_what_is_no_measurement_is_not_kept(plan, entries):
    assert durations_of(entries, plan) == {}


def test_a_plan_counts_with_the_median_of_rollouts_that_ended_before_its_audit(plan, tmp_path):
    for name, seconds, ended in (
        ("a", 60, "2026-11-01T00:00:00Z"),
        ("b", 180, "2026-11-02T00:00:00Z"),
        ("c", 600, "2026-11-03T00:00:00Z"),
        ("later", 6, "2026-11-09T00:00:00Z"),
    ):
        (tmp_path / "runs" / name).mkdir(parents=True)
        keep_durations(tmp_path / "runs" / name, plan, journal("one", ("reboot", seconds)), ended)
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / FILE).write_text(json.dumps({"schema": SCHEMA, "ended": "2026-11-01T00:00:00Z", "seconds": {"reboot": ["long"]}}))
    measured = measured_steps(tmp_path / "runs", "2026-11-05T00:00:00Z")
    assert measured == [StepMinutes("reboot", 3.0, 3)]
    steps = step_minutes(measured)
    assert (steps["reboot"], steps["smoke"], steps["kernel"].minutes) == (StepMinutes("reboot", 3.0, 3), StepMinutes("smoke", 0.5), None)
    shown = dataclasses.replace(plan, steps=(steps["reboot"], steps["smoke"], steps["kernel"]))
    assert describe_steps(shown) == "reboot 3 (measured here, 3 times), smoke 0.5 (assumed), kernel unknown"
    assert measured_steps(tmp_path / "nothing", "2026-11-05T00:00:00Z") == measured_steps(tmp_path / "runs", "no time") == []


def test_of_many_nodes_few_durations_are_kept_and_the_median_stays(plan):
    hosts = tuple(dataclasses.replace(plan.hosts[0], host=f"gpu{number}") for number in range(1001))
    entries = [entry for number, host in enumerate(hosts) for entry in journal(host.host, ("reboot", number))]
    [kept] = durations_of(entries, dataclasses.replace(plan, hosts=hosts)).values()
    assert len(kept) == 200
    assert abs(kept[100] - 500) <= 5
