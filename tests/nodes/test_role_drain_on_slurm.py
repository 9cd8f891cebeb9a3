"""The role drain on a real Slurm: the nodes that it drains, those that it does not touch, and the
jobs that it waits for."""

from __future__ import annotations

import json
import re
import sys
import threading

import audits
import pytest
import slurm_here
from fakes.role_play import drain_tasks

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)
QUICK = {
    "drain_adapter": "slurm",
    "drain_run": "r1",
    "drain_why": "driver 580.95.05",
    "drain_poll_s": 1,
    "drain_wait_timeout_s": 3,
}
# at the end the mark of its text: what somebody adds or takes away is seen
REASON = "unhang r1: driver 580.95.05 (359f69)"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def role(slurm, tmp_path):
    """role(step, node, *arguments, **variables) -> (code, drain_result, all output); nodes and jobs
    are as before when the test ends."""

    def play(step, node, *arguments, **variables):
        path = tmp_path / "play.yml"
        path.write_text(
            json.dumps(
                [{"hosts": "all", "gather_facts": False, "tasks": drain_tasks(tmp_path, step)}]
            )
        )
        done = slurm.play(tmp_path, path, [node], {**QUICK, **variables}, *arguments)
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        return done.returncode, json.loads((tmp_path / "said.json").read_text()), done.stdout

    yield play
    slurm.run("scancel", "--user=root")
    audits.wait_until(lambda: slurm.run("squeue", "-h") == "", "no job is left")
    for name in reservations(slurm):
        slurm.run("scontrol", "delete", f"reservation={name}")
    for node in slurm_here.NODES:
        # Slurm refuses to resume what is not drained: a node has MAINTENANCE for a while after its
        # reservation is gone
        if "DRAIN" in slurm.state(node)[0] or "DOWN" in slurm.state(node)[0]:
            slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
        audits.wait_until(lambda node=node: slurm.state(node)[0] == "IDLE", f"{node} is idle")


def test_a_node_is_drained_and_released_and_a_second_time_changes_nothing(slurm, role):
    code, result, _said = role("drain", "gpu001")
    assert (code, result) == (
        0,
        {"drained": True, "by": "root", "reason": REASON, "jobs": [], "owned": True, "at": ""},
    )
    states, reason = slurm.state("gpu001")
    assert states == "IDLE+DRAIN"
    assert reason.startswith(f"{REASON} [root@")
    assert "changed=0" in role("drain", "gpu001")[2]
    kept = role("drain", "gpu001", drain_why="not proved: a link is down")[1]
    assert (kept["reason"], kept["owned"]) == (
        "unhang r1: not proved: a link is down (5de7f2)",
        True,
    )
    assert role("drain", "gpu001")[1] == result
    assert role("wait", "gpu001")[:2] == (0, result)
    code, result, _said = role("release", "gpu001")
    assert (code, result["drained"], result["owned"]) == (0, False, False)
    assert "DRAIN" not in slurm.state("gpu001")[0]
    assert "changed=0" in role("release", "gpu001")[2]


def test_a_job_is_waited_for_and_never_touched(slurm, role):
    job = slurm.start_job("gpu001")
    code, result, _said = role("drain", "gpu001")
    assert (code, result["drained"], result["owned"]) == (0, True, True)
    assert [(row["id"], row["user"], row["state"]) for row in result["jobs"]] == [
        (job, "root", "RUNNING")
    ]
    code, result, output = role("wait", "gpu001")
    assert code != 0
    assert f": {job} of root (RUNNING); no job was touched" in output
    assert [row["id"] for row in result["jobs"]] == [job]
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    assert role("wait", "gpu001", drain_beside_jobs=True)[0] == 0
    threading.Timer(3, lambda: slurm.run("scancel", job)).start()
    code, result, _said = role("wait", "gpu001", drain_wait_timeout_s=200)
    assert (code, result["jobs"], result["owned"]) == (0, [], True)


