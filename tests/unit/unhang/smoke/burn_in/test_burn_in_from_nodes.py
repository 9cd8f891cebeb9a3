"""A burn-in on another machine: the node's report is checked before it is used, and a false, incomplete or shorter one proves nothing."""

from __future__ import annotations

import json

import pytest
from burn_in_events import done, healthy, uuid

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.verdict.streams import MOST_LINE_BYTES
from unhang.smoke.burn_in.events import parse_burn_in
from unhang.smoke.burn_in.folder import next_burn_in_step
from unhang.smoke.smoke_folder import read_result

PLAN = {"device": "cuda", "duration_s": 300.0, "nproc": None, "python": None, "drill": None}
PLACE = {"address": "0x7f3a40000292", "where": "row 1, column 13", "expected": "0x4687", "found": "0x46a7", "bits": [5]}


def lines(events):
    """As a node sends them."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def burned(folder, sent, plan=PLAN, hosts=("gpu001",)):
    """The result of a burn-in of which this came back. sent: bytes, or None for nothing."""
    (folder / "notes").mkdir()
    (folder / "hosts.json").write_text(json.dumps({"hosts": list(hosts), "switches": {}, "command": None}))
    step = next_burn_in_step(folder, plan, {})
    assert (step["round"], step["hosts"]) == (1, ["gpu001"])
    work = json.loads((folder / "rounds/001/plans/gpu001.json").read_text())
    assert (work["payload"], work["plan"], work["deadline_s"]) == ("unhang_burn_in.py", plan, float(step["limit_s"]))
    if sent is not None:
        (folder / "rounds/001/events/gpu001.jsonl").write_bytes(sent)
    assert next_burn_in_step(folder, plan, {})["round"] == 0
    document = read_result(folder)
    assert list(check_schema(document, read_schema("burn-in-1"))) == []
    return document


def test_a_healthy_node_passes(tmp_path):
    document = burned(tmp_path, lines(healthy()))
    assert (document["verdict"], document["gaps"], document["host"]) == ("pass", [], "gpu001")


def test_several_hosts_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected one host, each for itself, found gpu001, gpu002"):
        burned(tmp_path, None, hosts=("gpu001", "gpu002"))


def test_a_node_that_was_lost_is_not_proved_with_its_reason(tmp_path):
    (tmp_path / "rounds/001/events").mkdir(parents=True)
    (tmp_path / "rounds/001/events/gpu001.why").write_text("the node was rebooted in the middle of the test")
    document = burned(tmp_path, lines(healthy()[:-1]))
    assert (document["verdict"], document["gaps"]) == ("not proved", ["the node was rebooted in the middle of the test"])


def test_what_could_not_be_removed_from_the_node_is_a_note(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/gpu001.001.txt").write_text("gpu001\t/tmp/unhang-smoke-x could not be removed from the node")
    (tmp_path / "notes").rename(tmp_path / "kept")
    (tmp_path / "hosts.json").write_text(json.dumps({"hosts": ["gpu001"], "switches": {}}))
    next_burn_in_step(tmp_path, PLAN, {})
    (tmp_path / "rounds/001/events/gpu001.jsonl").write_bytes(lines(healthy()))
    (tmp_path / "kept").rename(tmp_path / "notes")
    next_burn_in_step(tmp_path, PLAN, {})
    assert read_result(tmp_path)["notes"] == ["/tmp/unhang-smoke-x could not be removed from the node"]


def last(**changed):
    """A healthy burn-in with other fields in its last event."""
    return healthy(**changed)


def without(events, kind):
    return [event for event in events if event["e"] != kind]


WORKER = {"gpu": 0, "uuid": uuid(0), "code": 0, "ready": True, "phase": "memory", "done": {"bfloat16": done()}}
HOSTILE = {
    "a kind that is none": [*healthy(), {"e": "burn_out", "gpu": 0}],
    "a number of a GPU that is a text": [*healthy(), {"e": "wrong", "gpu": "0", "round": 1, "what": "x", "elements": 1, "places": [], "why": None}],
    "places that are no list": [*healthy(), {"e": "wrong", "gpu": 0, "round": 1, "what": "x", "elements": 1, "places": 7, "why": None}],
    "bits without end": [*healthy(), {"e": "wrong", "gpu": 0, "round": 1, "what": "x", "elements": 1, "places": [{**PLACE, "bits": [1] * 100}], "why": None}],
    "workers that are a map": last(workers={"0": WORKER}),
    "a count below nothing": last(workers=[{**WORKER, "done": {"bfloat16": {**done(), "count": -1}}}]),
    "a rate that is a text": last(workers=[{**WORKER, "done": {"bfloat16": {**done(), "work": "1e99"}}}]),
    "an end without a state": [{name: value for name, value in event.items() if name != "before"} for event in healthy()],
    "settings that are texts": last(after={"settings": ["none"], "problem": None}),
    "a field of its own in a reading": last(readings=[{"uuid": "x", "phase": "p", "samples": 1, "reasons": {}, "script": "<img>"}]),
    "counters that are no numbers": last(
        counters=[{"when": "after", "counted_s": 1.0, "read": 1, "problem": None, "moved": {"GPU 0 link 1 replay errors": [1]}, "peers": {}}]
    ),
}


@pytest.mark.parametrize("events", HOSTILE.values(), ids=HOSTILE)
def test_a_node_that_reports_what_no_burn_in_reports_is_not_proved(tmp_path, events):
    document = burned(tmp_path, lines(events))
    assert document["verdict"] == "not proved"
    assert any("reported what no burn-in reports" in gap for gap in document["gaps"])


@pytest.mark.parametrize("text", [b'{"e": "progress", "seconds": NaN}', b'{"e": "ready", "gpu": 0, "gpu": 1}', b'{"e": "x\\ud800"}', b'{"e":' + b"[" * 5000])
def test_json_that_readers_read_differently_proves_nothing_and_breaks_nothing(tmp_path, text):
    document = burned(tmp_path, text + b"\n" + b"no event at all\n" + lines(healthy()[:-1]))
    assert document["verdict"] == "not proved"


def test_a_flood_of_such_lines_is_told_a_few_times_and_read_only_so_far():
    events = parse_burn_in([b'{"e": "nonsense"}'] * 500)
    assert len(events) == 5


DIFFERENT = {
    "no GPU was at work": last(workers=[]),
    "GPU 0: no result of it was checked": last(workers=[{**WORKER, "done": {}}]),
    "expected a burn-in with device cuda, found one with cpu": [{**event, **({"device": "cpu"} if event["e"] == "burn_begin" else {})} for event in healthy()],
    "expected a burn-in with duration_s 300.0, found one with 1.0": [
        {**event, **({"duration_s": 1.0} if event["e"] == "burn_begin" else {})} for event in healthy()
    ],
    "expected a burn-in with duration_s 300.0, found one with None": without(healthy(), "burn_begin"),
    "it ended after 12 s, before its 300 s were over": last(seconds=12.0),
}


@pytest.mark.parametrize(("gap", "events"), DIFFERENT.items(), ids=DIFFERENT)
def test_a_node_that_did_something_else_than_asked_is_not_proved(tmp_path, gap, events):
    document = burned(tmp_path, lines(events))
    assert document["verdict"] == "not proved"
    assert gap in document["gaps"]


def test_a_wrong_bit_fails_whatever_else_the_node_reports(tmp_path):
    wrong = {"e": "wrong", "gpu": 2, "round": 1, "what": "bfloat16", "elements": 1, "places": [PLACE], "why": None}
    document = burned(tmp_path, lines([*healthy(), wrong, {"e": "nonsense"}]))
    assert (document["verdict"], document["failures"][0]["gpu"]) == ("fail", 2)


def test_a_line_of_the_longest_length_is_still_read_and_a_longer_one_is_none():
    event = {"e": "refused", "reasons": ["somebody is on it"]}
    padded = json.dumps(event)[:-1] + ', "pad": "'
    longest = (padded + "x" * (MOST_LINE_BYTES - len(padded) - 2) + '"}').encode()
    assert [one["e"] for one in parse_burn_in([longest])] == ["refused"]
    assert parse_burn_in([longest + b" "]) == []
