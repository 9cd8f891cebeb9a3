"""What a history keeps of runs, and what it answers."""

from __future__ import annotations

import datetime
import json

import pytest
from run_folders import Fleet, facts, finding

from unhang.audit.history.beginnings import beginnings, events, holding
from unhang.audit.history.changes import changes_between
from unhang.audit.history.database import reading, writing
from unhang.audit.history.node_pasts import node_pasts
from unhang.audit.history.recording import record
from unhang.audit.history.recurring import ending_waivers, flapping, own_pasts
from unhang.audit.history.rendering import render_changes
from unhang.audit.history.run_rows import moment_of, run_before, run_named, run_rows
from unhang.core.errors import UserError

NOW = datetime.datetime(2026, 11, 21, 10, 30, tzinfo=datetime.UTC)


@pytest.fixture
def fleet(tmp_path):
    """Runs are stored as they are made."""
    made = Fleet(tmp_path)
    made.db = tmp_path / "state" / "history.db"

    def stored(*arguments, **more):
        folder = made.run(*arguments, **more)
        assert record(folder, made.db)
        return folder

    made.stored = stored
    return made


def between(fleet, before=1, now=2):
    """The changes from one run to another, by their places."""
    with reading(fleet.db) as connection:
        return changes_between(connection, before, now)


def shown(changes):
    """(change, rule, hosts) of findings, and (fact, before, now, hosts) of facts."""
    return [(one.change, one.rule, *one.hosts) for one in changes.findings], [
        (one.fact, one.before, one.now, *one.hosts) for one in changes.facts
    ]


def test_what_began_and_ended_and_which_facts_changed_is_reported_with_its_nodes(fleet):
    fleet.stored(
        {"a": facts(), "b": facts(), "c": facts()}, [finding("bad", "a"), finding("bad", "b")]
    )
    fleet.stored(
        {"a": facts("580.65.06"), "b": facts("580.65.06"), "c": facts()},
        [finding("bad", "a"), finding("worse", "c")],
    )
    found, changed = shown(between(fleet))
    assert found == [("new", "worse", "c"), ("resolved", "bad", "b")]
    assert changed == [("driver.loaded.version", "535.154.05", "580.65.06", "a", "b")]


def test_a_run_in_which_nothing_changed_adds_no_span(fleet):
    for _ in range(3):
        fleet.stored({"a": facts()}, [finding("bad", "a")])
    with reading(fleet.db) as connection:
        assert connection.execute("SELECT count(*) FROM facts").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM findings").fetchone() == (1,)
        assert len(run_rows(connection)) == 3


def test_the_same_run_is_stored_once(fleet):
    folder = fleet.run({"a": facts()}, [])
    assert record(folder, fleet.db)
    assert not record(folder, fleet.db)
    with reading(fleet.db) as connection:
        assert len(run_rows(connection)) == 1


def test_what_a_run_did_not_read_stays_as_it_was(fleet):
    fleet.stored({"a": facts(), "b": facts()}, [finding("bad", "a"), finding("bad", "b")])
    fleet.stored(
        {"a": "unreachable"}, [finding("node-unreachable", "a")], rules=("bad", "node-unreachable")
    )
    assert shown(between(fleet)) == ([("new", "node-unreachable", "a")], [])
    fleet.stored(
        {"a": facts(), "b": facts()},
        [finding("bad", "a"), finding("bad", "b")],
        rules=("bad", "node-unreachable"),
    )
    assert shown(between(fleet, 2, 3)) == ([("resolved", "node-unreachable", "a")], [])
    assert shown(between(fleet, 1, 3)) == ([], [])


def test_another_reason_for_not_being_read_takes_the_place_of_the_first(fleet):
    fleet.stored(
        {"a": "unreachable"},
        [finding("node-unreachable", "a")],
        rules=("node-unreachable", "node-timeout"),
    )
    fleet.stored(
        {"a": "timeout"}, [finding("node-timeout", "a")], rules=("node-unreachable", "node-timeout")
    )
    assert shown(between(fleet))[0] == [
        ("new", "node-timeout", "a"),
        ("resolved", "node-unreachable", "a"),
    ]


