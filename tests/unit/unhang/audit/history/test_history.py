"""What a history keeps of runs, and what it answers."""

from __future__ import annotations

import datetime
import json

import pytest
from run_folders import Fleet, facts, finding

from unhang.audit.history.changes import changes_between
from unhang.audit.history.past import events_of_host, events_of_rule, node_pasts
from unhang.audit.history.rendering import render_changes
from unhang.audit.history.runs import earlier_of, moment_of, named, past_runs, run_at
from unhang.core.errors import UserError

NOW = datetime.datetime(2026, 11, 21, 10, 30, tzinfo=datetime.UTC)


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Runs in the folder that the commands read."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    return Fleet(tmp_path)


def between(before=1, now=2):
    """The changes from one run to another, by their places."""
    runs = past_runs()
    return changes_between(runs[before - 1], runs[now - 1])


def shown(changes):
    """(change, rule, hosts) of findings, and (fact, before, now, hosts) of facts."""
    return [(one.change, one.rule, *one.hosts) for one in changes.findings], [
        (one.fact, one.before, one.now, *one.hosts) for one in changes.facts
    ]


def test_what_began_and_ended_and_which_facts_changed_is_reported_with_its_nodes(fleet):
    fleet.run(
        {"a": facts(), "b": facts(), "c": facts()}, [finding("bad", "a"), finding("bad", "b")]
    )
    fleet.run(
        {"a": facts("580.65.06"), "b": facts("580.65.06"), "c": facts()},
        [finding("bad", "a"), finding("worse", "c")],
    )
    found, changed = shown(between())
    assert found == [("new", "worse", "c"), ("resolved", "bad", "b")]
    assert changed == [("driver.loaded.version", "535.154.05", "580.65.06", "a", "b")]


def test_another_reason_for_not_being_read_takes_the_place_of_the_first(fleet):
    fleet.run(
        {"a": "unreachable"},
        [finding("node-unreachable", "a")],
        rules=("node-unreachable", "node-timeout"),
    )
    fleet.run(
        {"a": "timeout"}, [finding("node-timeout", "a")], rules=("node-unreachable", "node-timeout")
    )
    assert shown(between())[0] == [
        ("new", "node-timeout", "a"),
        ("resolved", "node-unreachable", "a"),
    ]


def test_a_rule_that_is_judged_no_longer_is_not_called_resolved(fleet):
    fleet.run({"a": facts()}, [finding("bad", "a")])
    fleet.run({"a": facts()}, [], rules=("worse",))
    assert shown(between())[0] == [("not judged", "bad", "a")]


def test_a_run_over_fewer_nodes_does_not_resolve_what_was_found_between_nodes(fleet):
    drift = finding("group-differs", scope="group", hosts=["b"], group="g")
    fleet.run({"a": facts(), "b": facts()}, [drift])
    fleet.run({"b": facts()}, [], limit="b")
    assert shown(between())[0] == []
    fleet.run({"a": facts(), "b": facts()}, [])
    assert shown(between(1, 3))[0] == [("resolved", "group-differs", "b")]


def test_a_fact_that_could_not_be_read_is_no_change_of_the_node(fleet):
    unread = {
        "probe": {
            "status": "ok",
            "unread": [{"field": "release", "status": "denied", "reason": "no"}],
        },
        "release": None,
    }
    for kernel in ({}, {"kernel": unread}, {"kernel": {"probe": {"status": "timeout"}}}, {}):
        fleet.run({"a": facts() | kernel}, [])
    for before, now in ((1, 2), (2, 3), (3, 4), (1, 4)):
        assert [
            one.fact for one in between(before, now).facts if one.fact == "kernel.release"
        ] == []


def test_a_document_that_the_judge_refused_says_nothing_of_its_node(fleet):
    fleet.run({"a": facts()}, [finding("bad", "a")])
    fleet.run(
        {"a": facts("1.2.3")},
        [finding("node-answer-invalid", "a")],
        unread=("a",),
        rules=("bad", "node-answer-invalid"),
    )
    assert shown(between()) == ([("new", "node-answer-invalid", "a")], [])


@pytest.mark.parametrize(
    "kernel",
    [
        {"probe": {"status": "ok", "unread": ["release"]}, "release": None},
        {"probe": "ok"},
        [],
        {"probe": {"status": "ok"}, "release": [[[[{}]]]]},
    ],
)
def test_a_document_of_another_shape_stops_nothing(fleet, kernel):
    fleet.run({"a": facts()}, [])
    fleet.run({"a": facts() | {"kernel": kernel}}, [])
    fleet.run({"a": facts("580")}, [])
    assert ("driver.loaded.version", "535.154.05", "580", "a") in shown(between(1, 3))[1]
    between(1, 2)


def test_findings_that_name_no_node_belong_to_the_fleet(fleet):
    fleet.run({"a": facts()}, [])
    fleet.run({"a": facts()}, [finding("bad", None, scope="fleet", hosts=[])])
    assert shown(between())[0] == [("new", "bad", "")]


