"""Released nodes soak before the next wave and are asked again after it; a fault counts against the
failure limit, and a killed controller forgets nothing."""

from __future__ import annotations

import json
import types

import pytest
from rollout_plans import GROUPS, Recorded, planned

from unhang.act.rollout.baseline import baseline_of, to_document
from unhang.act.rollout.floor import Service
from unhang.act.rollout.journal import append, read_journal
from unhang.act.rollout.kept import PROOFS
from unhang.act.rollout.look_back import due, left_drained, look_back, note_service
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.soak import parse_soak, seconds_left, soaking_before
from unhang.act.rollout.status import exit_code, status_of
from unhang.act.rollout.status_table import render_status
from unhang.act.rollout.steps import BEGUN, DONE, FAILED, KEPT, LOST, RELEASED, SOAK, Entry
from unhang.act.rollout.targets import waves_of
from unhang.core.errors import UserError
from unhang.core.run.record import FINDINGS, read_findings_record

RELEASE = "2026-11-20T08:00:00Z"
UNTIL, LATER = "2026-11-20T08:10:00Z", "2026-11-20T08:12:00Z"
USUAL = 600
SECTIONS = {"probe": {"status": "ok"}}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("10m", USUAL), ("5m", 300), ("0", 0), ("", 0)],
)
def test_a_soak_is_one_time_for_all_nodes(given, wanted):
    assert parse_soak(given) == wanted


@pytest.mark.parametrize("given", ["10", "a", "10m,2m", "-5m", "1m,"])
def test_a_soak_that_is_no_time_is_refused(given):
    with pytest.raises(UserError, match=r"^--soak takes"):
        parse_soak(given)


def released(plan, *hosts, at=RELEASE):
    """The state after these hosts were changed, proved and released."""
    entries = []
    for host in hosts:
        for step, evidence in (
            ("lock", {"fencing": 7, "boot_id": "b1"}),
            ("drain", {"drained": True, "owned": True}),
            ("apply", {"boot_id": "b1", "needs_reboot": False}),
            *(
                (proof, {"boot_id": "b1", "healthy": True})
                for proof in ("audit", "smoke_alone", "smoke_together", "audit_again")
            ),
            ("release", {"boot_id": "b1", "drained": False, "owned": False}),
        ):
            entries += [
                Entry(at, host, step, BEGUN, 7, {"boot_id": "b1"}),
                Entry(at, host, step, DONE, 7, evidence),
            ]
    return RolloutState(waves_of(plan)).take([Entry(at, "", "rollout", BEGUN, 1), *entries])


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path)


def test_a_wave_waits_until_the_canary_has_soaked_and_was_asked(plan):
    standing = released(plan, "a")
    found = soaking_before(standing, plan, USUAL, 1)
    assert (found.until, found.hosts) == (UNTIL, ("a",))
    assert soaking_before(standing, plan, USUAL, 0) is None
    standing.take([Entry(LATER, "a", SOAK, DONE, 0, {"until": UNTIL})])
    assert soaking_before(standing, plan, USUAL, 1) is None
    assert standing.node("a").state == RELEASED


def test_a_soak_of_0_waits_for_nobody_and_asks_nobody(plan):
    assert soaking_before(released(plan, "a", "b", "c"), plan, 0, 2) is None


def test_before_each_later_wave_the_nodes_of_all_earlier_ones_are_asked_again(plan):
    standing = released(plan, "a").take([Entry(UNTIL, "a", SOAK, DONE, 0, {"until": UNTIL})])
    later = released(plan, "b", at="2026-11-20T09:00:00Z").node("b")
    standing._note(later)
    assert soaking_before(standing, plan, USUAL, 2).hosts == ("a", "b")


def test_a_clock_that_was_set_back_makes_nobody_wait_longer_than_the_soak():
    assert seconds_left(UNTIL, "2026-11-20T08:09:00Z", USUAL) == 60
    assert seconds_left(UNTIL, UNTIL, USUAL) == 0
    assert seconds_left(UNTIL, "2026-11-19T08:00:00Z", USUAL) == 0


def test_a_fault_after_the_release_counts_against_the_limit_and_is_not_proved(plan):
    from unhang.act.rollout.failure_limit import Limits, stop_reason

    standing = released(plan, "a", "b").take(
        [
            Entry(LATER, host, SOAK, FAILED, 0, {"why": "it has booted", "until": UNTIL})
            for host in ("a", "b")
        ]
    )
    assert (standing.node("a").state, standing.node("a").why) == (LOST, "soak: it has booted")
    assert (
        stop_reason(standing, 1, Limits(9, frozenset("a")))
        == "not proved healthy among the canaries: a (failed after its release)"
    )
    assert (
        stop_reason(standing, 1, Limits(1))
        == "not proved healthy: a (failed after its release), b (failed after its release); at most"
        " 1 may be"
    )
    assert stop_reason(standing, 1, Limits(2)) is None
    standing.take([Entry(LATER, "a", SOAK, DONE, 0, {"until": ""})])
    assert (standing.node("a").state, standing.node("a").fell) == (RELEASED, False)


