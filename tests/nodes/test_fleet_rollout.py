"""The whole procedure on six booted nodes in a real Slurm: audits the five situations, plans, rolls
out in five waves by `unhang remediate`, audits again."""

from __future__ import annotations

import datetime
import json
import types

import audits
import faulty_nodes
import pytest
import slurm_nodes
import torch_in_nodes
from faulty_nodes import BAD_DRIVER, NAMES, OLD_KERNEL, ONE_GPU
from slurm_site import (
    DEADLINE_S,
    SMOKE,
    Site,
    boot_ids,
    entries,
    failed_rules,
    node_of,
    states,
    unnamed,
)

pytestmark = slurm_nodes.marks(3000)
GROUPS = {
    "production": ["gpu001", "gpu002", "gpu003", "gpu006"],
    "development": ["gpu004"],
    "workstations": ["gpu005"],
    "rack2": ["gpu003", "gpu006"],
}
LIMITS = ("--max-unavailable", "3", "--floor", "3", "--group-limit", "rack2=1")
# Two ranks, so that data is sent, and a size whose bandwidth is a number on any machine.
MEASURED_BYTES = 4 << 20
MEASURES = [
    *SMOKE,
    "--nproc",
    "2",
    "--max-size",
    str(MEASURED_BYTES),
    "--phases",
    "broadcast,all_reduce,bandwidth",
    "--sizes",
    str(MEASURED_BYTES),
]
NONE = []
# Runs until the file exists, and records what it found when it ended.
JOB = (
    "#!/bin/sh\nuntil [ -e /run/job-may-end ]; do sleep 0.2; done\ncp /etc/environment"
    " /srv/job-saw\ndate +%s > /srv/job-ended\n"
)
LEFT = "rm -rf /var/lib/unhang /run/job-may-end /srv/job-saw /srv/job-ended"


@pytest.fixture(scope="module")
def cluster(fake_library, tmp_path_factory):
    """Six nodes with slurmd."""
    with slurm_nodes.cluster_of(NAMES, fake_library, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="class")
def story(cluster, tmp_path_factory):
    """Runs all stages once; gives the result of each stage for the tests."""
    with cluster.lent(tmp_path_factory.mktemp("story")) as fleet:
        own = {name: {"unhang_policy": policy} for name, policy in faulty_nodes.POLICIES.items()}
        # the only node of its kind: no other node has to have the same test options
        own[OLD_KERNEL] = {"smoke_test_arguments": MEASURES}
        yield tell(cluster, fleet, Site(cluster, fleet.work, GROUPS, host_variables=own))


def tell(cluster, fleet, site):
    """Audit, plan, rollout with a job on one node, audit, plan."""
    faulty_nodes.make_sick(fleet, site.work)
    for name in NAMES:
        fleet.undo.callback(fleet.shell, name, LEFT)
    run, before = site.audit(), boot_ids(fleet, NAMES)
    planned = site.plan(run, *LIMITS)
    job = cluster.start_job(ONE_GPU, JOB)
    with site.remediating(run, torch_in_nodes.PYTHON) as process:
        ended = process.wait(timeout=DEADLINE_S)
    waited = {
        "code": ended,
        "job": cluster.say("squeue", "-h", "-j", job, "-o", "%T"),
        "reservations": cluster.must("scontrol", "-o", "show", "reservations"),
        "file": fleet.shell(ONE_GPU, "cat /etc/environment"),
        "begun": entries(run, ONE_GPU, "apply", "begun"),
        "others": {name: cluster.state(name)[0] for name in NAMES},
    }
    fleet.shell(ONE_GPU, "touch /run/job-may-end")
    audits.wait_until(lambda: not cluster.say("squeue", "-h"), "the job has ended")
    with site.remediating(run, torch_in_nodes.PYTHON) as process:
        code = process.wait(timeout=DEADLINE_S)
    status = json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))
    told = {"status": status}
    told["page"] = site.unhang("report", str(run), "--format", "html", "--out", "-")
    again, after = site.audit(), boot_ids(fleet, NAMES)
    shown = {
        "planned": planned,
        "run": run,
        "job": job,
        "waited": waited,
        "code": code,
        "before": before,
        "after": after,
        "again": again,
    }
    return types.SimpleNamespace(
        **shown, **told, left=site.plan(again, *LIMITS), cluster=cluster, fleet=fleet, site=site
    )


