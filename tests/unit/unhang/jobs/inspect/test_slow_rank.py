"""`inspect --slow`: whom it names by the numbers of real scenes on two H200, and that it accuses
nobody in a healthy job or one whose ranks differ for a good reason."""

from __future__ import annotations

import copy

import pytest
from inspected import answer_of, certainty_of, inspection_of, render_inspection
from paced_jobs import PROBE, checkpoint, document, of_ranks, pace_of

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.answer import screen_of

# scene, looks in which ranks 0 and 1 were behind, W, MHz, % busy, % memory, cores of rank 1, and
# whom a person would name: measured with tests/bench/slow_rank_trial.py
TRIAL = [
    ("healthy, each step", (0, 2), (691, 694), (1508, 1485), (99, 99), (21, 21), 1.0, "even"),
    ("loader, each step", (0, 43), (243, 246), (1980, 1980), (99, 11), (3, 3), 0.13, "behind"),
    ("now and then, each step", (0, 44), (221, 222), (1980, 1980), (100, 0), (0, 0), 0.13, "behind"),
    ("cpu, each step", (0, 38), (347, 349), (1980, 1980), (99, 26), (6, 7), 0.2, "behind"),
    ("neighbour, each step", (0, 0), (453, 692), (1980, 1552), (99, 100), (10, 21), 1.0, "works"),
    ("more work, each step", (0, 1), (432, 692), (1980, 1455), (99, 99), (9, 20), 1.0, "works"),
    ("healthy, each 20", (0, 0), (693, 692), (1500, 1485), (100, 100), (20, 20), 1.0, "even"),
    ("loader, each 20", (0, 50), (251, 254), (1980, 1980), (100, 12), (3, 3), 0.03, "behind"),
    ("now and then, each 20", (0, 47), (219, 220), (1980, 1980), (100, 0), (0, 0), 0.09, "behind"),
    ("cpu, each 20", (0, 8), (690, 691), (1530, 1485), (100, 100), (20, 20), 0.2, "even"),
    ("processors of others, each step", (21, 22), (690, 691), (1510, 1500), (99, 99), (20, 20), 1.0, "even"),
    ("more work, each 20", (0, 1), (428, 693), (1980, 1455), (100, 100), (8, 19), 1.0, "works"),
]  # fmt: skip


@pytest.mark.parametrize("row", TRIAL, ids=lambda row: row[0])
def test_each_scene_of_the_trial_gets_the_answer_that_a_person_would_give(row):
    _, behind, power, clock, busy, memory, cores, expected = row
    evidence = document(behind, power, clock, busy, memory, cores)
    assert not list(check_schema(evidence, "evidence-1"))
    found = inspection_of([evidence])
    assert not list(check_schema(found, "inspection-1"))
    assert found["state"] == ("even" if expected == "even" else "slow"), found["headline"]
    assert [one["rank"] for one in found["suspects"]] == ([] if expected == "even" else [1])
    if expected == "behind":
        assert f"rank 1 (n1, GPU 1) is behind in {behind[1]} of 50 looks" in found["headline"]
        assert f"busy {busy[1]} % of the time, its process ran {cores:.2g}" in found["headline"]
        assert certainty_of(found) == "sure"
    if expected == "works":
        assert (
            f"works while the others wait: {power[1]} W against {power[0]} W" in (found["headline"])
        )
        assert certainty_of(found) == "likely"
    lines = render_inspection(found).splitlines()
    assert len(lines) <= 12 and lines[0].startswith(found["state"])
    assert str(behind[1]) in render_inspection(found, verbose=True)


def test_without_the_option_the_answer_has_no_numbers():
    evidence = document()
    del evidence["sections"]["pace"]
    assert "pace" not in inspection_of([evidence])


@pytest.mark.parametrize(
    ("run_queue", "expected", "command"),
    [
        (0.8, "waits for a processor 80 %", "taskset -pc 101"),
        (0.0, "sleeps or reads", "py-spy dump --pid 101"),
    ],
)
def test_why_a_rank_is_late(run_queue, expected, command):
    evidence = document((0, 43), busy=(99, 11), cores=0.13)
    pace_of(evidence)["ranks"][1]["run_queue"] = run_queue
    found = inspection_of([evidence])
    assert expected in found["headline"]
    assert screen_of(answer_of(found)).next_command.startswith(command)