def reservations(slurm):
    """{name: fields} of all reservations."""
    lines = slurm.run("scontrol", "-o", "--all", "show", "reservations").splitlines()
    rows = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
    return {row["ReservationName"]: row for row in rows if row}


OWN = "unhang-r1-gpu001"


def test_a_node_with_a_job_is_reserved_from_the_jobs_end_and_drained_when_it_is_free(
    slurm, role, monkeypatch
):
    job = slurm.start_job("gpu001")
    # The second time the job ends earlier, and so does the wait. Whoever types it may live in
    # another time zone than the machine with Slurm's commands.
    for minutes, zone in ((30, "UTC"), (20, "XXX-9")):
        slurm.run("scontrol", "update", f"jobid={job}", f"timelimit={minutes}")
        end = slurm.run("squeue", "-h", "-j", job, "-o", "%e")
        in_utc = slurm.run("env", "TZ=UTC", "squeue", "-h", "-j", job, "-o", "%eZ")
        with monkeypatch.context() as typed:
            typed.setitem(slurm.environment, "TZ", zone)
            code, result, _said = role("drain", "gpu001", drain_hold_s=3600)
        assert (code, result["drained"], result["owned"]) == (0, False, False)
        assert [(row["id"], row["ends"]) for row in result["jobs"]] == [(job, in_utc)]
        assert list(reservations(slurm)) == [OWN]
        row = reservations(slurm)[OWN]
        assert (row["StartTime"], row["Duration"], row["Nodes"]) == (end, "01:00:00", "gpu001")
        assert {"MAINT", "IGNORE_JOBS"} <= set(row["Flags"].split(","))
        assert slurm.state("gpu001")[0] == "ALLOCATED"
    slurm.run("scancel", job)
    audits.wait_until(lambda: slurm.run("squeue", "-h") == "", "the job has ended")
    code, result, _said = role("drain", "gpu001", drain_hold_s=3600)
    assert (code, result["drained"], result["owned"], result["jobs"]) == (0, True, True, [])
    assert reservations(slurm) == {}


def test_a_reserved_node_that_nobody_comes_back_for_returns_to_service_by_itself(slurm, role):
    job = slurm.start_job("gpu001")  # without an end: no new job from now on
    assert role("drain", "gpu001", drain_hold_s=180)[1]["drained"] is False
    assert role("drain", "gpu001", drain_hold_s=180)[0] == 0  # it has begun: only its end moves
    slurm.run("scancel", job)
    reserved = "IDLE+MAINTENANCE+RESERVED"
    audits.wait_until(lambda: slurm.state("gpu001")[0] == reserved, "the job has ended")
    audits.wait_until(lambda: slurm.state("gpu001")[0] == "IDLE", "the reservation is over", 600)
    assert slurm.start_job("gpu001")
    # slurmctld forgets what is over a little later
    audits.wait_until(lambda: reservations(slurm) == {}, "the reservation is gone", 300)


def test_a_release_deletes_the_runs_own_reservation_and_no_other(slurm, role):
    slurm.start_job("gpu001")
    assert role("drain", "gpu001", drain_hold_s=3600, drain_run="r0")[0] == 0
    code, _, output = role("drain", "gpu001", drain_hold_s=3600, drain_takes_over="*")
    assert code != 0 and "gpu001 is reserved for unhang's run r0" in output
    role("release", "gpu001", drain_takes_over="*")
    assert list(reservations(slurm)) == ["unhang-r0-gpu001"]
    assert role("release", "gpu001", drain_run="r0")[0] == 0
    assert reservations(slurm) == {}


