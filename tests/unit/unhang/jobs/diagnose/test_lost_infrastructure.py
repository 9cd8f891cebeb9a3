"""A lost node, a lost server of files, and pods that the cluster does not start: named, and given
to who runs the cluster."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

STEPS = "".join(f"step {place}00 | loss 2.{place}\n" for place in range(4))
SIGTERM = (
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 31 got signal: 15\n"
)
EVICTED = (
    "Normal   TaintManagerEviction  taint-eviction-controller  Marking for deletion Pod"
    " ml/ranks-7\n"
)
LUSTRE = (
    "[Tue Feb  3 04:11:02 2026] Lustre: lab-OST0003-osc-ffff: Connection to lab-OST0003 (at"
    " 192.0.2.44@o2ib) was lost; in progress operations using this service will wait\n"
)
NFS = "[ 900.1] nfs: server files.example not responding, still trying\n"
WATCHDOG = (
    "[rank3]:[E203 04:25:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
SANDBOX = (
    "Warning  FailedCreatePodSandBox  1m (x90 over 20m)  kubelet  Failed to create pod sandbox: rpc"
    ' error: code = Unknown desc = failed to setup network for sandbox "0ac": plugin type="calico"'
    " failed (add): no more free addresses in the node's block\n"
)
REFUSED = "Warning  FailedScheduling  9m  default-scheduler  0/8 nodes are available: {}.\n"
TAINTED = REFUSED.format(
    "2 Insufficient nvidia.com/gpu, 6 node(s) had untolerated taint {nvidia.com/gpu: present}"
)
FULL = REFUSED.format("8 Insufficient nvidia.com/gpu")


def causes(text):
    return [one for one in diagnose_text(text)["causes"] if one["severity"] != "info"]


@pytest.mark.parametrize(
    ("text", "cause", "named"),
    [
        (
            STEPS
            + "Warning  NodeNotReady  node-controller  Node is not ready\n"
            + EVICTED
            + SIGTERM,
            "rank_failed",
            "pod ml/ranks-7",
        ),
        (STEPS + EVICTED + SIGTERM, "rank_failed", "pod ml/ranks-7"),
        (STEPS + LUSTRE + WATCHDOG, "slow_rank_or_io", "server 192.0.2.44@o2ib"),
        (STEPS + LUSTRE + WATCHDOG, "slow_rank_or_io", "storage target lab-OST0003"),
        (STEPS + NFS + WATCHDOG, "slow_rank_or_io", "server files.example"),
    ],
)
def test_what_is_lost_is_named_and_belongs_to_who_runs_the_cluster(text, cause, named):
    first = causes(text)[0]
    assert (
        (first["cause"], first["owner"]) == (cause, "sre")
        and named in first["where"]
        and "how" not in first["remedy"]
    )


@pytest.mark.parametrize(
    ("text", "cause", "words", "owner"),
    [
        (SANDBOX, "launch_mismatch", "gets no network", "sre"),
        (TAINTED, "no_free_gpu", "does not tolerate the taint", "user"),
        (FULL, "no_free_gpu", "finds no free GPU", "sre"),
    ],
)
def test_pod_that_does_not_start_is_answered_by_its_own_line(text, cause, words, owner):
    first = causes(text)[0]
    assert (first["cause"], first["owner"]) == (cause, owner) and words in first["title"]


def test_two_pods_with_unlike_faults_are_two_causes_and_the_toleration_comes_first():
    found = causes(SANDBOX + TAINTED)
    assert {one["cause"] for one in found} == {"launch_mismatch", "no_free_gpu"}
    assert next(one for one in found if one["cause"] == "no_free_gpu")["remedy"][
        "person"
    ].startswith("add a toleration")


@pytest.mark.parametrize("line", [SANDBOX, TAINTED])
def test_pod_that_started_after_all_is_no_cause(line):
    assert causes(line + STEPS + "Training completed in 0:12:01\n") == []


def test_pod_whose_container_started_later_has_its_network():
    assert [
        one["cause"]
        for one in causes(SANDBOX + "4m Normal Started pod/worker-0 Started container trainer\n")
        if one["severity"] != "info"
    ] == []


def test_node_that_is_ready_again_was_not_lost():
    lost = "5m  Warning  NodeNotReady  node/gpu-b  Node gpu-b status is now: NodeNotReady\n"
    assert causes(lost)[0]["cause"] == "rank_failed"
    assert (
        causes(lost + "3m  Normal  NodeReady  node/gpu-b  Node gpu-b status is now: NodeReady\n")
        == []
    )
