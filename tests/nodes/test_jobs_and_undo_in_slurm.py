"""A new driver on three booted nodes in a real Slurm, and its undo: no node is booted under its
job, the others go on meanwhile, the command ends while Slurm waits, and nothing ends half way. With
ReturnToService=0, Slurm's default, a node that rebooted is DOWN until it is released."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import types

import audits
import driver_node
import pytest
import slurm_nodes
import torch_in_nodes
from documented_command import as_typed
from slurm_site import DEADLINE_S, Site, boot_ids, states

NAMES = ("gpu001", "gpu002", "gpu003")
CANARY, BUSY, FREE = NAMES
POLICY = {"driver": {"version": driver_node.NEW, "flavour": "proprietary", "held": True}}
LOADED = "cat /srv/hardware/sys/module/nvidia/version"
INSTALLED = "dpkg-query -W -f '${Version}' libnvidia-ml1"
pytestmark = slurm_nodes.marks(3600)


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """The rollout, a rollback by hand that is refused, and the undo, one after the other; gives
    what each part found."""
    work = tmp_path_factory.mktemp("undo")
    with slurm_nodes.cluster_of(NAMES, fake_library, work, returns=0) as cluster:
        for name in NAMES:
            (work / name).mkdir()
            driver_node.prepare(cluster.fleet, name, work / name)
            cluster.fleet.undo.callback(cluster.fleet.shell, name, "rm -rf /var/lib/unhang")
        site = Site(cluster, work, variables={"unhang_smoke": False, "unhang_policy": POLICY})
        run = site.audit()
        shown = site.unhang(
            "plan",
            str(run),
            "--rule",
            "policy-driver-version",
            "--max-unavailable",
            "2",
            "--floor",
            "0",
        )
        plan = json.loads((run / "plan.json").read_text())
        waiting = rolled_out(site, run)
        released = seen(site, run)
        by_hand = [rolled_back(site), rolled_back(site, unhang_reboot=True)]
        kept = seen(site, run)
        busy = tried_beside_a_job(site, run)
        site.unhang(
            *as_typed("unhang remediate --undo RUN --apply", {"RUN": run})[1:],
            "--soak",
            "0",
            codes=(0,),
        )
        again = [refused(site, "--undo", str(run)), refused(site, str(run), "--apply")]
        yield types.SimpleNamespace(
            shown=shown,
            plan=plan,
            waiting=waiting,
            released=released,
            by_hand=by_hand,
            kept=kept,
            busy=busy,
            undone=seen(site, run / "undo"),
            again=again,
            run=run,
        )


def rolled_out(site, run):
    """What is seen when the command has ended with one node that waits for its job and the other of
    its wave released; the same command has gone on after the job then."""
    before = boot_ids(site.cluster.fleet, NAMES)
    job = site.cluster.start_job(BUSY, "#!/bin/sh\nsleep 100000\n")
    asked = site.cluster.bed.inside(
        ["ansible", BUSY, "-i", str(site.inventory), "-m", "gpu_users"], audits.PROJECT
    )
    users = subprocess.run(
        asked,
        env=site.cluster.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    ).stdout
    site.cluster.must("scontrol", "update", f"jobid={job}", "timelimit=600")
    end = site.cluster.say("squeue", "-h", "-j", job, "-o", "%e")
    codes = [applied(site, run)]
    found = seen(site, run)
    found.ended, found.end = site.output.splitlines()[-1], end
    found.reservation = site.cluster.say("scontrol", "-o", "show", "reservations")
    found.job = site.cluster.say("squeue", "-h", "-j", job, "-o", "%T")
    found.users, found.id = users, job
    site.cluster.must("scancel", job)
    audits.wait_until(lambda: site.cluster.say("squeue", "-h") == "", "the job has ended")
    found.codes = [*codes, applied(site, run)]
    found.output, found.boots_before = site.output, before
    found.reservations = site.cluster.say("scontrol", "-o", "show", "reservations")
    return found


def applied(site, run):
    """The exit code of `unhang remediate --apply`, which ends by itself."""
    with site.remediating(run, "python3") as process:
        return process.wait(timeout=DEADLINE_S)


def seen(site, run):
    """Each node in the journal, in Slurm, and by itself."""
    boots = boot_ids(site.cluster.fleet, NAMES)
    drivers = {
        name: tuple(
            site.cluster.fleet.shell(name, command).strip() for command in (LOADED, INSTALLED)
        )
        for name in NAMES
    }
    slurm = {name: site.cluster.state(name) for name in NAMES}
    return types.SimpleNamespace(
        states=states(run, NAMES), boots=boots, drivers=drivers, slurm=slurm
    )


ON_GPUS = ["--backend", "nccl", "--nproc", "1"]  # gloo takes no GPU, so it starts beside jobs
BEFORE_A_BOOT = """- hosts: all
  gather_facts: false
  tasks:
    - name: Lock the node
      ansible.builtin.import_role: {name: node_change, tasks_from: lock}
    - name: What the kernel trial and the roles of driver and kernel play before each boot
      ansible.builtin.import_role: {name: node_change, tasks_from: before_reboot}
  post_tasks:
    - name: Never reached
      ansible.builtin.fail: {msg: would boot}