@pytest.mark.parametrize("since", ["", "soon", "3", "0d", "99999999d", "2026-13-01", "-1d"])
def test_a_time_that_is_none_is_refused(since):
    with pytest.raises(UserError, match="--since takes yesterday"):
        moment_of(since, NOW)


def test_what_a_node_says_is_compared_as_it_is(fleet):
    nasty = "'; DROP TABLE runs; --\x1b[2J\u202e"
    fleet.run(
        {nasty.replace("/", ""): facts(nasty)},
        [finding("bad", nasty, found=nasty, where={nasty: nasty})],
    )
    fleet.run({nasty: facts("580")}, [])
    changes = between()
    assert shown(changes) == (
        [("resolved", "bad", nasty)],
        [("driver.loaded.version", nasty, "580", nasty)],
    )


def test_a_fault_that_moves_in_its_list_is_the_same_fault(fleet):
    """Another event came before it, and the kernel log shows a later line of it: neither is new."""
    first = {
        "path": "faults.events[0]",
        "code": 79,
        "pci_address": "0000:0b:00.0",
        "line": "[5.1] NVRM: Xid",
    }
    moved = {**first, "path": "faults.events[3]", "line": "[9.7] NVRM: Xid"}
    setting = {
        "path": "environment.settings[1]",
        "name": "NCCL_ALGO",
        "file": "/etc/nccl.conf",
        "line": 3,
    }
    fleet.run(
        {"a": facts()}, [finding("bad", "a", where=first), finding("worse", "a", where=setting)]
    )
    fleet.run(
        {"a": facts()},
        [
            finding("bad", "a", where=moved),
            finding("worse", "a", where={**setting, "path": "environment.settings[4]", "line": 9}),
        ],
    )
    assert shown(between()) == ([], [])
    fleet.run(
        {"a": facts()},
        [
            finding("bad", "a", where={**moved, "pci_address": "0000:0c:00.0"}),
            finding("worse", "a", where={"path": "odd[1]"}),
        ],
    )
    assert shown(between(2, 3))[0] == [
        ("new", "bad", "a"),
        ("new", "worse", "a"),
        ("resolved", "bad", "a"),
        ("resolved", "worse", "a"),
    ]


def machine(hostname, machine_id=None, **more):
    """Facts of a machine with a name of its own."""
    return facts(
        node={"probe": {"status": "ok"}, "hostname": hostname, "machine_id": machine_id}, **more
    )


def test_what_a_run_did_not_read_is_not_resolved(fleet):
    both, bad = {"a": facts(), "b": facts()}, [finding("bad", "a"), finding("bad", "b")]
    rules = ("bad", "node-unreachable")
    fleet.run(both, bad, rules=rules)
    fleet.run({"a": "unreachable"}, [finding("node-unreachable", "a")], rules=rules)
    fleet.run(both, bad, rules=rules)
    assert shown(between()) == ([("new", "node-unreachable", "a")], [])
    assert ("resolved", "node-unreachable", "a") in shown(between(2, 3))[0]
    assert shown(between(1, 3)) == ([], [])


def test_a_check_that_could_not_be_made_resolves_nothing(fleet):
    fleet.run({"a": facts()}, [finding("bad", "a")])
    fleet.run({"a": facts()}, [finding("bad", "a", verdict="unknown")])
    fleet.run({"a": facts()}, [])
    assert shown(between())[0] == []
    assert shown(between(1, 3))[0] == [("resolved", "bad", "a")]


def test_a_run_of_another_inventory_says_nothing_about_the_groups_of_the_first(fleet):
    drift = finding("group-differs", scope="group", hosts=["b"], group="g")
    fleet.run({"a": facts(), "b": facts()}, [drift])
    fleet.run({"b": facts(), "c": facts()}, [], inventory="inventory/second")
    # the same nodes and one more
    fleet.run({"a": facts(), "b": facts(), "c": facts()}, [], inventory="moved/i")
    assert shown(between())[0] == []
    assert shown(between(1, 3))[0] == [("resolved", "group-differs", "b")]


def test_a_waiver_is_reported_as_one_and_its_end_as_new(fleet):
    waiver = {"reason": "ordered", "by": "ada", "until": "2026-11-25"}
    fleet.run({"a": facts()}, [finding("bad", "a")])
    fleet.run({"a": facts()}, [finding("bad", "a", verdict="waived", waiver=waiver)])
    fleet.run({"a": facts()}, [finding("bad", "a")])
    assert shown(between())[0] == [("waived", "bad", "a")]
    assert shown(between(2, 3))[0] == [("changed", "bad", "a")]


