"""A rollout in a real Slurm keeps its floor of nodes that are really in service: another user
drains a node of the fleet while the canary is changed."""

from __future__ import annotations

import types

import pytest
import slurm_nodes
from slurm_site import DEADLINE_S, Site, entries, states

NAMES = ("gpu001", "gpu002", "gpu003")
CANARY, NEXT, DRAINED = NAMES
RULE = "cuda-visible-devices-pinned"
WHY = "bad DIMM"
pytestmark = slurm_nodes.marks(3000)


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """Two runs of the same command: while another user has drained the node, and after that."""
    work = tmp_path_factory.mktemp("floor")
    with slurm_nodes.pinned_cluster_of(NAMES, fake_library, work) as cluster:
        site = Site(cluster, work, variables={"unhang_smoke": False})
        run = site.audit()
        waves = [wave["hosts"] for wave in site.plan(run, "--rule", RULE, "--floor", "2")["waves"]]
        first = played(cluster, site, run, drains=True)
        slurm = {name: cluster.state(name) for name in NAMES}
        cluster.must("scontrol", "update", f"nodename={DRAINED}", "state=resume")
        yield types.SimpleNamespace(
            waves=waves,
            run=run,
            first=first,
            slurm=slurm,
            second=played(cluster, site, run),
            cluster=cluster,
            site=site,
        )


def played(cluster, site, run, drains=False):
    """The state of each node after one run of the command."""
    with site.remediating(run, "python3") as process:
        if drains:
            site.await_step(process, run, CANARY, "apply", "begun")
            cluster.must(
                "scontrol", "update", f"nodename={DRAINED}", "state=drain", f"reason={WHY}"
            )
        process.wait(timeout=DEADLINE_S)
    return states(run, NAMES)


def test_nodes_are_put_off_that_would_leave_too_few_in_service_and_the_line_names_who_is_out(day):
    assert day.waves == [[CANARY], [NEXT], [DRAINED]]
    assert day.first == {CANARY: "released", NEXT: "deferred", DRAINED: "deferred"}
    [why] = {one.evidence["why"] for one in entries(day.run, NEXT, "lock", "deferred")}
    start, named = why.split("; ")
    assert start == "at least 2 nodes must stay in service, and 2 are now"
    assert named.startswith(f"out of service by others: {DRAINED} (")
    assert named.endswith(f" ({WHY}))")
    assert why in day.site.output


def test_nothing_is_done_in_slurm_to_a_node_that_was_put_off(day):
    assert day.slurm[NEXT][0] == "IDLE"
    assert day.slurm[DRAINED][0] == "IDLE+DRAIN"
    assert day.slurm[DRAINED][1].startswith(WHY)


def test_the_same_command_goes_on_when_the_node_is_back_in_service(day):
    assert day.second == dict.fromkeys(NAMES, "released")
    assert [day.cluster.state(name)[0] for name in NAMES] == ["IDLE"] * 3