def test_a_check_that_could_not_be_made_resolves_nothing(fleet):
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    fleet.stored({"a": facts()}, [finding("bad", "a", verdict="unknown")])
    assert shown(between(fleet))[0] == []
    fleet.stored({"a": facts()}, [])
    assert shown(between(fleet, 2, 3))[0] == [("resolved", "bad", "a")]


def test_a_rule_that_is_judged_no_longer_is_not_called_resolved(fleet):
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    fleet.stored({"a": facts()}, [], rules=("worse",))
    assert shown(between(fleet))[0] == [("not judged", "bad", "a")]


def test_a_run_over_fewer_nodes_does_not_resolve_what_was_found_between_nodes(fleet):
    drift = finding("group-differs", scope="group", hosts=["b"], group="g")
    fleet.stored({"a": facts(), "b": facts()}, [drift])
    fleet.stored({"b": facts()}, [], limit="b")
    assert shown(between(fleet))[0] == []
    fleet.stored({"a": facts(), "b": facts()}, [])
    assert shown(between(fleet, 2, 3))[0] == [("resolved", "group-differs", "b")]


def test_a_run_of_another_inventory_says_nothing_about_the_groups_of_the_first(fleet):
    drift = finding("group-differs", scope="group", hosts=["b"], group="g")
    fleet.stored({"a": facts(), "b": facts()}, [drift])
    fleet.stored({"localhost": facts()}, [], inventory="inventory/local")
    fleet.stored({"b": facts(), "c": facts()}, [], inventory="inventory/second")
    assert shown(between(fleet, 1, 3))[0] == []
    fleet.stored({"a": facts(), "b": facts()}, [drift])
    assert shown(between(fleet, 3, 4))[0] == []
    with reading(fleet.db) as connection:
        assert flapping(connection, 4) == []
    # the same nodes and one more
    fleet.stored({"a": facts(), "b": facts(), "c": facts()}, [], inventory="moved/i")
    assert shown(between(fleet, 4, 5))[0] == [("resolved", "group-differs", "b")]


def test_a_waiver_is_reported_as_one_and_its_end_as_new(fleet):
    waiver = {"reason": "ordered", "by": "ada", "until": "2026-11-25"}
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    fleet.stored({"a": facts()}, [finding("bad", "a", verdict="waived", waiver=waiver)])
    assert shown(between(fleet))[0] == [("waived", "bad", "a")]
    with reading(fleet.db) as connection:
        (soon,) = ending_waivers(connection, NOW.date())
        assert (soon.rule, soon.until, soon.days, soon.by, soon.hosts) == (
            "bad",
            "2026-11-25",
            4,
            "ada",
            ("a",),
        )
        assert ending_waivers(connection, NOW.date(), 3) == []
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    assert shown(between(fleet, 2, 3))[0] == [("changed", "bad", "a")]


def test_a_finding_says_since_when_it_is_there_and_which_driver_came_with_it(fleet):
    fleet.stored({"a": facts(), "b": facts(), "c": facts()}, [])
    new = facts("580.65.06")
    fleet.stored(
        {"a": new, "b": new, "c": new},
        [finding("bad", "a", where={"index": 3}), finding("bad", "b", where={"index": 3})],
    )
    with reading(fleet.db) as connection:
        (one,) = beginnings(connection, "bad")
        assert (one.hosts, one.place, one.since_first_look, one.ended_in) == (
            ("a", "b"),
            {"index": 3},
            False,
            None,
        )
        (change,) = one.together
        assert (change.fact, change.before, change.now, change.on, change.others) == (
            "driver.loaded.version",
            "535.154.05",
            "580.65.06",
            2,
            1,
        )
        assert [(event.what, event.text) for event in events(connection, "a")] == [
            ("fact", "driver.loaded.version: 535.154.05 -> 580.65.06"),
            ("new", "error: What bad says [bad]"),
        ]
        assert [row.rule for row in holding(connection, "a")] == ["bad"]


def test_what_was_there_at_the_first_look_has_no_change_that_came_with_it(fleet):
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    with reading(fleet.db) as connection:
        (one,) = beginnings(connection, "bad")
    assert one.since_first_look and one.together == ()