def test_a_finding_says_since_when_it_is_there_and_which_driver_came_with_it(fleet):
    fleet.run({"a": facts(), "b": facts(), "c": facts()}, [])
    new, gpu3 = facts("580.65.06"), {"index": 3}
    rows = [finding("bad", host, where=gpu3) for host in "ab"]
    second = fleet.run({"a": new, "b": new, "c": new}, rows)
    fleet.run({"a": new, "b": new, "c": new}, rows[:1])
    began, ended = events_of_rule(past_runs(), "bad")
    assert (began.run, began.what, began.hosts) == (second.name, "new", ("a", "b"))
    assert began.together == (
        "driver.loaded.version: 535.154.05 -> 580.65.06 (on 2 of 2, and on 1 without the finding)",
    )
    assert (ended.what, ended.hosts, ended.together) == ("resolved", ("b",), ())
    assert [(one.run, one.what, one.text) for one in events_of_host(past_runs(), "a")] == [
        (second.name, "fact", "driver.loaded.version: 535.154.05 -> 580.65.06"),
        (second.name, "new", "error: What bad says: GPU 3 [bad]"),
        (second.name, "holds since", "error: What bad says [bad]"),
    ]


def test_a_finding_holds_since_the_last_time_that_it_came_back(fleet):
    runs = [fleet.run({"a": facts()}, [finding("bad", "a")] * has) for has in (1, 0, 1, 1)]
    held = [one.run for one in events_of_host(past_runs(), "a") if one.what == "holds since"]
    assert held == [runs[2].name]


def test_a_healthy_node_that_only_a_faulty_one_sets_apart_has_no_finding(fleet):
    fleet.run({"a": facts(), "b": facts()}, [])
    run = fleet.run(
        {"a": facts(), "b": facts()}, [finding("differ", None, scope="group", hosts=["a", "b"])]
    )
    document = json.loads((run / "findings.json").read_text())
    (run / "findings.json").write_text(
        json.dumps(document | {"node_verdicts": {"error": ["a"], "healthy": ["b"]}})
    )
    assert shown(between())[0] == [("new", "differ", "a")]


def test_nodes_that_only_one_of_the_runs_asked_are_named(fleet):
    fleet.run({"a": facts(), "b": facts()}, [])
    fleet.run({"b": facts(), "c": facts()}, [], inventory="another")
    changes = between()
    assert (changes.only_now, changes.only_before, changes.facts) == (("c",), ("a",), ())
    lines = render_changes(*past_runs(), changes, "unhang", 120)
    assert "ASKED       c in the later run alone" in lines
    assert (
        "NOT ASKED   a in the later run (another inventory): its present state is not known"
        in lines
    )


def test_a_run_is_compared_with_the_last_one_that_asked_all_of_its_nodes(fleet):
    both = {"a": facts(), "b": facts()}
    whole = fleet.run(both, [finding("bad", "b")])
    limited = fleet.run({"a": facts()}, [], limit="a")
    fleet.run({"localhost": facts()}, [], inventory="local")
    last = fleet.run(both, [finding("bad", "b")])
    runs = past_runs()
    assert earlier_of(named(last.name), runs).id == whole.name
    assert earlier_of(named(limited.name), runs).id == whole.name
    assert earlier_of(named(whole.name), runs) is None


def test_a_run_that_was_not_judged_is_in_no_comparison(fleet):
    """As those of a preview and of a rollout, which read the nodes of a plan."""
    first = fleet.run({"a": facts()}, [])
    fleet.run({"a": facts("580")})
    assert [run.id for run in past_runs()] == [first.name]


def test_runs_are_found_by_id_its_beginning_folder_and_time(fleet):
    first, second, _ = (fleet.run({"a": facts()}, [], day=day) for day in (18, 20, 21))
    for name in (first.name, str(first), "20261118"):
        assert named(name).id == first.name
    assert run_at("yesterday", NOW).id == second.name
    for since in ("2d", "1m", "1y", "2026-01-01"):
        assert run_at(since, NOW).id == first.name
    fleet.run({"a": facts()}, [], day=18)
    with pytest.raises(UserError, match="20261118 begins the names of 2 runs"):
        named("20261118")


def test_the_page_says_of_each_node_what_changed_since_the_run_before(fleet):
    fleet.run({"a": facts(), "b": facts()}, [finding("bad", "b")])
    last = fleet.run(
        {"a": facts("580.65.06"), "b": facts()}, [finding("worse", "a", where={"index": 3})]
    )
    assert node_pasts(last) == {
        "a": (
            "driver.loaded.version: 535.154.05 -> 580.65.06",
            "new: error: What worse says: GPU 3 [worse]",
        ),
        "b": ("resolved: error: What bad says [bad]",),
    }
    assert node_pasts(past_runs()[0].folder) == {}
    (last / "findings.json").write_text("no JSON")
    assert node_pasts(last) == {}


def test_two_machines_that_are_called_localhost_are_not_compared(fleet):
    for hostname, driver in (("web1", "535"), ("9ad0c1", "580"), ("9ad0c1", "590")):
        node = {"probe": {"status": "ok"}, "hostname": hostname, "machine_id": hostname * 4}
        fleet.run({"localhost": facts(driver, node=node)}, [finding(f"bad-{driver}", "localhost")])
    changes = between()
    assert (shown(changes), changes.other_machines) == (([], []), ("localhost",))
    assert shown(between(2, 3))[1] == [("driver.loaded.version", "580", "590", "localhost")]
