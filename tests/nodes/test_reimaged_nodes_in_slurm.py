"""A canary that waits in a real Slurm for one part of a heterogeneous job, and is installed anew
meanwhile: it is given back as it is, and no other node is begun."""

from __future__ import annotations

import types

import audits
import pytest
import slurm_nodes
from slurm_site import DEADLINE_S, Site, states

NAMES = LATER, CANARY = ("gpu002", "gpu001")
RULE = "cuda-visible-devices-pinned"
pytestmark = [*slurm_nodes.marks(3000), pytest.mark.nightly]


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """The same command while both parts of the job run, and when the canary is back."""
    work = tmp_path_factory.mktemp("reimaged")
    with slurm_nodes.pinned_cluster_of(sorted(NAMES), fake_library, work) as cluster:
        site = Site(cluster, work)
        run = site.audit()
        site.plan(run, "--rule", RULE)
        job = start_parts(cluster)
        codes, slurm = [applied(site, run)], [cluster.state(CANARY)[0]]
        waited = states(run, NAMES), "ReservationName" in reservations(cluster), site.output
        install_anew(cluster)
        codes.append(applied(site, run))
        slurm.append(cluster.state(CANARY)[0])
        yield types.SimpleNamespace(
            job=job,
            codes=codes,
            slurm=slurm,
            waited=waited,
            states=states(run, NAMES),
            reservations=reservations(cluster),
            output=site.output.removeprefix(waited[2]),
            files=[cluster.fleet.shell(name, "cat /etc/environment") for name in NAMES],
            left=cluster.fleet.shell(CANARY, "ls /var/lib/unhang"),
        )


def start_parts(cluster):
    """The number of a job whose second part is on the canary."""
    script = cluster.folder / "parts.sh"
    script.write_text("#!/bin/sh\nexec sleep 3000\n")
    first, second = (("--exclusive", f"--nodelist={name}") for name in NAMES)
    options = ("--parsable", "--chdir=/tmp", "--output=/dev/null")
    job = cluster.must("sbatch", *options, *first, ":", *second, str(script))
    audits.wait_until(
        lambda: cluster.say("squeue", "-h", "-o", "%T").split() == ["RUNNING"] * 2, "it runs"
    )
    return job


def applied(site, run):
    with site.remediating(run, "/usr/bin/python3", "--no-smoke") as process:
        return process.wait(timeout=DEADLINE_S)


def install_anew(cluster):
    """The canary boots from an image that knows of nothing, with the fault that it had."""
    node = cluster.fleet.nodes[CANARY]
    cluster.fleet.shell(CANARY, "rm -rf /var/lib/unhang")
    node.power_off()
    node.boot()
    audits.wait_until(
        lambda: "NOT_RESPONDING" not in (state := cluster.state(CANARY)[0]) and "*" not in state,
        f"slurmctld has {CANARY} again",
    )


def reservations(cluster):
    return cluster.say("scontrol", "-o", "show", "reservations")


def test_a_part_of_a_heterogeneous_job_is_waited_for_by_its_own_number(day):
    assert (day.codes[0], day.waited[:2]) == (3, ({CANARY: "waiting", LATER: "to come"}, True))
    assert f"{CANARY} for job {day.job}+1 of root" in day.waited[2]
    assert day.slurm[0].startswith("ALLOCATED") and "DRAIN" not in day.slurm[0]


def test_a_node_that_was_installed_anew_is_given_back_with_the_reason_and_nothing_is_begun(day):
    assert (day.codes[1], day.states) == (1, {CANARY: "deferred", LATER: "to come"})
    assert "the node has booted since the plan was made" in day.output
    assert (day.files, day.left) == ([slurm_nodes.PINNED] * 2, "fencing.json\n")
    assert f"-{CANARY} " not in day.reservations
    assert "DRAIN" not in day.slurm[1]
