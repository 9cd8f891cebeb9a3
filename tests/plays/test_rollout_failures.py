"""Each kind of failure at several places of a batch, by the playbook: every node ends in its
defined state, and no node after that batch is touched."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
import site_drain
from scripted_rollout import STEP, prepare, roll_out

# Fault of a node -> the state in which it ends. Nothing was changed on it, or it was restored; the
# first and the last are at the ends of the batch.
COUNTED = {
    "unreachable lock": "unfinished",
    "fails lock": "deferred",
    "fails drain": "deferred",
    "a job stays wait": "waiting",
    "fails apply": "kept",
    "hangs apply": "kept",
    "lies apply": "kept",
    "lies reboot": "kept",
    "unhealthy smoke_alone": "kept",
    "unhealthy audit_again": "kept",
    "wrong kernel reboot": "kept",
    "wrong driver reboot": "kept",
}
# Nothing was changed and nothing failed: these are put off, and count for no limit.
PUT_OFF = ("deferred", "waiting")
FAILED = [place for place, state in enumerate(COUNTED.values()) if state not in PUT_OFF]
# Changed, and not restored.
LOST = {
    "taken over, fails apply": "taken over",
    "unreachable apply": "unfinished",
    "unhealthy audit, fails roll_back": "lost",
    "unhealthy smoke_together, unreachable reboot_back": "unfinished",
    "unreachable audit": "unfinished",
    "unreachable reboot": "unfinished",
}


def one_each(kinds):
    """{host: faults}: a node for each kind of failure."""
    return {f"bad{number:02d}": kind.split(", ") for number, kind in enumerate(kinds)}


def in_a_batch(folder, kinds, healthy, **variables):
    """A rollout with a canary, a batch with each kind of failure once and healthy nodes in its
    middle, and one node after them."""
    bad = one_each(kinds)
    batch = [*list(bad)[: len(bad) // 2], *healthy, *list(bad)[len(bad) // 2 :]]
    return roll_out(
        prepare(folder, [["canary"], batch, ["behind"]]), {**bad, **healthy}, **variables
    )


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The limit is one below the number of failures: it stops the rollout only when each failure is
    counted."""
    healthy = {"good1": [], "good2": ["fails release"]}
    return in_a_batch(
        tmp_path_factory.mktemp("counted"), COUNTED, healthy, unhang_max_failed=len(FAILED) - 1
    )


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """Any number of failures is allowed."""
    return in_a_batch(
        tmp_path_factory.mktemp("lost"), LOST, {"good1": []}, unhang_max_failed="100%"
    )


def once(done):
    """Whether no step ran twice on a node."""
    return set(Counter((done.folder / "acts").read_text().splitlines()).values()) == {1}


def test_each_kind_of_failure_in_a_batch_ends_in_its_named_state(counted):
    ends = dict(zip(one_each(COUNTED), COUNTED.values(), strict=True))
    assert counted.states() == {
        "canary": "released",
        "good1": "released",
        "good2": "unfinished",
        **ends,
    }
    assert all(counted.why(host) for host in ends)
    assert counted.played.code != 0
    assert once(counted)


def test_the_failure_limit_counts_each_kind_of_failure_and_touches_nothing_behind_the_wave(counted):
    failed = [list(one_each(COUNTED))[place] for place in FAILED]
    stopped = (
        f"wave 2: nothing new is begun, not proved healthy: {', '.join(failed[:8])} and"
        f" {len(failed) - 8} more; at most {len(failed) - 1} may be"
    )
    assert stopped in counted.played.output
    assert "behind" not in (counted.folder / "acts").read_text()


def test_what_failed_before_it_was_changed_is_released_and_what_was_changed_is_rolled_back(counted):
    kept = sorted(host for host, state in counted.states().items() if state == "kept")
    assert (
        sorted(counted.acts("keep"))
        == sorted(counted.acts("roll_back"))
        == sorted(counted.acts("audit_back"))
        == kept
    )
    assert sorted(counted.acts("release")) == sorted(
        {
            "canary",
            "good1",
            "good2",
            *(host for host, state in counted.states().items() if state == "deferred"),
        }
        - {  # nothing of the rollout was on it
            host for host, kinds in one_each(COUNTED).items() if kinds == ["fails lock"]
        }
    )
    ran_new = [
        host
        for host, kind in one_each(COUNTED).items()
        if kind[0]
        in (
            "unhealthy smoke_alone",
            "unhealthy audit_again",
            "wrong kernel reboot",
            "wrong driver reboot",
        )
    ]
    assert sorted(counted.acts("reboot_back")) == ran_new


def test_a_node_that_is_not_brought_back_stops_everything_however_many_failures_are_allowed(lost):
    ends = dict(zip(one_each(LOST), LOST.values(), strict=True))
    assert lost.states() == {"canary": "released", "good1": "released", **ends}
    assert (
        "wave 2: nothing new is begun, not brought back, or no answer after it was changed:"
        f" {', '.join(ends)}" in lost.played.output
    )
    assert "behind" not in (lost.folder / "acts").read_text()
    assert once(lost)


def test_one_canary_that_fails_stops_everything_wherever_it_stands_in_its_batch(tmp_path):
    done = roll_out(
        prepare(tmp_path, [["bad", "good"], ["behind"]]),
        {"bad": ["fails save"]},
        unhang_max_failed="100%",
    )
    assert done.states() == {"bad": "deferred", "good": "released"}
    assert (
        "wave 1: nothing new is begun, not proved healthy among the canaries, for it was put"
        " off: bad" in done.played.output
    )
    assert "behind" not in (done.folder / "acts").read_text()