def test_a_finding_that_comes_and_goes_is_reported(fleet):
    for number in range(6):
        fleet.stored(
            {"a": facts(), "b": facts()},
            [finding("bad", "b"), *([] if number % 2 else [finding("worse", "a")])],
        )
    with reading(fleet.db) as connection:
        (one,) = flapping(connection)
        assert (one.rule, one.times, one.holds, one.hosts) == ("worse", 3, False, ("a",))
        assert flapping(connection, 3) == []


def test_busbw_of_a_node_is_held_against_its_own_past(fleet):
    for busbw in (480.0, 482.0, 400.0):
        fleet.stored({"a": facts(), "b": facts()}, [], smoke={"a": busbw, "b": 300.0})
    with reading(fleet.db) as connection:
        slow, same = own_pasts(connection)
        assert (slow.host, slow.busbw_gb_s, slow.median_gb_s, slow.earlier, slow.slower) == (
            "a",
            400.0,
            481.0,
            2,
            True,
        )
        assert (same.host, same.ratio, same.slower) == ("b", 1.0, False)
        assert [one.host for one in own_pasts(connection, "b")] == ["b"]


def test_a_fact_that_could_not_be_read_is_no_change_of_the_node(fleet):
    unread = {
        "probe": {
            "status": "ok",
            "unread": [{"field": "release", "status": "denied", "reason": "no"}],
        },
        "release": None,
    }
    fleet.stored({"a": facts()})
    fleet.stored({"a": facts() | {"kernel": unread}})
    fleet.stored({"a": facts() | {"kernel": {"probe": {"status": "timeout"}}}})
    fleet.stored({"a": facts()})
    for before, now in ((1, 2), (2, 3), (3, 4), (1, 4)):
        assert [
            one.fact for one in between(fleet, before, now).facts if one.fact == "kernel.release"
        ] == []


def test_a_document_that_the_judge_refused_says_nothing_of_its_node(fleet):
    fleet.stored({"a": facts()}, [finding("bad", "a")])
    fleet.stored(
        {"a": facts("1.2.3")},
        [finding("node-answer-invalid", "a")],
        unread=("a",),
        rules=("bad", "node-answer-invalid"),
    )
    assert shown(between(fleet)) == ([("new", "node-answer-invalid", "a")], [])


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
    fleet.stored({"a": facts()})
    fleet.stored({"a": facts() | {"kernel": kernel}})
    fleet.stored({"a": facts("580")})
    assert ("driver.loaded.version", "535.154.05", "580", "a") in shown(between(fleet, 1, 3))[1]
    between(fleet, 1, 2)


def test_a_healthy_node_that_only_a_faulty_one_sets_apart_has_no_finding(fleet):
    fleet.stored({"a": facts(), "b": facts()}, [])
    run = fleet.run(
        {"a": facts(), "b": facts()}, [finding("differ", None, scope="group", hosts=["a", "b"])]
    )
    document = json.loads((run / "findings.json").read_text())
    (run / "findings.json").write_text(
        json.dumps(document | {"node_verdicts": {"error": ["a"], "healthy": ["b"]}})
    )
    record(run, fleet.db)
    assert shown(between(fleet))[0] == [("new", "differ", "a")]


def test_findings_that_name_no_node_belong_to_the_fleet(fleet):
    fleet.stored({"a": facts()}, [])
    fleet.stored({"a": facts()}, [finding("bad", None, scope="fleet", hosts=[])])
    assert shown(between(fleet))[0] == [("new", "bad", "")]


def test_nodes_that_come_and_go_are_named(fleet):
    fleet.stored({"a": facts(), "b": facts()}, [])
    fleet.stored({"b": facts(), "c": facts()}, [])
    changes = between(fleet)
    assert (changes.first_seen, changes.not_asked, changes.facts) == (("c",), ("a",), ())
    fleet.stored({"a": facts(), "b": facts(), "c": facts()}, [])
    later = between(fleet, 2, 3)
    assert (later.first_seen, later.asked_again, later.not_asked) == ((), ("a",), ())