def test_the_line_of_the_late_rank_is_shown():
    evidence = document((0, 43), busy=(99, 11), cores=0.13)
    frames = ["read_item (loader.py:7)", "train (train.py:9)"]
    evidence["sections"]["stacks"] = {
        "probe": PROBE,
        "processes": [{"pid": 101, "of": 101, "threads": [{"frames": frames}]}],
    }
    assert "loader.py:7" in inspection_of([evidence])["headline"]


@pytest.mark.parametrize("looks", [12, 20, 35, 50])
def test_a_checkpoint_or_an_evaluation_on_rank_0_is_no_slow_rank(looks):
    evidence = document(power=(690, 400), clock=(1500, 1980), memory=(20, 9))
    checkpoint(evidence, looks)
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "one wait" in found["headline"] or "too few" in found["headline"]


def test_one_long_wait_among_short_ones_is_no_slow_rank_either():
    evidence = document((0, 40), busy=(99, 11), cores=0.13)
    pace_of(evidence)["communicators"][0]["ranks"][1][4:] = [40, 8, 33]
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "one wait of 7 s" in found["headline"]


def test_a_job_that_stands_is_no_slow_one_and_is_sent_to_the_plain_look():
    evidence = document((0, 50), power=(430, 430), busy=(99, 0))
    pace_of(evidence)["communicators"][0]["launched"] = 0
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "no collective was launched in 10 s" in found["headline"]
    assert screen_of(answer_of(found)).next_command == "unhang inspect --gap 30"


def test_a_rank_that_a_second_reading_does_not_show_slow_is_not_accused():
    """RAS asks ranks one after another: the first may be behind in each answer."""
    found = inspection_of([document((0, 48))])
    assert found["state"] == "unknown" and certainty_of(found) == "possible"
    assert "as busy as the others'" in found["headline"]


def test_ranks_that_are_behind_together_are_not_told_apart():
    found = inspection_of([of_ranks(8, behind=dict.fromkeys(range(4, 8), 40))])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "ranks 4-7 are behind in 40 to 40 of 50 looks" in found["headline"]


def test_counts_of_different_communicators_are_never_compared():
    """Two data-parallel groups of two stages, one of which launches less; both are even."""
    evidence = of_ranks(4, behind=dict.fromkeys(range(4), 0))
    row = pace_of(evidence)["communicators"][0]
    stages = [
        {**row, "hash": name, "size": 2, "launched": launched, "ranks": row["ranks"][at : at + 2]}
        for name, launched, at in (("0xb", 500, 0), ("0xc", 90, 2))
    ]
    pace_of(evidence)["communicators"] = [{**row, "launched": 0}, *stages]
    for card in pace_of(evidence)["gpus"][2:]:  # the last stage has the head of the model
        card["power_w"] = 450
    assert inspection_of([evidence])["state"] == "even"


def test_stages_of_a_pipeline_are_not_compared_by_power():
    evidence = of_ranks(4, power={3: 690, 0: 430, 1: 430, 2: 430}, clock={0: 1980, 1: 1980})
    row = pace_of(evidence)["communicators"][0]
    sends = {**row, "hash": "0xd", "size": 2, "launched": 0, "total": 0, "ranks": row["ranks"][:2]}
    pace_of(evidence)["communicators"].append(sends)
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "stages of a pipeline" in found["headline"]


def test_who_waits_for_a_late_rank_in_another_communicator_is_not_named_for_it():
    evidence = of_ranks(4, busy={1: 10})
    row = pace_of(evidence)["communicators"][0]
    tensor, data = copy.deepcopy(row), copy.deepcopy(row)
    tensor.update(hash="0xb", size=2, ranks=[[*one[:4], 0, 0, 0] for one in row["ranks"][:2]])
    tensor["ranks"][1][4:] = [45, 45, 1]
    data.update(hash="0xc", size=2, ranks=[[*row["ranks"][at][:4], 0, 0, 0] for at in (0, 2)])
    data["ranks"][0][4:] = [40, 40, 1]
    pace_of(evidence)["communicators"] = [{**row, "launched": 0}, tensor, data]
    found = inspection_of([evidence])
    assert [one["rank"] for one in found["suspects"]] == [1]


@pytest.mark.parametrize("others", [2, 3, 7])
def test_one_of_several_gpus_that_works_is_named(others):
    values = {"power": dict.fromkeys(range(1, others + 1), 440)}
    values["clock"] = dict.fromkeys(range(1, others + 1), 1980)
    found = inspection_of([of_ranks(others + 1, **values)])
    assert [one["rank"] for one in found["suspects"]] == [0]


