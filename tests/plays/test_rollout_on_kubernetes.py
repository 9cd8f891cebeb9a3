"""A complete rollout in Kubernetes: the role drain and kubectl are real, the API server is a
stateful stand-in, and the nodes are scripted."""

from __future__ import annotations

import kubectl
import pytest
from fakes.kubernetes_api import Cluster, make_node, make_pod, serving, status
from fakes.role_play import PROJECT
from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal

REAL = ("drain", "wait", "keep", "release")
PROVED, UNFIT, HELD, BEHIND = "gpu001", "gpu002", "gpu003", "gpu004"


class Busy(Cluster):
    """A pod with GPUs ends between two runs; the disruption budget refuses the first eviction; the
    API is down, and one patch comes too late."""

    def __init__(self, *things):
        super().__init__(*things)
        self.away, self.conflicts, self.refused_evictions = 1, 1, 0

    def end_the_job(self):
        """Removes the pod with GPUs."""
        self.writes.append(("ended", "train"))
        del self.pods["train"]

    def evict(self, name):
        """Refuses once."""
        if not self.refused_evictions:
            self.refused_evictions += 1
            return status(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
            )
        return super().evict(name)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Runs the rollout, and again when the job has ended; .cluster in its final state, .waited: the
    states after the first run."""
    folder = tmp_path_factory.mktemp("kubernetes")
    held = make_node(HELD)
    held["spec"]["unschedulable"] = True
    pods = [
        make_pod("train", PROVED, "Job", gpus=8),
        make_pod("web", PROVED),
        make_pod("held", HELD),
        make_pod("behind", BEHIND),
    ]
    cluster = Busy(make_node(PROVED), make_node(UNFIT), held, make_node(BEHIND), *pods)
    scripted = prepare(folder, [[PROVED], [UNFIT, HELD], [BEHIND]], REAL)
    with serving(cluster, folder) as kubeconfig:
        shown = {
            "drain_adapter": "kubernetes",
            "drain_kubernetes_kubeconfig": str(kubeconfig),
            "drain_poll_s": 1,
        }
        shown |= {
            "drain_wait_timeout_s": 200,
            "drain_scheduler_timeout_s": 200,
            "node_change_rootfs": str(folder),
        }
        faults = {UNFIT: ["unhealthy smoke_alone"]}
        program = kubectl.ready(PROJECT / ".cache" / "kubectl")
        roll_out(scripted, faults, program, **shown)
        scripted.cluster, scripted.waited = cluster, scripted.states()
        cluster.end_the_job()
        roll_out(scripted, faults, program, **shown)
    return scripted


def test_each_node_ends_in_its_named_state_and_the_failure_limit_stops_the_wave_behind(done):
    assert done.states() == {PROVED: "released", UNFIT: "kept", HELD: "deferred"}
    assert (
        f"wave 2: nothing new is begun, not proved healthy: {UNFIT}; at most 0 may be"
        in done.played.output
    )
    assert done.played.code != 0


def test_a_node_whose_job_runs_waits_and_holds_up_the_waves_behind_it(done):
    assert done.waited == {PROVED: "waiting"}


def test_the_job_ends_by_itself_and_only_then_are_others_evicted_and_the_node_changed(done):
    of_the_first = [write for write in done.cluster.writes if write[1] in (PROVED, "train", "web")]
    assert of_the_first == [
        ("patch", PROVED),
        ("ended", "train"),
        ("evict", "web"),
        ("patch", PROVED),
    ]
    assert done.cluster.refused_evictions == 1
    steps = [
        (entry.step, entry.status)
        for entry in read_journal(done.run).entries
        if entry.host == PROVED
    ]
    assert (
        steps.index(("wait", "done"))
        < steps.index(("apply", "begun"))
        < steps.index(("release", "begun"))
    )


def test_a_node_that_is_proved_is_uncordoned_and_one_that_is_not_stays_cordoned_with_the_reason(
    done,
):
    assert "unschedulable" not in done.cluster.nodes[PROVED]["spec"]
    assert done.cluster.nodes[PROVED]["metadata"]["annotations"] == {}
    assert done.cluster.nodes[UNFIT]["spec"]["unschedulable"] is True
    assert done.cluster.nodes[UNFIT]["metadata"]["annotations"] == {
        "unhang-drain": f"unhang {done.run.name}: smoke_alone: bandwidth"
    }


def test_what_somebody_else_cordoned_and_what_stands_behind_the_failure_limit_is_not_written_to(
    done,
):
    assert {name for _what, name in done.cluster.writes} == {PROVED, UNFIT, "train", "web"}
    assert done.cluster.nodes[HELD]["spec"] == {"unschedulable": True}
    assert (done.cluster.nodes[BEHIND]["spec"], sorted(done.cluster.pods)) == (
        {},
        ["behind", "held"],
    )
    assert "apply" not in [
        entry.step for entry in read_journal(done.run).entries if entry.host in (HELD, BEHIND)
    ]