def test_a_reservation_of_others_that_begins_later_is_not_overlapped(slurm, role):
    job = slurm.start_job("gpu001")
    slurm.run("scontrol", "update", f"jobid={job}", "timelimit=30")
    slurm.run(
        "scontrol", "create", "reservation=night", "starttime=now+60minutes", "duration=60",
        "nodes=gpu[001-002]", "users=root",
    )  # fmt: skip
    try:
        before = reservations(slurm)
        code, result, output = role("drain", "gpu001", drain_hold_s=7200)
        assert (code != 0, result["drained"]) == (True, False)
        assert "others have reserved the node: night (of root" in output
        assert reservations(slurm) == before
        assert role("drain", "gpu001", drain_hold_s=600)[0] == 0
        assert sorted(reservations(slurm)) == ["night", OWN]
        assert role("release", "gpu001")[0] == 0
        assert reservations(slurm) == before
    finally:
        slurm.run("scontrol", "delete", "reservation=night")


def test_where_slurm_allows_no_reservation_a_node_with_a_job_is_drained(slurm, role):
    job = slurm.start_job("gpu001")
    taken = f"reservation={OWN}"  # by somebody, for another node
    slurm.run(
        "scontrol", "create", taken, "starttime=now+2hours", "duration=60", "nodes=gpu002",
        "users=root",
    )  # fmt: skip
    try:
        before = reservations(slurm)
        code, result, output = role("drain", "gpu001", drain_hold_s=3600)
        assert (code, result["drained"], result["owned"]) == (0, True, True)
        assert [row["id"] for row in result["jobs"]] == [job]
        assert "drained, because Slurm allows no reservation" in output
        assert reservations(slurm) == before
    finally:
        slurm.run("scontrol", "delete", taken)


def test_a_job_on_the_machine_that_slurm_lists_for_another_node_is_no_empty_node(slurm, role):
    """Here one machine is several nodes of Slurm: as where drain_node, or the cluster that
    slurmctld belongs to, is not the machine's."""
    role("drain", "gpu001")
    job = slurm.start_job("gpu002")
    code, result, output = role("wait", "gpu001")
    assert (code != 0, result["jobs"]) == (True, [])
    assert f"but the machine gpu001 itself has {job} job of Slurm;" in " ".join(output.split())
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    assert role("wait", "gpu001", drain_beside_jobs=True)[0] == 0


def test_what_somebody_else_drained_is_left_as_it_is_and_reported(slurm, role):
    slurm.run(
        "scontrol",
        "update",
        "nodename=gpu002",
        "state=drain",
        "reason=bad DIMM Comment=x State=IDLE",
    )
    before = slurm.state("gpu002")
    code, result, output = role("drain", "gpu002")
    assert (code, result["drained"], result["by"], result["owned"]) == (0, True, "root", False)
    assert "gpu002 was taken out of service by root (bad DIMM" in output
    code, result, output = role("release", "gpu002")
    assert (code, result["owned"]) == (0, False)
    assert "it is left so" in output
    assert slurm.state("gpu002") == before


def test_a_drain_of_another_run_is_left_unless_it_is_taken_over(slurm, role):
    assert role("drain", "gpu002", drain_run="r0")[0] == 0
    code, result, output = role("release", "gpu002")
    assert (code, result["drained"], result["owned"]) == (0, True, False)
    assert "unhang's run r0" in output
    code, result, _said = role("drain", "gpu002", drain_takes_over="r0")
    assert (code, result["reason"], result["owned"]) == (0, REASON, True)


def test_a_node_in_a_reservation_of_others_is_refused_and_in_the_window_drained(slurm, role):
    slurm.run(
        "scontrol",
        "create",
        "reservation=night",
        "starttime=now",
        "duration=60",
        "nodes=gpu[003-004]",
        "users=root",
        "flags=maint",
    )
    try:
        audits.wait_until(
            lambda: "MAINTENANCE" in slurm.state("gpu003")[0], "the reservation is active"
        )
        before = slurm.state("gpu003"), slurm.run("scontrol", "show", "reservation")
        code, result, output = role("drain", "gpu003")
        assert code != 0
        assert (result["drained"], result["jobs"]) == (False, [])
        assert "others have reserved the node: night (of root, flags MAINT" in output
        assert (slurm.state("gpu003"), slurm.run("scontrol", "show", "reservation")) == before
        assert role("drain", "gpu003", drain_reservations=["night"])[1]["owned"] is True
        assert role("release", "gpu003")[0] == 0
    finally:
        slurm.run("scontrol", "delete", "reservation=night")


