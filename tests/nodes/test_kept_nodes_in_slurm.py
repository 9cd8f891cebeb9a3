"""What `--status` says to do with a node that was kept, typed as it stands there, on a booted node
in a real Slurm: no drain of unhang is left for ever."""

from __future__ import annotations

import json
import types

import pytest
import slurm_nodes
from documented_command import as_typed
from slurm_site import DEADLINE_S, Site, node_of

NODE = "gpu001"
ONE, OTHER = "nccl-setting-not-real", "cuda-visible-devices-pinned"
PINNED = "CUDA_VISIBLE_DEVICES=0\n"
SETTING = "NCCL_TIMEOUT=1200000\n"
RESUME = f"scontrol update NodeName={NODE} State=RESUME"
pytestmark = [*slurm_nodes.marks(3000), pytest.mark.nightly]


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """Four ends of a rollout on one node, each followed by what its status says."""
    work = tmp_path_factory.mktemp("kept")
    with slurm_nodes.cluster_of([NODE], fake_library, work) as cluster:
        cluster.fleet.plant(NODE, "/etc/environment", PINNED)
        cluster.fleet.plant(NODE, "/etc/nccl.conf", SETTING)
        cluster.fleet.undo.callback(cluster.fleet.shell, NODE, "rm -rf /var/lib/unhang")
        site = Site(cluster, work, variables={"unhang_smoke": False})
        rolled_back = played(site, planned(site, "--rule", ONE))
        ended = ended_after_its_change(site, planned(site))
        site.unhang(
            *as_typed("unhang remediate --undo RUN --apply", {"RUN": ended.run})[1:],
            "--soak",
            "0",
            codes=(0,),
        )
        undone = seen(site, ended.run / "undo")
        planned_again = planned(site)
        again = ended_after_its_change(site, planned_again)
        nothing = len(json.loads((planned(site, waves=False) / "plan.json").read_text())["waves"])
        words = again.row["next"].partition("where that plan has nothing for it: ")[2].split()
        cluster.must(*words)
        cluster.all_idle()
        yield types.SimpleNamespace(
            rolled_back=rolled_back,
            ended=ended,
            undone=undone,
            again=again,
            nothing=nothing,
            typed=words,
            resumed=cluster.state(NODE),
        )


def planned(site, *argv, waves=True):
    """The run folder of a new audit and its plan, as the advice says."""
    run = site.audit()
    plan = site.plan(run, *argv, "--floor", "0")
    assert bool(plan["waves"]) is waves, plan
    return run


def played(site, run):
    """The rollout, to its end."""
    with site.remediating(run, "python3") as process:
        code = process.wait(timeout=DEADLINE_S)
    return seen(site, run, code)


def ended_after_its_change(site, run):
    """The rollout, whose command is killed after the change, and which a person ends then."""
    with site.remediating(run, "python3") as process:
        site.await_step(process, run, NODE, "apply", "done")
    site.unhang(*as_typed("unhang remediate --end RUN", {"RUN": run})[1:])
    return seen(site, run)


def seen(site, run, code=None):
    status = (
        json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))
        if run.name != "undo"
        else {"hosts": [{}]}
    )
    states, reason = site.cluster.state(NODE)
    files = site.cluster.fleet.shell(
        NODE, "cat /etc/environment /etc/nccl.conf; ls /var/lib/unhang"
    )
    return types.SimpleNamespace(
        run=run,
        code=code,
        row=status["hosts"][0],
        state=node_of(run, NODE).state,
        slurm=states,
        reason=reason,
        files=files,
    )


def test_a_node_that_was_rolled_back_is_planned_again_and_its_drain_taken_over(day):
    assert (day.rolled_back.code, day.rolled_back.state) == (1, "kept")
    assert day.rolled_back.files.startswith(PINNED + SETTING)
    assert day.rolled_back.slurm == "IDLE+DRAIN"
    assert day.rolled_back.reason.startswith(f"unhang {day.rolled_back.run.name}: ")
    assert (
        "then audit and plan: the new rollout takes over its drain" in day.rolled_back.row["next"]
    )
    assert day.ended.reason.startswith(f"unhang {day.ended.run.name}: ")


def test_a_node_of_a_rollout_that_was_ended_after_its_change_is_undone_and_back_in_service(day):
    assert day.ended.state == "lost"
    assert day.ended.slurm == "IDLE+DRAIN"
    assert "lock.json" not in day.ended.files
    assert day.ended.row["next"].startswith(
        "unhang remediate --undo RUN brings it back, or a person repairs it; then audit and plan"
    )
    assert (day.undone.state, day.undone.slurm) == ("released", "IDLE")
    assert day.undone.files.startswith(PINNED + SETTING)


def test_a_node_on_which_nothing_is_left_to_roll_out_is_put_back_by_the_printed_command(day):
    assert day.again.slurm == "IDLE+DRAIN"
    assert day.nothing == 0
    assert day.typed == RESUME.split()
    # slurmctld asks the node again at its next turn
    assert "DRAIN" not in day.resumed[0].split("+")