class TestTheFiveSituations:
    """Audited, planned, rolled out in waves, audited and planned again."""

    def test_the_plan_has_one_canary_of_each_kind_and_two_waves(self, story):
        waves = [(wave["name"], wave["hosts"]) for wave in story.planned["waves"]]
        assert waves == [
            ("canary 1", ["gpu001"]),
            ("canary 2", ["gpu004"]),
            ("canary 3", ["gpu005"]),
            ("wave 1", ["gpu002", "gpu003"]),
            ("wave 2", ["gpu006"]),
        ]
        planned = {
            row["host"]: {rule for remedy in row["remedies"] for rule in remedy["because"]}
            for row in story.planned["hosts"]
        }
        assert {
            name: sorted(rules - planned[name]) for name, rules in faulty_nodes.REPAIRED.items()
        } == dict.fromkeys(NAMES, NONE)

    def test_every_node_is_proved_and_released_and_the_journal_has_each_step_once(self, story):
        assert (story.code, states(story.run, NAMES)) == (
            0,
            dict.fromkeys(NAMES, "released"),
        ), story.site.output[-5000:]
        assert {name: story.cluster.state(name)[0] for name in NAMES} == dict.fromkeys(
            NAMES, "IDLE"
        )
        for step in (
            "drain",
            "apply",
            "audit",
            "smoke_alone",
            "smoke_together",
            "audit_again",
            "release",
        ):
            assert {
                name: len(entries(story.run, name, step, "done")) for name in NAMES
            } == dict.fromkeys(NAMES, 1), step

    def test_the_bandwidth_after_the_change_stands_in_table_json_and_page(self, story):
        [row] = [row for row in story.status["hosts"] if row["host"] == OLD_KERNEL]
        alone, last = row["bandwidth_alone"], row["bandwidth"]
        for rates in (alone, last):
            assert [
                (one["op"], one["size_bytes"]) for one in rates if one["op"] == "all_reduce"
            ] == [("all_reduce", MEASURED_BYTES)]
            assert all(one["busbw_gb_s"] > 0 for one in rates)
        speeds = [
            next(one["busbw_gb_s"] for one in rates if one["op"] == "all_reduce")
            for rates in (alone, last)
        ]
        words = zip(speeds, ("alone after the change", "in the last test"), strict=True)
        line = f"busbw all_reduce at {MEASURED_BYTES:,} bytes: " + ", ".join(
            f"{speed:.1f} GB/s {when} (1 node)" for speed, when in words
        )
        assert line in story.site.output
        assert line in story.page
        for speed in speeds:
            assert f"all_reduce {speed:.1f} GB/s at {MEASURED_BYTES:,} bytes" in story.page

    def test_a_job_that_runs_is_waited_for_and_the_node_is_changed_only_after_it(self, story):
        assert (story.waited["job"], story.waited["begun"]) == ("RUNNING", [])
        assert story.waited["code"] == 3
        assert f"unhang-{story.planned['run']['id']}-{ONE_GPU}" in story.waited["reservations"]
        assert (
            story.waited["file"]
            == story.fleet.shell(ONE_GPU, "cat /srv/job-saw")
            == faulty_nodes.PINNED
        )
        job = story.cluster.must("scontrol", "show", "job", story.job)
        assert ("JobState=COMPLETED" in job, "ExitCode=0:0" in job) == (True, True), job
        [applied] = entries(story.run, ONE_GPU, "apply", "begun")
        begun = datetime.datetime.fromisoformat(applied.at).timestamp()
        assert begun >= int(story.fleet.shell(ONE_GPU, "cat /srv/job-ended"))

    def test_a_wave_that_has_not_come_is_in_service(self, story):
        assert {
            name: story.waited["others"][name] for name in ("gpu001", "gpu004", "gpu005", "gpu006")
        } == dict.fromkeys(("gpu001", "gpu004", "gpu005", "gpu006"), "IDLE")

    def test_only_the_driver_took_a_reboot(self, story):
        assert [name for name in NAMES if story.after[name] != story.before[name]] == [BAD_DRIVER]
        assert {name: node_of(story.run, name).boots for name in NAMES} == dict.fromkeys(
            NAMES, ()
        ) | {BAD_DRIVER: (("reboot", story.before[BAD_DRIVER]),)}

    def test_nothing_is_left_that_a_role_can_fix(self, story):
        assert story.left["waves"] == []
        assert [row["host"] for row in story.left["hosts"] if row["remedies"]] == []
        found = failed_rules(story.again, NAMES)
        assert {
            name: sorted(found[name] & rules) for name, rules in faulty_nodes.REPAIRED.items()
        } == dict.fromkeys(NAMES, NONE)
        assert "driver-545-23-08-p2p-deadlock" not in found[BAD_DRIVER]

    def test_every_other_finding_names_who_has_to_look(self, story):
        # a remark of severity info stands on healthy nodes too, and asks nobody
        found = failed_rules(story.again, NAMES, but=("info",))
        assert {
            name: unnamed(story.left, name, rules) for name, rules in found.items() if rules
        } == {name: NONE for name, rules in found.items() if rules}
        assert {
            name: sorted(rules - found[name]) for name, rules in faulty_nodes.FOR_A_PERSON.items()
        } == dict.fromkeys(faulty_nodes.FOR_A_PERSON, NONE)

    def test_no_lock_and_no_drain_is_left(self, story):
        assert [
            name for name in NAMES if "lock.json" in story.fleet.shell(name, "ls /var/lib/unhang")
        ] == []
        assert story.cluster.say("sinfo", "--noheader", "--list-reasons") == ""