def test_a_preview_changes_nothing_and_says_what_would_be_drained_and_which_jobs_run(slurm, role):
    job = slurm.start_job("gpu001")
    before = slurm.state("gpu001")
    code, result, output = role("drain", "gpu001", "--check")
    assert (code, result["drained"], [row["id"] for row in result["jobs"]]) == (0, False, [job])
    assert f"would be drained as '{REASON}'" in output
    assert "changed=1" in output
    assert slurm.state("gpu001") == before
    assert role("wait", "gpu001", "--check")[0] == 0
    assert role("drain", "gpu001")[0] == 0
    before = slurm.state("gpu001")
    code, _result, output = role("release", "gpu001", "--check")
    assert "would be released" in output
    assert slurm.state("gpu001") == before


def test_a_drain_that_somebody_ends_meanwhile_stops_the_wait(slurm, role):
    slurm.start_job("gpu001")
    assert role("drain", "gpu001")[0] == 0
    slurm.run("scontrol", "update", "nodename=gpu001", "state=resume")
    code, result, output = role("wait", "gpu001")
    assert code != 0
    assert result["drained"] is False
    assert "somebody has ended the drain" in output


def test_a_controller_that_is_away_is_waited_for_and_named_when_it_does_not_come_back(slurm, role):
    assert role("drain", "gpu002")[0] == 0
    slurm.stop_controller()
    try:
        code, result, output = role("drain", "gpu001", drain_scheduler_timeout_s=5)
        assert code != 0
        assert (result["drained"], result["jobs"]) == (False, None)
        assert "slurmctld did not answer within 5 s" in output
        threading.Timer(12, slurm.start_controller).start()
        code, result, _said = role("drain", "gpu001", drain_scheduler_timeout_s=200)
        assert (code, result["owned"]) == (0, True)
        assert role("wait", "gpu002", drain_scheduler_timeout_s=200)[1]["owned"] is True, (
            "a drain outlives slurmctld"
        )
    finally:
        if slurm.bed.run(["scontrol", "ping"], env=slurm.environment).returncode:
            slurm.start_controller()


def test_a_node_whose_slurmd_does_not_answer_stays_drained_until_it_does(slurm, role):
    assert role("drain", "cpu01")[0] == 0
    slurm.run("kill", (slurm.folder / "slurmd-cpu01.pid").read_text().strip())
    try:
        audits.wait_until(
            lambda: "NOT_RESPONDING" in slurm.state("cpu01")[0],
            "slurmctld misses the slurmd of cpu01",
        )
        code, result, output = role("release", "cpu01", drain_scheduler_timeout_s=3)
        assert code != 0
        assert (result["drained"], result["owned"]) == (True, True)
        assert "start slurmd on cpu01; it stays drained until then" in output
        assert "DRAIN" in slurm.state("cpu01")[0]
    finally:
        slurm.start_daemon("cpu01")
    code, result, _said = role("release", "cpu01", drain_scheduler_timeout_s=200)
    assert (code, result["drained"]) == (0, False)


def test_a_drain_stays_over_a_reboot_until_it_is_released(slurm, role):
    assert role("drain", "cpu01")[0] == 0
    slurm.run("kill", (slurm.folder / "slurmd-cpu01.pid").read_text().strip())
    audits.wait_until(
        lambda: "NOT_RESPONDING" in slurm.state("cpu01")[0], "slurmctld misses the slurmd of cpu01"
    )
    slurm.run("slurmd", "-b", "-N", "cpu01")  # tells slurmctld that the node has booted
    audits.wait_until(
        lambda: "NOT_RESPONDING" not in slurm.state("cpu01")[0], "slurmctld has its slurmd again"
    )
    states, reason = slurm.state("cpu01")
    assert "DRAIN" in states
    assert reason.startswith("unhang r1: ")
    code, result, _said = role("release", "cpu01")
    assert (code, result["drained"]) == (0, False)


