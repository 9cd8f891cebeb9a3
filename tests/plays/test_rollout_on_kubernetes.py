"""A complete rollout in Kubernetes: the role drain, kubectl and the API server are real, and the
nodes are scripted."""

from __future__ import annotations

import kubectl
import pytest
from fakes.role_play import PROJECT
from kubernetes_cluster import AWAY, NEEDED, cluster_on, kubernetes, make_node, make_pod
from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal

__all__ = ["kubernetes"]
pytestmark = NEEDED
REAL = ("drain", "wait", "keep", "release")
PROVED, UNFIT, HELD, BEHIND = "gpu001", "gpu002", "gpu003", "gpu004"
HEARTBEAT = {"metadata": {"labels": {"beat": "1"}}}


@pytest.fixture(scope="module")
def done(kubernetes, tmp_path_factory):
    """Runs the rollout, and again when the job has ended; .cluster in its final state, .waited: the
    states after the first run, .before: the nodes before it."""
    with cluster_on(kubernetes) as cluster:
        yield played_twice(cluster, tmp_path_factory.mktemp("kubernetes"))


def played_twice(cluster, folder):
    """The API is away, one patch comes too late, a pod with GPUs ends between the runs, and the
    disruption budget refuses the first eviction."""
    held = make_node(HELD)
    held["spec"]["unschedulable"] = True
    cluster.add(make_node(PROVED), make_node(UNFIT), held, make_node(BEHIND))
    cluster.add(
        make_pod("train", PROVED, "Job", gpus=8),
        make_pod("web", PROVED),
        make_pod("held", HELD),
        make_pod("behind", BEHIND),
    )
    cluster.allow_evictions("web", 0)
    cluster.before("*", "", [lambda: AWAY])
    cluster.before("PATCH", PROVED, [lambda: cluster.change_node(PROVED, HEARTBEAT)])
    cluster.before(
        "POST",
        "/web/eviction",
        [lambda: cluster.writes.append(("try", "web")), lambda: cluster.allow_evictions("web", 1)],
    )
    scripted = prepare(folder, [[PROVED], [UNFIT, HELD], [BEHIND]], REAL)
    scripted.cluster, scripted.before = cluster, {n: cluster.node(n) for n in (HELD, BEHIND)}
    faults = {UNFIT: ["unhealthy smoke_alone"]}
    played(scripted, faults, 200)
    scripted.waited = scripted.states()
    cluster.end("train")
    cluster.writes.append(("ended", "train"))
    return played(scripted, faults, 200)


def played(scripted, faults, wait_s):
    return roll_out(
        scripted,
        faults,
        kubectl.ready(PROJECT / ".cache" / "kubectl"),
        drain_adapter="kubernetes",
        drain_kubernetes_kubeconfig=str(scripted.cluster.kubeconfig(scripted.folder)),
        drain_poll_s=1,
        drain_wait_timeout_s=wait_s,
        drain_scheduler_timeout_s=200,
        node_change_rootfs=str(scripted.folder),
    )


# the first: from `done` on, until the end of this file, the cluster is that of the others
def test_a_budget_that_never_allows_an_eviction_gives_the_node_back_and_is_named(
    kubernetes, tmp_path
):
    with cluster_on(kubernetes) as cluster:
        cluster.add(make_node(PROVED), make_node(BEHIND), make_pod("web", PROVED))
        cluster.allow_evictions("web", 0)
        scripted = prepare(tmp_path, [[PROVED], [BEHIND]], REAL)
        scripted.cluster = cluster
        for _ in range(2):  # the same command tries it again
            played(scripted, {}, 5)
            assert scripted.states() == {PROVED: "deferred"}
            assert "disruption budget" in scripted.why(PROVED)
            assert "unschedulable" not in cluster.node(PROVED)["spec"]
        assert cluster.pods() == ["web"]
        assert scripted.acts("apply") == []


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
        ("try", "web"),
        ("evict", "web"),
        ("patch", PROVED),
    ]
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
    assert "unschedulable" not in done.cluster.node(PROVED)["spec"]
    assert "annotations" not in done.cluster.node(PROVED)["metadata"]
    assert done.cluster.node(UNFIT)["spec"]["unschedulable"] is True
    assert done.cluster.node(UNFIT)["metadata"]["annotations"] == {
        "unhang-drain": f"unhang {done.run.name}: smoke_alone: bandwidth"
    }


def test_what_somebody_else_cordoned_and_what_stands_behind_the_failure_limit_is_not_written_to(
    done,
):
    assert {name for _what, name in done.cluster.writes} == {PROVED, UNFIT, "train", "web"}
    assert {name: done.cluster.node(name) for name in (HELD, BEHIND)} == done.before
    assert done.cluster.pods() == ["behind", "held"]
    assert "apply" not in [
        entry.step for entry in read_journal(done.run).entries if entry.host in (HELD, BEHIND)
    ]