@pytest.fixture
def recorded(tmp_path):
    """A rollout whose canary was just released."""
    found = Recorded(tmp_path, planned(tmp_path))
    found.begin()
    found.begin_wave(["a"], GROUPS, "0", USUAL)
    found.through("a")
    return found


def status(recorded):
    return status_of(recorded.plan, read_journal(recorded.folder), "unhang remediate --undo RUN")


def next_controller(recorded, tmp_path, boot="a-boot2", code="ok"):
    """The controller after this one; its audit has read the canary in this boot."""
    run = tmp_path / "read"
    (run / "nodes").mkdir(parents=True, exist_ok=True)
    sections = {"node": {**SECTIONS, "boot_id": boot}}
    document = {
        "schema": "unhang/node/1",
        "host": "a",
        "groups": [],
        "policy": {},
        "status": code,
        "message": "",
        "facts": {"sections": sections},
    }
    (run / "nodes" / "a.json").write_text(json.dumps(document))
    found = Recorded(recorded.folder, recorded.plan)
    object.__setattr__(found, "read", run)
    found.begin()
    return found


def age(recorded, century="19"):
    """The soak is over: the release lies a century back; or ahead, for the clock was set back."""
    path = recorded.folder / "journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["at"] = line["at"].replace("20", century, 1)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_next_wave_is_held_and_the_soak_is_in_the_journal_once(recorded):
    held = recorded.begin_wave(["b", "c"], GROUPS, "0", USUAL)
    recorded.begin_wave(["b", "c"], GROUPS, "0", USUAL)
    assert held["begin"] == []
    assert held["stopped"].startswith("a soaks until 2")
    [soak] = [one for one in read_journal(recorded.folder).entries if one.step == SOAK]
    assert (soak.status, soak.evidence["hosts"], soak.evidence["wave"]) == (BEGUN, ["a"], "wave 1")
    assert recorded.standing().stopped is None


def test_a_soak_is_seen_in_the_status_also_after_the_controller_was_killed(recorded):
    recorded.begin_wave(["b", "c"], GROUPS, "0", USUAL)
    found = status(recorded)
    [row] = [one for one in found["hosts"] if one["host"] == "a"]
    until = recorded.standing().soak.evidence["until"]
    assert (row["state"], row["step"], row["until"]) == ("released", "soak", until)
    assert exit_code(found) == 3
    assert (
        f"a soaks until {until} (back in service), then is asked again, and wave 1 begins"
        in render_status(found)
    )
    again = Recorded(recorded.folder, recorded.plan)
    again.begin()
    assert again.begin_wave(["b", "c"], GROUPS, "0", USUAL)["stopped"] == f"a soaks until {until}"


def test_the_soak_of_the_last_wave_is_waited_for_at_the_end(recorded):
    assert recorded.soak_at_the_end(USUAL).startswith("a soaks until ")
    assert recorded.standing().soak.evidence["wave"] == ""


def test_nobody_is_asked_before_the_soak_is_over(recorded, tmp_path):
    assert due(next_controller(recorded, tmp_path), USUAL) is None


@pytest.mark.parametrize("century", ["19", "21"])
def test_a_canary_that_is_well_after_its_soak_lets_the_next_wave_begin(recorded, tmp_path, century):
    age(recorded, century)
    after = next_controller(recorded, tmp_path)
    asked = due(after, USUAL)
    assert asked.hosts == ("a",)
    assert (
        look_back(after, asked, None)
        == "a: answers in the boot of its proof, of which no record is left"
    )
    assert after.begin_wave(["b"], GROUPS, "0", USUAL)["begin"] == ["b"]
    assert due(after, USUAL) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("boot", "code", "service", "why"),
    [
        (
            "other",
            "ok",
            None,
            (
                "it has booted since its release: its boot is other, not a-boot2, in which it was proved"
            ),
        ),
        ("a-boot2", "unreachable", None, "it did not answer after its release"),
        (
            "a-boot2",
            "ok",
            Service(frozenset(), {"a": "slurm (Not responding)"}),
            "it is out of service, and takes no jobs: slurm (Not responding)",
        ),
    ],
)
def test_a_canary_with_a_fault_after_its_release_stops_what_follows_and_is_not_said_to_be_proved(
    recorded, tmp_path, boot, code, service, why
):
    age(recorded)
    after = next_controller(recorded, tmp_path, boot, code)
    assert "1 node failed after its release" in look_back(after, due(after, USUAL), service)
    assert after.standing().node("a").why == f"soak: {why}"
    stopped = after.begin_wave(["b", "c"], GROUPS, "0", USUAL)
    assert (stopped["begin"], stopped["stopped"]) == (
        [],
        "not proved healthy among the canaries: a (failed after its release)",
    )
    text = render_status(status(after))
    assert "0 of 3 nodes proved healthy" in text
    assert "proved and released, and it has failed since" in text
    again = next_controller(recorded, tmp_path)
    asked = due(again, 0)
    assert asked.hosts == ("a",)
    look_back(again, asked, None)
    assert again.standing().node("a").state == RELEASED