def test_a_node_that_only_one_of_the_two_runs_asked_is_named_whatever_a_run_between_asked(fleet):
    """a: asked before, between, and not after; d: not before, between, and after; e: only between,
    so neither of the two."""
    for asked in ("bde", "ab", "abcde", "bcd"):
        fleet.stored({host: facts() for host in asked}, [])
    changes = between(fleet, 2, 4)
    assert (changes.first_seen, changes.asked_again, changes.not_asked) == (("c",), ("d",), ("a",))
    with reading(fleet.db) as connection:
        rows = run_rows(connection)
    lines = render_changes(rows[1], rows[3], changes, "unhang", 120)
    assert {"FIRST SEEN  c", "ASKED       d in the later run alone"} < set(lines)
    assert "NOT ASKED   a in the later run: what holds there now is not known" in lines


def test_runs_are_found_by_id_its_beginning_folder_and_time(fleet):
    for day in (18, 20, 21):
        fleet.stored({"a": facts()}, [], day=day)
    with reading(fleet.db) as connection:
        first, second, third = run_rows(connection)
        assert (
            run_named(connection, first.id)
            == run_named(connection, first.folder)
            == run_named(connection, "20261118")
            == first
        )
        assert run_named(connection, "latest") == third
        assert run_before(connection, "yesterday", NOW) == second
        assert run_before(connection, "2d", NOW) == first
        assert run_before(connection, "1m", NOW) == run_before(connection, "1y", NOW) == first
        assert run_before(connection, "2026-01-01", NOW) == first
        with pytest.raises(UserError, match="expected one run, found 3"):
            run_named(connection, "2026")
        with pytest.raises(UserError, match="did you mean"):
            run_named(connection, first.id[:-1] + "9")


@pytest.mark.parametrize("since", ["", "soon", "3", "0d", "99999999d", "2026-13-01", "-1d"])
def test_a_time_that_is_none_is_refused(since):
    with pytest.raises(UserError, match="--since: expected yesterday"):
        moment_of(since, NOW)


def test_what_a_node_says_is_stored_as_it_is_and_never_run(fleet):
    nasty = "'; DROP TABLE runs; --\x1b[2J\u202e"
    fleet.stored(
        {nasty.replace("/", ""): facts(nasty)},
        [finding("bad", nasty, found=nasty, where={nasty: nasty})],
    )
    fleet.stored({nasty: facts("580")}, [])
    changes = between(fleet)
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
    fleet.stored(
        {"a": facts()}, [finding("bad", "a", where=first), finding("worse", "a", where=setting)]
    )
    fleet.stored(
        {"a": facts()},
        [
            finding("bad", "a", where=moved),
            finding("worse", "a", where={**setting, "path": "environment.settings[4]", "line": 9}),
        ],
    )
    assert shown(between(fleet)) == ([], [])
    fleet.stored(
        {"a": facts()},
        [
            finding("bad", "a", where={**moved, "pci_address": "0000:0c:00.0"}),
            finding("worse", "a", where={"path": "odd[1]"}),
        ],
    )
    assert shown(between(fleet, 2, 3))[0] == [
        ("new", "bad", "a"),
        ("new", "worse", "a"),
        ("resolved", "bad", "a"),
        ("resolved", "worse", "a"),
    ]


def test_a_place_that_an_older_unhang_stored_is_the_same_place(fleet):
    where = {"path": "gpus.devices[3]", "index": 3, "uuid": "GPU-3"}
    fleet.stored({"a": facts()}, [finding("bad", "a", where=where)])
    with writing(fleet.db) as connection:
        connection.execute("UPDATE problems SET place = ?", (json.dumps(where),))
    fleet.stored({"a": facts()}, [finding("bad", "a", where=where)])
    assert shown(between(fleet)) == ([], [])
    fleet.stored({"a": facts()}, [finding("bad", "a", severity="critical", where=where)])
    assert shown(between(fleet, 1, 3))[0] == [("changed", "bad", "a")]


