"""`unhang remediate --status`: the state and next step of each node, from plan and journal only,
while the rollout runs and after any crash."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rollout_plans import EVIDENCE, GROUPS, HOSTS, Recorded, planned

from unhang.act.commands import remediate
from unhang.act.rollout.conductor import begin
from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.progress import Progress
from unhang.act.rollout.status import NEXT_OF, NOW, exit_code, status_of
from unhang.act.rollout.status_table import render_status
from unhang.act.rollout.status_view import describe_rows, rollout_view
from unhang.act.rollout.steps import MEANINGS, StepResult
from unhang.audit.report.html import render_page
from unhang.cli import main
from unhang.core.errors import UserError
from unhang.core.run.own_runs import mark_as_own
from unhang.core.schemas.check import check_schema

UNDO = "unhang remediate --undo runs/r1"


@pytest.fixture
def recorded(tmp_path):
    run = {"schema": "unhang/run/1", "id": "x", "hosts": [], "inventory": ["inventory/mycluster"]}
    (tmp_path / "run.json").write_text(json.dumps(run))
    return Recorded(tmp_path, planned(tmp_path))


def status(recorded):
    found = status_of(recorded.plan, read_journal(recorded.folder), UNDO)
    assert list(check_schema(found, "rollout-status-1")) == []
    return found


def row(recorded, host="a"):
    return next(one for one in status(recorded)["hosts"] if one["host"] == host)


def test_before_it_begins_every_node_is_to_come(recorded):
    assert status(recorded)["counts"] == {"to come": len(HOSTS)}
    assert "rollout of run 20261120T070000Z-0123456789: not begun" in render_status(
        status(recorded)
    )
    assert exit_code(status(recorded)) == 1


@pytest.mark.parametrize("step", list(EVIDENCE)[:10])
def test_after_a_death_in_any_step_the_step_and_what_comes_next_are_named(recorded, step):
    recorded.begin()
    recorded.through("a", until=step)
    found = row(recorded)
    assert (found["state"], found["step"]) == ("unfinished", step)
    assert found["next"].startswith("the same command goes on: it ")
    text = render_status(status(recorded))
    assert (
        "begun on another machine, so it is not seen here whether the command still runs there, on"
        " a; if not, give it again" in text
    )
    assert f"now      {NOW[step]} since " in text


def test_until_when_a_step_may_take_is_shown_with_it(recorded):
    recorded.begin()
    recorded.through("a", until="reboot")
    order = recorded.ask("a", "reboot", GROUPS, "9", 3600)
    found = row(recorded)
    assert order.step == found["step"] == "reboot"
    assert found["until"] == read_journal(recorded.folder).entries[-1].evidence["until"] != ""
    assert (
        f"now      rebooting since {found['since']}, back by {found['until']}, or it has failed\n"
        in render_status(status(recorded))
    )
    recorded.begin()
    recorded.through("a")
    assert row(recorded)["until"] == ""


def test_a_node_that_booted_since_its_proof_is_proved_again_by_the_same_command(recorded):
    recorded.begin()
    recorded.through("a", until="release")
    order = recorded.ask("a", "release", GROUPS, "9")
    recorded.record(
        order, StepResult("failed", {"why": "it has booted since", "boot_id": "a-another-boot"})
    )
    found = row(recorded)
    again = (
        "it stays drained, for it has booted since its proof; started again, the same command"
        " proves it again, then gives it back"
    )
    assert (found["state"], found["next"], found["drained"]) == ("unfinished", again, True)
    recorded.begin()
    recorded.through("a", until="audit")
    assert row(recorded)["step"] == "audit"


def test_a_node_that_could_not_be_released_is_released_by_the_same_command(recorded):
    recorded.begin()
    recorded.through("a", failing="release")
    assert (row(recorded)["state"], row(recorded)["next"]) == (
        "unfinished",
        "the same command goes on: it releases it",
    )


def test_a_node_that_is_proved_names_what_it_came_to_and_what_takes_it_back(recorded):
    recorded.begin()
    recorded.through("a")
    found = row(recorded)
    assert (found["state"], found["gone"], found["running"]) == (
        "released",
        ["policy-driver-version"],
        {"driver": "580.95.05"},
    )
    assert found["boots"] == ["reboot, out of a-boot"]
    text = render_status(status(recorded))
    assert "versions gpu_driver 535.1 -> 580.95.05" in text
    assert f"  {UNDO}\n" in text


def test_what_takes_it_back_reaches_the_node_as_the_rollout_did(recorded, tmp_path):
    evidence = {"by": "ops@ctl", "options": ["--become", "--become-method=su -l"]}
    object.__setattr__(
        recorded, "epoch", begin(tmp_path, HOSTS, evidence, lambda _holder: True, "")["epoch"]
    )
    recorded.through("a")
    assert (
        row(recorded)["undo"]
        == f"{UNDO} --ansible=--become '--ansible=--become-method=su -l' --host a"
    )
    assert row(recorded, "b")["undo"] == ""


def test_a_node_that_refuses_the_connecting_user_needs_root(recorded):
    recorded.begin()
    order = recorded.ask("a", "lock", GROUPS, "9")
    recorded.record(
        order,
        StepResult(
            "failed", {"why": "Lock the node: the folder may not be written", "needs_root": True}
        ),
    )
    assert (row(recorded)["state"], row(recorded, "b")["next"]) == (
        "deferred",
        "it begins when its wave may",
    )
    assert row(recorded)["next"].endswith(
        "the same command, with root on the node: --ansible=--become, or ansible_become: true in"
        " the inventory"
    )


def test_a_text_about_permissions_alone_is_no_reason_to_ask_for_root(recorded):
    recorded.begin()
    order = recorded.ask("a", "lock", GROUPS, "9")
    recorded.record(
        order,
        StepResult(
            "failed", {"why": "Lock the node: the site's hook printed [Errno 13] Permission denied"}
        ),
    )
    assert row(recorded)["state"] == "deferred"
    assert "--become" not in row(recorded)["next"]


def test_who_is_left_drained_says_why_and_who_has_to_look(recorded):
    recorded.begin()
    recorded.through("a", failing="smoke_alone")
    found = row(recorded)
    assert (found["state"], found["why"], found["drained"]) == (
        "kept",
        "smoke_alone: it broke",
        True,
    )
    assert found["boots"] == ["reboot, out of a-boot", "reboot of the rollback, out of a-boot2"]
    assert "a person looks why" in found["next"]


def test_a_rollout_that_the_failure_limit_stopped_begins_nothing_and_says_so_of_no_node(recorded):
    recorded.begin()
    recorded.through("a", failing="smoke_alone")
    recorded.begin_wave(["b", "c"], GROUPS, "0")
    recorded.end()
    assert status(recorded)["stopped"].startswith("not proved healthy among the canaries: a")
    assert (row(recorded, "b")["state"], row(recorded, "b")["next"]) == ("to come", "")
    assert "it begins" not in render_status(status(recorded))


def test_a_rollout_that_was_ended_promises_nothing_for_any_node(recorded):
    recorded.begin()
    recorded.through("a")  # it holds no node any more
    object.__setattr__(recorded, "ends_because", "ended by ops@ctl")
    recorded.end()
    found = {one["host"]: one["next"] for one in status(recorded)["hosts"]}
    over = "nothing, for the rollout has ended; audit and plan again"
    assert found == {**dict.fromkeys(HOSTS, over), "a": ""}
    assert f"rollout of run {recorded.plan.run.id}: ended by ops@ctl, for good\n" in render_status(
        status(recorded)
    )


LONG = f"Install: expected it installed, found{' dpkg: error processing x' * 20} (ENOSPC)"


@pytest.mark.parametrize("failing", ["lock", "apply", "audit", "release"])
def test_a_reason_begins_with_its_cause_wherever_it_is_shown(recorded, failing):
    why = LONG.replace("ENOSPC", "No space left on device")
    assert why.index("No space") > 500
    recorded.begin()
    recorded.through("a", until=failing)
    order = recorded.ask("a", failing, GROUPS, "9")
    recorded.record(order, StepResult("failed", {"why": why, "boot_id": order.boot_id}))
    assert row(recorded)["why"].startswith(f"No space left on device: {failing}: Install: ")
    [line] = [
        line
        for line in Progress(recorded.plan).feed(read_journal(recorded.folder).entries)
        if f"{failing} failed" in line
    ]
    assert ": No space left on device: " in line


def test_what_two_steps_report_is_said_once(recorded):
    recorded.begin()
    recorded.through("a", until="apply")
    for step in ("apply", "roll_back"):
        order = recorded.ask("a", step, GROUPS, "9")
        recorded.record(order, StepResult("failed", {"why": "expected x, found y", "boot_id": "b"}))
    assert row(recorded)["why"] == "apply: expected x, found y"
    assert recorded.ask("a", "keep", GROUPS, "9").why == "apply: expected x, found y"


def test_a_power_cut_while_the_roles_run_is_no_boot_of_a_rollout_that_tries_no_kernel(recorded):
    recorded.begin()
    recorded.through("a", until="apply")
    order = recorded.ask("a", "apply", GROUPS, "9")
    recorded.record(order, StepResult("failed", {"why": "x", "boot_id": "another"}))
    assert (row(recorded)["boots"], status(recorded)["fleet"]["boots"]) == (
        ["trial boot, out of a-boot"],
        1,
    )
    [first, *others] = recorded.plan.hosts
    reboots = tuple(one for one in first.reboots if one.step != "trial")
    recorded.followed.plan = replace(
        recorded.plan, hosts=(replace(first, reboots=reboots), *others)
    )
    assert (row(recorded)["boots"], status(recorded)["fleet"]["boots"]) == ([], 0)


def answer(recorded, step, **evidence):
    recorded.record(recorded.ask("a", step, GROUPS, "9"), StepResult("ok", evidence))


def test_a_boot_that_was_refused_is_none_and_one_of_the_rollback_after_it_is_one(recorded):
    """reboot.target is masked: the node stays in the boot that the reboot should have ended."""
    recorded.begin()
    recorded.through("a", until="reboot")
    answer(recorded, "reboot", boot_id="a-boot", running={})
    answer(recorded, "roll_back", boot_id="a-boot", needs_reboot=True)
    order = recorded.ask("a", "reboot_back", GROUPS, "9")
    assert row(recorded)["boots"] == []
    recorded.record(order, StepResult("ok", {"boot_id": "a-boot2"}))
    assert row(recorded)["boots"] == ["reboot of the rollback, out of a-boot"]


def test_a_node_that_is_still_shutting_down_is_not_rolled_back_and_its_boot_is_recognised(recorded):
    recorded.begin()
    recorded.through("a", until="reboot")
    order = recorded.ask("a", "reboot", GROUPS, "9")
    held = {"why": "timed out", "shutting_down": True}
    recorded.record(order, StepResult("failed", held))
    assert recorded.ask("a", "roll_back", GROUPS, "9") is None
    found = row(recorded)
    assert (found["state"], found["boots"]) == ("unfinished", [])
    assert "shutting down (systemctl list-jobs on it names" in found["why"]
    recorded.begin()
    recorded.through("a")
    assert (row(recorded)["state"], row(recorded)["boots"]) == (
        "released",
        ["reboot, out of a-boot"],
    )


def test_a_node_that_has_lost_its_baseline_says_what_it_was_compared_with(recorded):
    recorded.begin()
    recorded.through("a", until="audit")
    answer(recorded, "audit", boot_id="a-boot2", healthy=True, look_at=["its /var/lib/unhang"])
    assert row(recorded)["why"] == "look at its /var/lib/unhang"


def test_words_of_a_deferred_and_of_a_lost_node_promise_no_more_than_is_known():
    assert MEANINGS["deferred"] == "the journal has no change of it"
    assert "which this one's command never does" in NEXT_OF["lost"]


def test_a_torn_line_is_reported(recorded):
    recorded.begin()
    with (recorded.folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"at":"2026')
    assert 'torn       line 2: {"at":"2026: a controller died while it wrote this' in render_status(
        status(recorded)
    )


def test_when_all_are_released_the_code_is_0(recorded):
    recorded.begin()
    for host in HOSTS:
        recorded.through(host)
    assert exit_code(status(recorded)) == 0


def test_the_fleet_has_its_bandwidth(recorded):
    recorded.begin()
    for host in ("a", "b"):
        recorded.through(host)
    recorded.through("c", failing="smoke_alone")
    fleet = status(recorded)["fleet"]
    assert (fleet["nodes"], fleet["proved_healthy"], fleet["boots"], fleet["findings"]) == (
        3,
        2,
        4,
        {"found": 3, "gone": 2},
    )
    assert fleet["bandwidth"] == [
        {
            "op": "all_reduce",
            "size_bytes": 1 << 30,
            "nodes": 2,
            "lowest_gb_s": 350.5,
            "highest_gb_s": 350.5,
        }
    ]
    assert [(one["nodes"], one["lowest_gb_s"]) for one in fleet["bandwidth_alone"]] == [(2, 340.0)]
    text = render_status(status(recorded))
    assert "fleet: 2 of 3 nodes proved healthy, 2 of 3 findings gone, 4 boots" in text
    speeds = "340.0 GB/s alone after the change (2 nodes), 350.5 GB/s in the last test (2 nodes)"
    assert f"  busbw all_reduce at 1,073,741,824 bytes: {speeds}\n" in text


def test_what_was_rolled_back_is_not_told_as_repaired_and_needs_nothing_taken_back(recorded):
    recorded.begin()
    recorded.through("a", failing="smoke_alone")
    found = row(recorded)
    assert (found["found"], found["gone"], found["running"], found["undo"]) == (
        ["policy-driver-version"],
        [],
        {},
        "",
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_says_it_and_starts_nothing(recorded, form, capsys):
    mark_as_own(recorded.folder)
    recorded.begin()
    recorded.through("a")
    before = sorted(path.name for path in recorded.folder.iterdir())
    assert main(["remediate", str(recorded.folder), "--status", "--format", form]) == 1
    output = capsys.readouterr().out
    if form == "json":
        assert json.loads(output)["schema"] == "unhang/rollout-status/1"
    else:
        assert "RELEASED: 1 node, proved healthy and released" in output
        assert f"unhang remediate --undo {recorded.folder}\n" in output
        (recorded.folder / "made-here").unlink()  # as if somebody had sent it
        main(["remediate", str(recorded.folder), "--status"])
        assert "--undo" not in capsys.readouterr().out
        mark_as_own(recorded.folder)
    assert sorted(path.name for path in recorded.folder.iterdir()) == before


def test_a_plan_that_somebody_edited_is_refused_in_one_line(recorded, capsys):
    path = recorded.folder / "plan.json"
    path.write_text(path.read_text().replace("580.95.05", "580.95.06"))
    assert main(["remediate", str(path), "--status"]) == 2
    assert "was edited since `unhang plan` wrote it" in capsys.readouterr().err


HELD = "libnvidia-ml1: unhang left 580.1 and it is 580.1 on hold now; somebody changed it since, and it stays unless the rollback names it"


@pytest.mark.parametrize(("step", "state"), [("apply", "released"), ("roll_back", "kept")])
def test_what_others_have_changed_since_is_named_of_an_undone_and_of_a_rolled_back_node(
    recorded, step, state
):
    recorded.begin()
    evidence = dict(EVIDENCE[step])
    EVIDENCE[step]["look_at"] = [HELD, *"bcdef"]
    try:
        recorded.through("a", failing="smoke_alone" if step == "roll_back" else None)
    finally:
        EVIDENCE[step].clear()
        EVIDENCE[step].update(evidence)
    assert row(recorded)["state"] == state
    assert row(recorded)["why"].endswith(f"look at {HELD}; b; c; d; and 2 more")
    assert HELD in render_status(status(recorded))


def test_the_page_shows_what_stopped_it_each_wave_and_the_step_the_boots_and_the_next_of_each_node(
    recorded,
):
    (recorded.folder / "run.json").write_text(
        json.dumps(
            {"schema": "unhang/run/1", "id": "x", "hosts": [], "inventory": ["inventory/mycluster"]}
        )
    )
    recorded.begin()
    recorded.through("a", until="reboot")
    view = rollout_view(recorded.folder)
    [shown] = [row for row in view["rows"] if row["hosts"] == "a"]
    assert (shown["now"], shown["next"]) == (
        f"rebooting since {row(recorded)['since']}",
        "the same command goes on: it reboots it, unless it has booted since",
    )
    assert view["waves"] == ["canary 1: 1 unfinished", "wave 1: 2 to come"]
    assert_shown(view, "ops@ctl", *view["waves"], shown["now"], shown["next"])
    recorded.begin()
    recorded.through("a", failing="smoke_alone")
    stopped = recorded.begin_wave(["b", "c"], GROUPS, "0")["stopped"]
    assert_shown(
        rollout_view(recorded.folder),
        f"stopped    {stopped}",
        "canary 1: 1 kept",
        "<td>reboot, reboot of the rollback</td>",
        "a person looks why",
    )


def assert_shown(view, *texts):
    page = render_page({"findings": [], "node_verdicts": {}, "causes": []}, {}, [], rollout=view)
    assert [text for text in texts if text not in page] == []


def test_the_page_has_the_bandwidth_of_both_smoke_tests(recorded):
    recorded.begin()
    recorded.through("a")
    shown = next(one for one in describe_rows(status(recorded)["hosts"]) if one["hosts"] == "a")
    assert [shown[name].split()[1] for name in ("alone", "bandwidth")] == [
        "340.0",
        "350.5",
    ]


def test_the_page_shows_the_rollout_node_by_node(recorded):
    (recorded.folder / "run.json").write_text(
        json.dumps(
            {"schema": "unhang/run/1", "id": "x", "hosts": [], "inventory": ["inventory/mycluster"]}
        )
    )
    mark_as_own(recorded.folder)
    assert rollout_view(recorded.folder) is None
    recorded.begin()
    for host in ("a", "b"):
        recorded.through(host)
    view = rollout_view(recorded.folder)
    assert [(row["state"], row["hosts"]) for row in view["rows"]] == [
        ("released", "a,b"),
        ("to come", "c"),
    ]
    page = render_page({"findings": [], "node_verdicts": {}, "causes": []}, {}, [], rollout=view)
    assert "fleet: 2 of 3 nodes proved healthy, 2 of 3 findings gone" in page
    assert "gpu_driver 535.1 -&gt; 580.95.05" in page
    assert "all_reduce 350.5 GB/s at 1,073,741,824 bytes" in page
    assert f"remediate --undo {recorded.plan.run.id} --host a" in page


@pytest.mark.parametrize(
    ("wave", "failing", "soak", "code", "says"),
    [
        (HOSTS, None, "0", 0, "3 released"),
        (HOSTS[:1], "audit", "0", 1, "1 kept, 2 to come"),  # a canary: no other node may begin
        (HOSTS[:2], None, "0", None, ""),
        (HOSTS, None, "1h", None, ""),  # released nodes are yet to be asked again
    ],
)
def test_a_timer_that_goes_on_with_an_ended_rollout_ends_in_a_line(
    recorded, wave, failing, soak, code, says, capsys, monkeypatch
):
    def goes_on(*_):
        raise UserError("it goes on")

    monkeypatch.setattr(remediate, "refuse_another_than_previewed", goes_on)
    recorded.begin()
    for host in wave:
        recorded.through(host, failing=failing)
    recorded.end()
    command = ["remediate", str(recorded.folder / "plan.json"), "--apply", "--soak", soak]
    before = (recorded.folder / "journal.jsonl").read_bytes()
    found, written = main(command), capsys.readouterr()
    if code is None:
        assert (found, written.err) == (2, "unhang: it goes on\n")
        return
    assert found == code, written.err
    assert written.out == ""
    assert written.err.startswith(f"unhang: nothing is left to do: {says}; each node: ")
    assert written.err.count("\n") == 1
    assert (recorded.folder / "journal.jsonl").read_bytes() == before


def test_a_node_that_others_have_booted_has_one_advice(recorded):
    recorded.begin()
    answer(recorded, "lock", fencing=7, boot_id="another")
    answer(recorded, "release", drained=False, owned=False)
    found = row(recorded)
    assert (found["state"], found["next"]) == ("deferred", "")
    assert found["why"].endswith("not a-boot; audit it again, then unhang plan")