def finding(rule, severity="error"):
    return {
        "rule": rule,
        "severity": severity,
        "scope": "node",
        "verdict": "fail",
        "host": "a",
        "expected": "none",
        "found": "79",
    }


def write_findings(folder, *rows):
    (folder / FINDINGS).write_text(json.dumps({"run": {"id": "r"}, "findings": rows}))


def asked_again(recorded, tmp_path, before=(), at_the_proof=(), now=(), hardware=None):
    """The canary after its soak. before, at_the_proof, now: findings of the audit before the
    rollout, of the proof, and of the quick check; hardware: seen by the proof."""
    age(recorded)
    after = next_controller(recorded, tmp_path)
    write_findings(recorded.folder, *before)
    write_findings(after.read, *at_the_proof)
    seen = baseline_of("r", read_findings_record(after.read).findings, "a", hardware or {})
    (recorded.folder / PROOFS).mkdir()
    (recorded.folder / PROOFS / "a.json").write_text(json.dumps(to_document(seen)))
    write_findings(after.read, *now)
    line = look_back(after, due(after, USUAL), None)
    return types.SimpleNamespace(line=line, node=after.standing().node("a"), after=after)


def test_a_new_serious_finding_after_the_release_is_a_fault(recorded, tmp_path):
    found = asked_again(
        recorded, tmp_path, at_the_proof=[finding("old")], now=[finding("old"), finding("xid")]
    )
    assert found.node.why == (
        "soak: new: xid (error): the check found 79, and needs none; a person has to look"
    )


def test_a_repaired_error_that_is_back_is_a_fault_and_never_as_proved(recorded, tmp_path):
    found = asked_again(recorded, tmp_path, before=[finding("pin")], now=[finding("pin")])
    assert found.line == "1 node failed after its release"
    assert (found.node.state, found.node.fell) == (LOST, True)
    assert found.node.why.startswith("soak: new: pin (error)")
    assert found.after.begin_wave(["b"], GROUPS, "0", USUAL)["begin"] == []


def test_a_node_as_its_proof_saw_it_is_as_proved(recorded, tmp_path):
    left = [finding("left"), finding("hint", "warning")]
    found = asked_again(recorded, tmp_path, at_the_proof=left[:1], now=left)
    assert found.line == "a is as proved"
    assert found.node.state == RELEASED


def test_hardware_that_the_proof_saw_and_that_is_gone_is_a_fault(recorded, tmp_path):
    found = asked_again(recorded, tmp_path, hardware={"numa_nodes": 2})
    assert found.node.why == "soak: lost: no longer known: the node's NUMA nodes"


def test_a_journal_with_a_soak_is_read_by_every_controller(recorded):
    append(recorded.folder, recorded.epoch, Entry(RELEASE, "a", SOAK, DONE, 0, {}))
    assert types.SimpleNamespace(**vars(recorded.standing().node("a"))).state == RELEASED


def test_a_kept_node_that_takes_jobs_again_is_named_and_stays_kept(tmp_path):
    recorded = Recorded(tmp_path, planned(tmp_path))
    recorded.begin()
    recorded.begin_wave(["a"], GROUPS, "0", USUAL)
    recorded.through("a", failing="audit")
    assert (left_drained(recorded), recorded.standing().node("a").state) == (["a"], KEPT)
    assert note_service(recorded, Service(frozenset("b"), {"a": "unhang"})) == ""
    assert "left drained" in render_status(status(recorded))
    line = note_service(recorded, Service(frozenset("a")))
    assert line.startswith("a takes jobs again although it was left drained; seen at 2")
    assert note_service(recorded, Service(frozenset("a"))) == line
    found = status(recorded)
    [row] = [one for one in found["hosts"] if one["host"] == "a"]
    assert (row["state"], row["drained"]) == (KEPT, False)
    assert row["meaning"].endswith(line.removeprefix("a "))
    assert recorded.standing().node("a").why == "audit: it broke"
    note_service(recorded, Service(frozenset(), {"a": "alice (broken)"}))
    assert "left drained with the reason" in render_status(status(recorded))