def test_a_node_that_boots_after_its_proof_is_not_released_and_is_proved_again_by_the_same_command(
    tmp_path,
):
    done = prepare(tmp_path, [["boots"], ["behind"]], real=("release",))
    ours = {"drained": True, "by": "site", "reason": f"unhang {done.run.name}: gpu_driver"}
    site = site_drain.install(tmp_path, {"boots": ours, "behind": ours})
    roll_out(done, {"boots": ["boots boot_id"]}, **site)
    assert done.states() == {"boots": "unfinished"}
    assert "its boot is boots-boot-3, not boots-boot-2" in done.why("boots")
    assert site_drain.known(tmp_path, "boots") == {**site_drain.FREE, **ours}
    roll_out(done, {}, **site)
    assert done.states() == {"boots": "released", "behind": "released"}
    assert site_drain.known(tmp_path, "boots") == site_drain.FREE
    assert (done.acts("audit").count("boots"), done.acts("reboot").count("boots")) == (2, 1)


def test_a_sites_settings_of_ansible_do_not_end_the_other_nodes_of_a_wave(tmp_path):
    done = prepare(tmp_path, [["bad", "good"]])
    roll_out(
        done,
        {"bad": ["fails drain"]},
        {"ANSIBLE_ANY_ERRORS_FATAL": "True", "ANSIBLE_STRATEGY": "free"},
    )
    assert done.states() == {"bad": "deferred", "good": "released"}, done.played.output[-3000:]


def test_a_node_whose_release_fails_keeps_its_baseline_for_a_second_proof(tmp_path):
    done = prepare(tmp_path, [["gone", "good"]], real=("release",))
    (tmp_path / "gone.baseline").touch()
    (tmp_path / "good.baseline").touch()
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "gone.yml").write_text("drain_command: [/usr/bin/false]\n")
    site = site_drain.install(
        tmp_path,
        {"good": {"drained": True, "by": "site", "reason": f"unhang {done.run.name}: gpu_driver"}},
    )
    (tmp_path / "host_vars" / "good.yml").write_text(
        f"drain_command: {json.dumps(site.pop('drain_command'))}\n"
    )
    roll_out(done, {}, **site)
    assert done.states() == {"gone": "unfinished", "good": "released"}, done.played.output[-3000:]
    assert [path.stem for path in tmp_path.glob("*.baseline")] == ["gone"]


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs Slurm's commands")
@pytest.mark.parametrize("at", ["drain", "release"])
def test_a_node_whose_slurmctld_is_away_is_not_changed_or_stays_drained_until_it_answers(
    tmp_path, at
):
    done = prepare(tmp_path, [["gpu001"]], real=(at, "release"))
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=localhost\nSlurmctldPort=1\nNodeName=gpu001\n")
    slurm = {"drain_adapter": "slurm", "drain_scheduler_timeout_s": 1}
    roll_out(done, {}, {"SLURM_CONF": str(conf)}, **slurm)
    assert done.states() == {"gpu001": "unfinished"}
    assert (
        "slurmctld did not answer within 1 s: slurm_load_node error: Unable to contact slurm controller (connect failure); next: start slurmctld, or name its host"
    ) in done.why("gpu001")
    changed = [] if at == "drain" else ["gpu001"]
    assert done.acts("apply") == done.acts("reboot") == changed
    assert done.acts("roll_back") == []
    assert done.drained() == changed
    ours = {"drained": True, "by": "site", "reason": f"unhang {done.run.name}: gpu_driver"}
    site = site_drain.install(tmp_path, {"gpu001": ours if changed else {}})
    roll_out(done, {}, **site)  # a scheduler that answers
    assert done.states() == {"gpu001": "released"}
    assert done.acts("apply") == done.acts("reboot") == ["gpu001"]


def test_a_node_that_takes_jobs_again_before_its_change_is_left_to_them(tmp_path):
    done = prepare(tmp_path, [["busy", "free"]], real=("drain", "wait", "still_free", "release"))
    site = site_drain.install(tmp_path, {"busy": {}, "free": {}})
    site_drain.started_then(tmp_path, "wait busy", "busy")
    roll_out(done, {}, **site, drain_poll_s=1, node_change_rootfs=str(tmp_path))
    assert done.states() == {"busy": "deferred", "free": "released"}, done.played.output[-3000:]
    assert done.acts("apply") == done.acts("reboot") == ["free"]
    assert (
        "wait of busy is not done after 10 s: jobs 4711 are there; no job was touched"
        in done.why("busy")
    )
    assert site_drain.known(tmp_path, "busy")["jobs"] == [
        {"id": "4711", "user": "alice", "state": "RUNNING"}
    ]


def test_no_smoke_test_runs_beside_a_job_and_a_node_that_was_not_tested_is_kept_as_it_is(tmp_path):
    done = prepare(
        tmp_path,
        [["busy", "free"]],
        real=("drain", "wait", "still_free", "smoke_together", "keep", "release"),
    )
    (tmp_path / "tasks" / "rollout" / "smoke_group.yml").write_text(
        STEP.format(step="smoke_together")
    )
    site = site_drain.install(tmp_path, {"busy": {}, "free": {}})
    site_drain.started_then(tmp_path, "wait busy 3", "busy")  # after the check before the reboot
    roll_out(done, {}, **site, drain_poll_s=1, node_change_rootfs=str(tmp_path))
    assert done.states() == {"busy": "lost", "free": "released"}, done.played.output[-3000:]
    assert done.acts("smoke_together") == ["free"]
    assert done.acts("roll_back") == done.acts("reboot_back") == []
    assert done.why("busy").startswith("smoke_together: ")
    assert "jobs 4711" in done.why("busy")
    busy = site_drain.known(tmp_path, "busy")
    assert (busy["drained"], busy["jobs"][0]["id"]) == (True, "4711")
