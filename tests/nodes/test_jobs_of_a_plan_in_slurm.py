"""A plan and its preview, made while a job of a real Slurm has a node for itself: the job uses no
GPU, and only its scheduler knows of it."""

from __future__ import annotations

import json
import shutil
import types
from pathlib import Path

import pytest
import slurm_nodes
import torch_in_nodes
from slurm_site import Site

NAMES = ("gpu001", "gpu002")
BUSY, IDLE = NAMES
RULE = "cuda-visible-devices-pinned"
pytestmark = slurm_nodes.marks(3000)


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """The plan of an idle cluster, then plan and preview beside the job."""
    work = tmp_path_factory.mktemp("jobs")
    with slurm_nodes.cluster_of(NAMES, fake_library, work) as cluster:
        for name in NAMES:
            cluster.fleet.plant(name, "/etc/environment", "CUDA_VISIBLE_DEVICES=0\n")
            cluster.fleet.undo.callback(cluster.fleet.shell, name, "rm -rf /var/lib/unhang")
            for program in ("scontrol", "squeue"):
                there = shutil.which(program)
                cluster.fleet.plant(name, f"/usr/bin/{program}", Path(there).read_bytes(), 0o755)
        python = {"smoke_test_python": str(torch_in_nodes.PYTHON)}
        site = Site(cluster, work, variables=python)
        run = site.audit()
        idle = planned(site, run)
        job = cluster.start_job(BUSY, "#!/bin/sh\nsleep 100000\n")
        site.unhang("plan", str(run), "--rule", RULE)
        kept = planned(site, run, new=False)
        beside = planned(site, run)
        shown = site.unhang("plan", str(run))
        preview = site.unhang("remediate", str(run), codes=(0,))
        rows = json.loads(site.unhang("remediate", str(run), "-o", "json", codes=(0,)))["hosts"]
        # the controller has Slurm's commands, but not the cluster's configuration
        conf = cluster.environment.pop("SLURM_CONF")
        by_node = planned(site, run)
        for name in NAMES:
            cluster.fleet.shell(name, "mv /etc/slurm /etc/slurm.away")
        unknown = planned(site, run)
        for name in NAMES:
            cluster.fleet.shell(name, "mv /etc/slurm.away /etc/slurm")
        cluster.environment["SLURM_CONF"] = conf
        yield types.SimpleNamespace(
            job=job,
            still=cluster.say("squeue", "-h", "-j", job, "-o", "%T"),
            idle=idle,
            kept=kept,
            beside=beside,
            shown=shown,
            preview=preview,
            rows=rows,
            by_node=by_node,
            unknown=unknown,
        )
        cluster.must("scancel", job)


def planned(site, run, new=True):
    """(hosts of each wave, host -> its jobs) of the run's plan."""
    plan = site.plan(run, "--rule", RULE, *(["--new"] if new else []))
    return (
        [wave["hosts"] for wave in plan["waves"]],
        {row["host"]: row["jobs"] for row in plan["hosts"]},
    )


def job_of(day):
    return [{"pid": None, "user": "root", "command": None, "gpus": [], "id": day.job}]


def test_without_a_job_both_nodes_are_known_to_be_idle(day):
    assert day.idle == ([[BUSY], [IDLE]], {BUSY: [], IDLE: []})


def test_a_node_with_a_job_of_slurm_comes_last_and_the_plan_names_the_job(day):
    assert day.beside == ([[IDLE], [BUSY]], {BUSY: job_of(day), IDLE: []})
    assert f"  jobs        job {day.job} on {BUSY}\n" in day.shown
    assert "  jobs        none when the nodes were read and slurm was asked\n" in day.shown
    assert day.still == "RUNNING"


def test_a_plan_that_is_there_keeps_the_answers_that_it_was_made_with(day):
    assert day.kept == day.idle


def test_the_preview_counts_and_names_the_job_of_now(day):
    assert "  jobs         on 1 node; waited for" in day.preview
    assert f"  jobs                           job {day.job}\n" in day.preview
    assert {row["host"]: (row["jobs"], row["running"]) for row in day.rows} == {
        BUSY: (1, f"job {day.job}"),
        IDLE: (0, ""),
    }


def test_a_node_of_the_cluster_is_asked_where_the_controller_cannot_ask(day):
    assert day.by_node == day.beside


def test_where_nobody_can_be_asked_jobs_are_not_known_instead_of_none(day):
    assert day.unknown == ([[BUSY], [IDLE]], dict.fromkeys(NAMES))