"""


def tried_beside_a_job(site, run):
    """What is tried, by hand, on a node that somebody has drained and whose job still runs."""
    job = site.cluster.start_job(CANARY, "#!/bin/sh\nsleep 100000\n")
    site.cluster.must(
        "scontrol", "update", f"NodeName={CANARY}", "State=DRAIN", "Reason=alice looks at it"
    )
    before = seen(site, run)
    place = site.work / "before_boot.yml"
    place.write_text(BEFORE_A_BOOT)
    found = types.SimpleNamespace(
        restored=rolled_back(site, unhang_reboot=True),
        trial=played(site, str(place), {}),
        gate=played(
            site,
            "playbooks/preprovision.yml",
            {"smoke_test_python": str(torch_in_nodes.PYTHON), "smoke_test_arguments": ON_GPUS},
        ),
    )
    found.before, found.after = before, seen(site, run)
    found.job = site.cluster.say("squeue", "-h", "-j", job, "-o", "%T")
    site.cluster.must("scancel", job)
    site.cluster.fleet.shell(CANARY, "rm -f /var/lib/unhang/lock.json")
    site.cluster.must("scontrol", "update", f"NodeName={CANARY}", "State=RESUME")
    site.cluster.all_idle()
    return found


def rolled_back(site, **variables):
    """(code, output) of playbooks/rollback.yml on the canary, as a person types it without a
    plan."""
    return played(site, "playbooks/rollback.yml", {"unhang_apply": True, **variables})


def played(site, playbook, variables):
    """(code, output) of a playbook on the canary."""
    argv = [
        "ansible-playbook",
        playbook,
        "-i",
        str(site.inventory),
        "--limit",
        CANARY,
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(
        site.cluster.bed.inside(argv, audits.PROJECT),
        env=site.cluster.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    sys.stdout.write(f"{shlex.join(argv)}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}\n")
    return done.returncode, done.stdout


def refused(site, *argv):
    """Standard error of `unhang remediate`, which does not begin."""
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
    }
    done = subprocess.run(
        site.command("remediate", *argv), env=site.cluster.environment, check=False, **captured
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def both(version):
    """The loaded driver and the installed one."""
    return version, f"{version}-1"


def test_the_scheduler_that_the_audit_has_found_is_in_the_plan(day):
    assert {row["host"]: row["scheduler"] for row in day.plan["hosts"]} == dict.fromkeys(
        NAMES, "slurm"
    )
    assert "  scheduler   slurm\n" in day.shown
    assert [wave["hosts"] for wave in day.plan["waves"]] == [[CANARY], [BUSY, FREE]]


def test_a_node_is_drained_without_being_told_how_and_is_not_booted_under_its_job(day):
    assert (day.waiting.states[BUSY], day.waiting.job) == ("waiting", "RUNNING")
    assert day.waiting.boots[BUSY] == day.waiting.boots_before[BUSY]
    assert day.waiting.drivers[BUSY] == both(driver_node.OLD)
    assert day.waiting.slurm[BUSY][0] == "ALLOCATED"


def test_slurm_keeps_the_node_free_from_the_jobs_end_and_the_command_ends_meanwhile(day):
    assert f"ReservationName=unhang-{day.run.name}-{BUSY} StartTime={day.waiting.end} " in (
        day.waiting.reservation
    )
    assert day.waiting.codes[0] == 3
    assert day.waiting.ended.startswith(f"unhang: 1 node waits: {BUSY} for job {day.waiting.id} of")
    assert (
        " at the latest; go on then, or now, by hand or from a timer, with: " in day.waiting.ended
    )
    assert f" remediate {day.run} " in day.waiting.ended
    assert day.waiting.ended.endswith(" --apply")


def test_without_a_scheduler_too_a_job_of_slurm_is_seen_on_the_node(day):
    assert f'"id": "{day.waiting.id}"' in day.waiting.users
    assert '"scheduler": "slurm"' in day.waiting.users


def test_the_other_node_of_the_wave_goes_on_while_one_waits(day):
    assert day.waiting.states[FREE] == "released"
    assert day.waiting.drivers[FREE] == both(driver_node.NEW)
    assert day.waiting.slurm[FREE][0] == "IDLE"


def test_the_same_command_goes_on_when_the_job_has_ended(day):
    assert day.waiting.codes[1] == 0, day.waiting.output[-3000:]
    assert day.waiting.reservations == "No reservations in the system"
    assert day.released.states == dict.fromkeys(NAMES, "released")
    assert day.released.drivers == dict.fromkeys(NAMES, both(driver_node.NEW))
    assert {state for state, _ in day.released.slurm.values()} == {"IDLE"}


def test_a_rollback_by_hand_that_would_end_half_way_or_boot_a_node_in_service_changes_nothing(day):
    (without, half_way), (in_service, serving) = day.by_hand
    assert (without, in_service) == (2, 2)
    assert "unhang_reboot does not allow a reboot" in half_way
    assert "gpu001 is in state IDLE" in serving
    assert vars(day.kept) == vars(day.released)


def test_a_job_on_a_drained_node_outlives_a_restore_the_gate_and_what_is_played_before_a_boot(day):
    assert day.busy.job == "RUNNING"
    assert vars(day.busy.before) == vars(day.busy.after)


def test_beside_a_job_nothing_is_restored_and_nothing_booted_by_hand(day):
    for code, output in (day.busy.restored, day.busy.trial):
        assert code == 2
        assert f"jobs are on {CANARY} after 10 s: " in " ".join(output.split())
        assert "would boot" not in output


def test_the_gate_does_not_prove_a_node_with_a_job(day):
    code, output = day.busy.gate
    assert code != 0
    assert "the GPUs are in use by job" in " ".join(output.split())


def test_an_undo_brings_every_node_back_boots_and_releases_it(day):
    assert day.undone.states == dict.fromkeys(NAMES, "released")
    assert day.undone.drivers == dict.fromkeys(NAMES, both(driver_node.OLD))
    assert {state for state, _ in day.undone.slurm.values()} == {"IDLE"}
    assert all(day.undone.boots[name] != day.released.boots[name] for name in NAMES)


def test_what_was_undone_is_not_undone_again_and_does_not_go_on(day):
    undone, gone_on = day.again
    assert "was undone already" in undone
    assert "undid the rollout" in gone_on
