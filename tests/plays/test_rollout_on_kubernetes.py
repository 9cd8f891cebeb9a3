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
    """A pod with GPUs ends after it was listed a few times; the disruption budget refuses the first
    eviction; the API is down, and one patch comes too late."""

    def __init__(self, *things):
        super().__init__(*things)
        self.away, self.conflicts, self.until_the_job_ends, self.refused_evictions = 1, 1, 6, 0

    def select(self, query):
        """Returns the pods; each listing brings the job nearer to its end."""
        self.until_the_job_ends -= 1
        if self.until_the_job_ends < 0 and "train" in self.pods:
            self.writes.append(("ended", "train"))
            del self.pods["train"]
        return super().select(query)

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
    """Runs the rollout once; .cluster in its final state."""
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
        roll_out(
            scripted,
            {UNFIT: ["unhealthy smoke_alone"]},
            kubectl.ready(PROJECT / ".cache" / "kubectl"),
            **shown,
        )
    scripted.cluster = cluster
    return scripted


def test_each_node_ends_in_its_named_state_and_the_failure_limit_stops_the_wave_behind(done):
    assert done.states() == {PROVED: "released", UNFIT: "kept", HELD: "deferred"}
    assert (
        f"wave 2: nothing new is begun, not proved healthy: {UNFIT}; at most 0 may be"
        in done.played.output
    )
    assert done.played.code != 0


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