def test_the_usual_spread_of_power_is_even():
    powers = dict(enumerate((690, 655, 700, 640, 688, 671, 699, 612)))
    assert inspection_of([of_ranks(8, power=powers)])["state"] == "even"
    assert inspection_of([of_ranks(2, power={1: 760}, memory={1: 30})])["state"] == "even"


@pytest.mark.parametrize("others", [{"busy": {0: 5}}, {"memory": {0: 20, 1: 20}, "clock": {}}])
def test_power_alone_names_nobody(others):
    evidence = of_ranks(2, power={0: 440}, **others)
    assert inspection_of([evidence])["suspects"] == []


def test_another_process_on_the_gpu_is_named():
    evidence = document((22, 21), power=(385, 690), clock=(1980, 1710), memory=(10, 21))
    pace_of(evidence)["gpus"][1]["processes"].append([999, None, "other\x1b[31m"])
    found = inspection_of([evidence])
    assert "on the GPU of rank 1 also process 999 (other" in found["headline"]
    assert "690 W against 385 W, 1710 MHz against 1980 MHz" in found["suspects"][0]["why"]
    assert "\x1b" not in render_inspection(found, verbose=True)
    assert found["suspects"][0]["next"].startswith("end that process")


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"])
def test_a_gpu_that_is_slowed_down_is_named_even_if_it_draws_little(reason):
    evidence = document(power=(450, 300), clock=(1980, 900))
    pace_of(evidence)["gpus"][1]["throttle"] = {reason: 49}
    found = inspection_of([evidence])
    assert (found["state"], [one["rank"] for one in found["suspects"]]) == ("slow", [1])
    assert f"slowed down ({reason}): 900 MHz, the others 1980 MHz" in found["headline"]


def test_the_power_cap_is_no_fault_and_a_slow_clock_without_one_neither():
    evidence = document(power=(690, 690), clock=(1980, 1400))
    assert inspection_of([evidence])["state"] == "even"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answered": 3, "why": "nothing listens at port 28028"}, "nothing listens at port 28028"),
        ({"communicators": []}, "RAS knows no communicator yet"),
        ({"communicators": [], "form": "text"}, "lists no rank while all are even"),
        ({"gpus": []}, "power or utilisation was not read"),
    ],
)
def test_what_cannot_be_told_is_said(change, expected):
    evidence = document()
    pace_of(evidence).update(change)
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert expected in found["headline"]


def test_one_rank_alone_is_not_slow():
    found = inspection_of([document((0,), (690,), (1500,), (99,), (20,))])
    assert "fewer than 2 ranks" in found["headline"]


def test_a_rank_that_was_stopped_stays_the_answer():
    evidence = document((0, 50), busy=(99, 0), cores=0.0)
    for number in (1, 2):
        evidence["sections"]["proc"][f"ranks_{number}"][1]["state"] = "T"
    assert inspection_of([evidence])["state"] == "hung"


def test_a_late_rank_of_a_node_that_was_not_looked_at_is_a_hint():
    evidence = document((0, 43), busy=(99, 11), cores=0.13)
    del evidence["ranks"][1]
    found = inspection_of([evidence])
    assert found["state"] == "unknown" and found["suspects"][0]["blind"]
    assert "its node was not looked at" in found["headline"]


@pytest.mark.parametrize("value", [None, "x", -1, [1], {"a": 1}, True, 1e300, [[1, 2]]])
@pytest.mark.parametrize("part", ["communicators", "ranks", "gpus", "answered", "looks", "seconds"])
def test_what_a_node_sends_instead_is_left_out(part, value):
    evidence = document((0, 43), busy=(99, 11), cores=0.13)
    pace_of(evidence)[part] = value
    render_inspection(inspection_of([evidence]), verbose=True)
    rows = pace_of(document())[part]
    for name in rows[0] if isinstance(rows, list) else ():
        changed = copy.deepcopy(rows)
        changed[0][name] = value
        pace_of(evidence)[part] = changed
        render_inspection(inspection_of([evidence]), verbose=True)


@pytest.mark.parametrize(("run_queue", "says"), [(0.81, True), (0.0, False)])
def test_a_rank_that_is_seldom_behind_is_not_named_but_a_wait_for_a_processor_is_said(
    run_queue, says
):
    """As on one H200 that both ranks shared: 23 of 50 looks."""
    evidence = document((0, 23), cores=0.24)
    pace_of(evidence)["ranks"][1]["run_queue"] = run_queue
    found = inspection_of([evidence])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "behind in 23 of 50 looks, too few to name it" in found["headline"]
    assert ("waits for a processor 81 % of the time" in found["headline"]) is says