def test_a_page_tells_of_each_node_what_changed_within_the_last_runs(fleet):
    fleet.stored({"a": facts(), "b": facts()}, [finding("bad", "b")])
    last = fleet.stored(
        {"a": facts("580.65.06"), "b": facts(), "c": facts()},
        [finding("worse", "a", where={"index": 3}), finding("bad", "c")],
    )
    pasts = node_pasts(last, str(fleet.db))
    when = pasts["a"][0][:16]
    assert pasts["a"] == (
        f"{when} driver.loaded.version: 535.154.05 -> 580.65.06",
        f"{when} new: error: What worse says: GPU 3",
    )
    assert pasts["b"] == (f"{when} resolved: error: What bad says",)
    assert set(pasts) == {"a", "b"}  # c was met for the first time
    assert node_pasts(last, str(fleet.db.with_name("none.db"))) == {}
    for _ in range(12):
        last = fleet.stored({"a": facts("1"), "b": facts()}, [])
        last = fleet.stored({"a": facts("2"), "b": facts()}, [])
    assert len(node_pasts(last, str(fleet.db))["a"]) == 8


def machine(hostname, machine_id=None, **more):
    """Facts of a machine with a name of its own."""
    return facts(
        node={"probe": {"status": "ok"}, "hostname": hostname, "machine_id": machine_id}, **more
    )


def test_two_machines_that_are_called_localhost_are_two_nodes(fleet):
    first = {"localhost": machine("web1", "1f2e3d4c5b6a")}
    fleet.stored(first, [finding("bad", "localhost")])
    last = fleet.stored(
        {"localhost": machine("9ad0c1", driver="580.65.06")}, [finding("worse", "localhost")]
    )
    found, changed = shown(between(fleet))
    assert (found, changed) == ([("new", "worse", "localhost@9ad0c1")], [])
    assert between(fleet).first_seen == ("localhost@9ad0c1",)
    assert node_pasts(last, str(fleet.db)) == {}  # it was met for the first time
    last = fleet.stored(
        first | {"localhost": machine("web1", "1f2e3d4c5b6a", driver="580.65.06")}, []
    )
    assert shown(between(fleet, 2, 3)) == (
        [("resolved", "bad", "localhost@web1-1f2e3d4c")],
        [("driver.loaded.version", "535.154.05", "580.65.06", "localhost@web1-1f2e3d4c")]
    )  # fmt: skip
    when = node_pasts(last, str(fleet.db))["localhost"][0][:16]
    assert node_pasts(last, str(fleet.db)) == {
        "localhost": (
            f"{when} driver.loaded.version: 535.154.05 -> 580.65.06",
            f"{when} resolved: error: What bad says",
        ),
    }


def test_a_localhost_of_which_nothing_was_read_keeps_its_bare_name(fleet):
    fleet.stored({"localhost": "failed", "a": machine("a", "1f2e3d4c")}, [])
    with reading(fleet.db) as connection:
        assert {name for (name,) in connection.execute("SELECT name FROM hosts")} == {
            "localhost",
            "a",
        }


@pytest.mark.parametrize(
    ("other", "kept"), [(("web1", "1f2e3d4c5b6a"), ()), (("9ad0c1", None), ("localhost@9ad0c1",))]
)
def test_what_an_older_unhang_kept_of_localhost_goes_on_for_the_same_machine_alone(
    fleet, other, kept
):
    fleet.stored({"localhost": machine("web1", "1f2e3d4c5b6a")}, [finding("bad", "localhost")])
    with writing(fleet.db) as connection:
        connection.execute("UPDATE hosts SET name = 'localhost'")  # as it was written
    fleet.stored({"localhost": machine(*other)}, [finding("bad", "localhost")])
    assert between(fleet).first_seen == kept
    assert shown(between(fleet))[0] == [("new", "bad", name) for name in kept]


def test_nodes_that_only_one_of_two_inventories_has_are_named(fleet):
    fleet.stored({"a": facts()}, [])
    other = fleet.run({"b": facts()}, [])
    (other / "run.json").write_text(
        (other / "run.json").read_text().replace('["i"]', '["another"]')
    )
    record(other, fleet.db)
    assert (between(fleet).first_seen, between(fleet).not_asked) == (("b",), ("a",))
    fleet.stored({"a": facts()}, [])
    later = between(fleet, 2, 3)
    assert (later.asked_again, later.not_asked) == (("a",), ("b",))
    with reading(fleet.db) as connection:
        before, now = run_rows(connection)[1:]
    shown_lines = "\n".join(render_changes(before, now, later, "unhang", 120))
    assert (
        "NOT ASKED   b in the later run (another inventory): what holds there now is not known"
        in shown_lines
    )
