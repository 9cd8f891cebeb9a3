"""A canary that fails after its release, on booted nodes in a real Slurm: the command is killed
while it soaks, goes on, and begins no further node. Jobs that fail beside it are not held against
it."""

from __future__ import annotations

import json
import os
import types

import audits
import pytest
import slurm_nodes
from slurm_nodes import PINNED
from slurm_site import DEADLINE_S, Site, entries, node_of, states

from unhang.act.rollout.journal import read_journal

NAMES = ("gpu001", "gpu002")
CANARY, NEXT = NAMES
RULE = "cuda-visible-devices-pinned"
EDIT = {"kernel": {"version": "9.9.9-generic"}}  # of the inventory's policy, after the plan
# An accounting in which a job died of another node's fault, and an array failed as a whole.
SACCT = f"""#!/bin/sh
echo '1|NODE_FAIL|gpu[001-002]'
for task in 2 3 4 5 6 7 8 9; do echo "$task|FAILED|{CANARY}"; done
for job in 20 21 22 23 24 25 26 27 28 29; do echo "$job|COMPLETED|{NEXT}"; done
"""
pytestmark = [*slurm_nodes.marks(3600), pytest.mark.nightly]


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """Four runs of the same command: killed in the soak, after the canary's repaired error is back,
    after the canary has lost its power, and after that has booted again."""
    work = tmp_path_factory.mktemp("soak")
    with slurm_nodes.pinned_cluster_of(NAMES, fake_library, work) as cluster:
        keep_accounting(cluster, work / "bin")
        site = Site(cluster, work, variables={"unhang_smoke": False})
        run = site.audit()
        waves = [wave["hosts"] for wave in site.plan(run, "--rule", RULE, "--floor", "0")["waves"]]
        killed = soaking(site, run)
        array = run_array(cluster)
        cluster.fleet.shell(CANARY, f"echo '{PINNED.strip()}' > /etc/environment")
        site = Site(cluster, work, variables={"unhang_smoke": False, "unhang_policy": EDIT})
        again = seen(site, run, played(site, run))
        cluster.fleet.shell(CANARY, ": > /etc/environment")
        cluster.fleet.nodes[CANARY].power_off()
        lost = seen(site, run, played(site, run))
        cluster.fleet.nodes[CANARY].boot()
        back = seen(site, run, played(site, run))
        yield types.SimpleNamespace(
            waves=waves,
            run=run,
            killed=killed,
            array=array,
            again=again,
            lost=lost,
            back=back,
            cluster=cluster,
            pinned=cluster.fleet.shell(NEXT, "cat /etc/environment"),
        )


def keep_accounting(cluster, folder):
    folder.mkdir()
    (folder / "sacct").write_text(SACCT)
    (folder / "sacct").chmod(0o755)
    cluster.environment["PATH"] = f"{folder}{os.pathsep}{cluster.environment['PATH']}"


def run_array(cluster):
    """The state of an array whose tasks all fail on the canary, once they have ended."""
    where = (f"--nodelist={CANARY}", "--chdir=/tmp", "--output=/dev/null")
    job = cluster.must("sbatch", "--parsable", "--array=1-8", *where, "--wrap=exit 1")
    audits.wait_until(
        lambda: not cluster.say("squeue", "-h", "-j", job).strip(), "the array ends", DEADLINE_S
    )
    return cluster.say("scontrol", "show", "job", job)


def soaking(site, run):
    """What is seen while the canary soaks; then the command is killed."""
    with site.remediating(run, "python3", "--soak", "1h") as process:
        site.await_step(process, run, "", "soak", "begun")
        audits.wait_until(
            lambda: "nothing is done until then" in site.output or process.poll() is not None,
            "the command waits",
            DEADLINE_S,
        )
    return types.SimpleNamespace(
        output=site.output,
        table=site.unhang("remediate", str(run), "--status", codes=(3,)),
        slurm=site.cluster.state(CANARY),
    )


def played(site, run):
    """The exit code of the same command with a soak that is over by now."""
    with site.remediating(run, "python3", "--soak", "1s") as process:
        return process.wait(timeout=DEADLINE_S)


def seen(site, run, code):
    table = site.unhang("remediate", str(run), "--status")
    rows = {
        row["host"]: row
        for row in json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))[
            "hosts"
        ]
    }
    return types.SimpleNamespace(
        code=code,
        states=states(run, NAMES),
        why=node_of(run, CANARY).why,
        table=table,
        rows=rows,
    )


def test_the_canary_is_back_in_service_while_it_soaks_and_the_status_says_until_when(day):
    assert day.waves == [[CANARY], [NEXT]]
    assert day.killed.slurm[0] == "IDLE"
    [begun, *_] = entries(day.run, "", "soak", "begun")
    assert f"{CANARY} soaks until {begun.evidence['until']}" in day.killed.output
    assert (
        f"{CANARY} soaks until {begun.evidence['until']} (back in service), then is asked again,"
        " and wave 1 begins" in " ".join(day.killed.table.split())
    )


def test_a_canary_that_is_lost_after_its_release_stops_the_rollout_and_is_not_said_to_be_proved(
    day,
):
    assert day.lost.code == 1
    assert day.lost.states == {CANARY: "lost", NEXT: "to come"}
    assert day.lost.why.startswith("soak: it did not answer after its release")
    assert "0 of 2 nodes proved healthy" in day.lost.table
    assert (
        "not proved healthy among the canaries: gpu001 (failed after its release)" in day.lost.table
    )
    assert day.lost.rows[CANARY]["meaning"].startswith(
        "proved and released, and it has failed since"
    )
    assert day.pinned == PINNED


def test_a_canary_that_is_back_in_another_boot_is_no_longer_proved(day):
    assert (day.back.code, day.back.states) == (1, day.lost.states)
    assert "it has booted since its release" in day.back.why


def test_an_edit_of_the_inventorys_policy_fails_no_proved_node_and_is_reported(day):
    assert "policy-kernel-version" not in day.again.why
    assert "unhang_policy of gpu[001-002] was edited since the plan" in " ".join(
        day.again.table.split()
    )


def test_a_repaired_error_that_is_back_is_a_fault_and_failed_jobs_are_none(day):
    assert day.array.count("JobState=FAILED") == 8
    assert (day.again.code, day.again.states) == (1, {CANARY: "lost", NEXT: "to come"})
    assert day.again.why.startswith(f"soak: new: {RULE} (error): ")
    assert "FAIL" not in day.again.why  # NODE_FAIL, FAILED
    told = [
        one.evidence["why"]
        for one in read_journal(day.run).entries
        if (one.host, one.step, one.status) == ("", "soak", "done")
    ]
    assert told == ["1 node failed after its release"] * 3