def test_a_node_that_slurm_is_to_reboot_for_somebody_is_refused(slurm, role):
    slurm.start_job("gpu001")
    slurm.run("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=alice", "gpu001")
    before = slurm.state("gpu001")
    code, result, output = role("drain", "gpu001")
    slurm.run("scontrol", "cancel_reboot", "gpu001")
    assert "REBOOT_REQUESTED" in before[0]
    assert code != 0
    assert (result["owned"], len(result["jobs"])) == (False, 1)
    assert "that ends every drain" in output


@pytest.mark.parametrize("name", ["gpu[001-004]", "ALL", "gpu001,gpu002", "-a", ""])
def test_a_name_that_scontrol_takes_for_more_than_one_node_is_refused(slurm, role, name):
    before = slurm.run("sinfo", "-h", "-N", "-o", "%N %T")
    code, _result, output = role("drain", "gpu001", drain_node=name)
    assert code != 0
    assert "is not the name of one node of Slurm" in output
    assert slurm.run("sinfo", "-h", "-N", "-o", "%N %T") == before


def test_a_node_that_slurm_does_not_know_is_named(role):
    code, _result, output = role("drain", "gpu009")
    assert code != 0
    assert "Node gpu009 not found" in output


def test_a_node_that_slurm_does_not_know_has_no_drain_to_lift(role):
    code, result, output = role("release", "gpu009")
    assert (code, result["drained"], result["owned"]) == (0, False, False)
    assert "Node gpu009 not found" in output
    code, _result, output = role("release", "gpu001", drain_node="gpu[001-004]")
    assert code != 0
    assert "is not the name of one node of Slurm" in output


def test_a_controller_without_slurms_commands_is_told_which_variable_names_a_host_that_has_them(
    slurm, role
):
    layer = f"{slurm.bed.inner_state}/hides"
    # a whiteout of overlayfs
    hide = f"mkdir -p {layer}/upper {layer}/work && mknod {layer}/upper/scontrol c 0 0"
    slurm.run(
        "sh",
        "-c",
        f"{hide} && mount -t overlay -o"
        f" lowerdir=/usr/bin,upperdir={layer}/upper,workdir={layer}/work none /usr/bin",
    )
    try:
        code, result, output = role("drain", "gpu001")
    finally:
        slurm.run("umount", "--lazy", "/usr/bin")
    assert code != 0
    assert result["jobs"] is None
    assert "drain_slurm_host names a host that has Slurm's commands" in output


ANOTHER = "drain_node names another machine"


@pytest.mark.parametrize(
    ("name", "cluster", "why"),
    [
        ("another", "unhang", ANOTHER),
        (None, "west", ", not for west, which slurm.conf on "),
        (None, "unhang", ""),
        (None, "", ""),
    ],
)
def test_a_node_that_slurm_knows_as_another_machine_is_not_drained(
    slurm, role, tmp_path, name, cluster, why
):
    known = re.search(r"NodeHostName=(\S+)", slurm.run("scontrol", "-o", "show", "node", "gpu001"))[
        1
    ]
    path = tmp_path / "module.yml"
    host = {"name": name or known, "booted_at": 1, "cluster": cluster}
    task = {
        "name": "Drain",
        "slurm_node": {"node": "gpu001", "state": "drained", "run": "r1", "host": host},
        "delegate_to": "localhost",
    }
    path.write_text(
        json.dumps([{"name": "Drain", "hosts": "all", "gather_facts": False, "tasks": [task]}])
    )
    done = slurm.play(tmp_path, path, ["gpu001"], QUICK)
    assert (done.returncode != 0) is bool(why), done.stdout
    assert why in done.stdout
    assert ("DRAIN" in slurm.state("gpu001")[0]) is not bool(why)
