"""A rollout keeps its floor of nodes that are really in service, by the playbook and the site's own
drain command, over scripted nodes."""

from __future__ import annotations

import kubectl
import site_drain
from fakes.role_play import PROJECT
from kubernetes_cluster import NEEDED, cluster, kubernetes, make_node
from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal

__all__ = ["cluster", "kubernetes"]
REAL = ("drain", "wait", "keep", "release")
HOSTS = ("gpu001", "gpu002", "gpu003", "gpu004")
WAVES = [["gpu001"], ["gpu002", "gpu003"], ["gpu004"]]
FREE, DRAINED = {}, {"drained": True, "by": "alice", "reason": "bad DIMM"}


def rolled_out(folder, states, then=(), away=False, **variables):
    """A rollout of four nodes; two stay in service. states: {node: its state for the site}; then:
    (act, node) after which another user drains the node."""
    site = folder / "site"
    site.mkdir()
    given = site_drain.install(site, {host: states.get(host, FREE) for host in HOSTS})
    if then:
        site_drain.drained_then(site, *then)
    if away:
        (site / "away").touch()
    return roll_out(
        prepare(folder, WAVES, REAL, floor=2),
        {},
        **{**given, "drain_poll_s": 1, "node_change_rootfs": str(folder), **variables},
    )


def lines_of(scripted, step):
    return [entry for entry in read_journal(scripted.run).entries if entry.step == step]


def test_a_wave_takes_fewer_nodes_when_somebody_drains_another_one_and_the_line_names_it(tmp_path):
    done = rolled_out(tmp_path, {}, then=("release gpu001", "gpu004"))
    assert done.states() == {
        "gpu001": "released",
        "gpu002": "released",
        "gpu003": "deferred",
        "gpu004": "deferred",
    }, done.played.output
    why = "at least 2 nodes must stay in service, and 3 are now; out of service by others: gpu004 (alice (bad DIMM))"
    assert f"put off: gpu003, {why}" in done.played.output
    assert done.acts("apply") == ["gpu001", "gpu002"]
    assert site_drain.known(tmp_path / "site", "gpu003") == site_drain.FREE
    assert site_drain.known(tmp_path / "site", "gpu004")["by"] == "alice"


def test_who_is_drained_after_the_wave_was_let_begin_counts_before_the_next_drain(tmp_path):
    done = rolled_out(tmp_path, {"gpu003": DRAINED}, then=("drain gpu001", "gpu004"))
    assert done.states()["gpu001"] == "released"
    assert done.states()["gpu002"] == "deferred", done.played.output
    assert done.acts("apply") == ["gpu001"]


def test_no_node_is_drained_while_nobody_can_say_who_is_in_service(tmp_path):
    done = rolled_out(tmp_path, {}, away=True)
    assert set(done.states().values()) == {"deferred"}, done.played.output
    assert "the site's scheduler is away" in done.why("gpu001")
    assert (
        "nothing new is begun, not proved healthy among the canaries, for it was put off: gpu001"
        in done.played.output
    )
    assert [site_drain.known(tmp_path / "site", host) for host in HOSTS] == [site_drain.FREE] * 4


def test_a_hook_that_lists_no_nodes_is_said(tmp_path):
    done = rolled_out(tmp_path, {"gpu004": DRAINED}, drain_command_states=False)
    assert [done.states()[host] for host in HOSTS[:3]] == ["released"] * 3, done.played.output
    assert "the drain adapter command lists no nodes" in lines_of(done, "floor")[0].evidence["why"]


@NEEDED[0]
@NEEDED[1]
def test_in_kubernetes_a_node_that_is_cordoned_or_not_ready_is_out_of_service(cluster, tmp_path):
    cordoned, away = make_node("gpu003"), make_node("gpu004")
    cordoned["spec"]["unschedulable"] = True
    away["status"]["conditions"][0]["status"] = "Unknown"
    cluster.add(make_node("gpu001"), make_node("gpu002"), cordoned, away)
    given = {
        "drain_adapter": "kubernetes",
        "drain_kubernetes_kubeconfig": str(cluster.kubeconfig(tmp_path)),
        "drain_poll_s": 1,
        "drain_scheduler_timeout_s": 60,
        "node_change_rootfs": str(tmp_path),
        "unhang_max_failed": "100%",
    }
    done = roll_out(
        prepare(tmp_path, WAVES, REAL, floor=1),
        {"gpu001": ["unhealthy smoke_alone"]},
        kubectl.ready(PROJECT / ".cache" / "kubectl"),
        **given,
    )
    why = "at least 1 node must stay in service, and 2 are now; out of service by others: gpu003 (somebody else cordoned it), gpu004 (it is not Ready)"
    assert [entry.evidence["why"] for entry in lines_of(done, "floor")[:1]] == [why], (
        done.played.output
    )
    assert done.states() == {"gpu001": "kept", **dict.fromkeys(HOSTS[1:], "deferred")}
    assert {name for _what, name in cluster.writes} == {"gpu001"}
