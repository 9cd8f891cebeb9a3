"""Nodes that wait in a real Slurm under the default limit, and the ways out of the wait: one node
has no torch, one has left the inventory, one does not answer; and slurmctld is restarted while two
others soak."""

from __future__ import annotations

import subprocess
import types

import audits
import pytest
import slurm_nodes
from slurm_site import DEADLINE_S, Site, entries, states

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
CANARY, BUSY, TAKEN_OUT, FREE = NAMES
RULE = "cuda-visible-devices-pinned"
SOAKING = (CANARY, FREE)
pytestmark = slurm_nodes.marks(3000)


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """One rollout from its first wait to its end; gives what each command left."""
    work = tmp_path_factory.mktemp("back")
    with slurm_nodes.pinned_cluster_of(NAMES, fake_library, work) as cluster:
        site = Site(cluster, work)
        run = site.audit()
        waves = [wave["hosts"] for wave in site.plan(run, "--rule", RULE)["waves"]]
        for name in (BUSY, TAKEN_OUT):
            cluster.start_job(name, "#!/bin/sh\nsleep 100000\n")
        waiting = seen(cluster, run, applied(site, run))
        restarted = seen(cluster, run, restarted_while_they_soak(cluster, site, run))
        rest = [name for name in NAMES if name != TAKEN_OUT]
        fewer = site_of(cluster, work / "fewer", rest)
        gone_on = seen(cluster, run, applied(fewer, run))
        silent = site_of(cluster, work / "silent", rest, {BUSY: {"ansible_port": 1}})
        silent.unhang("remediate", str(run), "-i", str(silent.inventory), "--end")
        partly = seen(cluster, run)
        fewer.unhang("remediate", str(run), "-i", str(fewer.inventory), "--end")
        yield types.SimpleNamespace(
            waves=waves,
            run=run,
            waiting=waiting,
            restarted=restarted,
            gone_on=gone_on,
            partly=partly,
            ended=seen(cluster, run),
        )


def site_of(cluster, work, names, host_variables=None):
    work.mkdir()
    return Site(cluster, work, {"training": names}, host_variables=host_variables)


def applied(site, run, soak="0"):
    """The exit code of the same command; no node has a torch."""
    with site.remediating(
        run, "/usr/bin/python3", "-i", str(site.inventory), "--no-smoke", "--soak", soak
    ) as process:
        return process.wait(timeout=DEADLINE_S)


def restarted_while_they_soak(cluster, site, run):
    """The exit code of the command that asks two released nodes again, while slurmctld, which was
    restarted, has not heard of them."""
    for name in SOAKING:  # the service runs, as the audit of the soak demands, and says nothing
        cluster.fleet.shell(name, "systemctl kill --signal STOP slurmd")
    cluster.stop_controller()
    cluster.start_controller()
    begun = len(entries(run, "", "rollout", "begun"))
    known = [cluster.state(name)[0] for name in SOAKING]
    assert all("UNKNOWN" in one for one in known), known
    with site.remediating(
        run, "/usr/bin/python3", "-i", str(site.inventory), "--no-smoke", "--soak", "1s"
    ) as process:
        audits.wait_until(
            lambda: len(entries(run, "", "rollout", "begun")) > begun, "the command acts"
        )
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        for name in SOAKING:
            cluster.fleet.shell(name, "systemctl kill --signal CONT slurmd")
        return process.wait(timeout=DEADLINE_S)


def seen(cluster, run, code=None):
    standing = replay(read_journal(run).entries)
    return types.SimpleNamespace(
        code=code,
        states=states(run, NAMES),
        closed=standing.closed,
        jobs=cluster.say("squeue", "-h", "-o", "%N").split(),
        reserved=[
            name
            for name in NAMES
            if f"-{name} " in cluster.say("scontrol", "-o", "show", "reservations")
        ],
        slurm={name: cluster.state(name)[0] for name in NAMES},
        locked=[
            name
            for name in NAMES
            if cluster.fleet.shell(name, "ls /var/lib/unhang || true").count("lock.json")
        ],
        asked=entries(run, "", "soak", "done"),
    )


def test_a_busy_node_beside_idle_ones_is_in_service_for_the_default_limit(day):
    assert [len(wave) for wave in day.waves] == [1, 1, 1, 1]
    assert day.waiting.states == {
        CANARY: "released",
        BUSY: "waiting",
        TAKEN_OUT: "waiting",
        FREE: "released",
    }
    assert (day.waiting.code, day.waiting.reserved) == (3, [BUSY, TAKEN_OUT])


def test_a_restarted_slurmctld_is_waited_for_and_no_soaking_node_is_lost(day):
    assert (day.restarted.code, day.restarted.states) == (3, day.waiting.states)
    assert [one.evidence["why"] for one in day.restarted.asked] == ["gpu[001,004] are as proved"]


def test_a_rollout_goes_on_without_a_node_that_the_inventory_has_lost(day):
    assert (day.gone_on.code, day.gone_on.states) == (3, day.waiting.states)
    assert day.gone_on.reserved == [BUSY, TAKEN_OUT]


def test_an_end_gives_back_the_lost_node_and_waits_for_the_one_without_an_answer(day):
    assert (day.partly.reserved, day.partly.closed) == ([BUSY], None)
    assert day.partly.states[TAKEN_OUT] == "deferred"
    assert day.partly.states[BUSY] == "unfinished"
    assert BUSY in day.partly.locked


def test_the_rollout_is_ended_when_the_last_node_is_back_and_needs_no_torch_for_it(day):
    assert day.ended.closed.startswith("ended by ")
    assert day.ended.reserved == []
    assert day.ended.locked == [TAKEN_OUT]  # nobody can reach it any more
    assert day.ended.jobs == [BUSY, TAKEN_OUT]
    assert {name: day.ended.slurm[name] for name in (BUSY, TAKEN_OUT)} == dict.fromkeys(
        (BUSY, TAKEN_OUT), "ALLOCATED"
    )
