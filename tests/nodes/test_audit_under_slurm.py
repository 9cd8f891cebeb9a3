"""`unhang audit --via slurm` over eight slurmd of a real Slurm: idle nodes, a job's nodes, and what
a node, a job or Slurm itself may do to a reading."""

from __future__ import annotations

import concurrent.futures
import json

import audits
import pytest
import slurm_here
from documented_command import as_typed
from eight_nodes_here import CONFIGURATION, NAMES, NOBODY, EightNodes

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)
ANOTHER = (
    '{"schema": "unhang/node-facts/1", "collector": {}, "sections": {"node": {"probe": {"status":'
    ' "ok"}, "hostname": "gpu001"}}}'
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"), NAMES, CONFIGURATION, "")


@pytest.fixture
def eight(slurm, tmp_path):
    """The nodes, idle again at the end."""
    nodes = EightNodes(slurm, tmp_path)
    yield nodes
    slurm.run("scancel", "--user=root")
    slurm.run("scancel", "--name=unhang-audit")
    for name in NAMES:  # one that needs it; others refuse
        slurm.bed.run(
            ["scontrol", "update", f"nodename={name}", "state=resume"], env=slurm.environment
        )
    nodes.idle()


def test_all_idle_nodes_are_read_in_one_job_which_is_gone_afterwards(eight):
    done = eight.audit()
    assert eight.statuses(done) == dict.fromkeys(NAMES, "ok"), done.stderr
    assert "unhang: 8 hosts by srun in a job on idle nodes" in done.stderr
    assert eight.slurm.run("squeue", "--noheader", "--states=RUNNING,PENDING") == ""


def test_a_drained_and_a_down_node_are_named_as_not_read_and_continue_reads_them_later(eight):
    for name, state in (("gpu003", "drain"), ("gpu004", "down")):
        eight.slurm.run("scontrol", "update", f"nodename={name}", f"state={state}", "reason=a fan")
    done = eight.audit(
        *as_typed("unhang audit --via slurm --slurm-partition gpu", {"gpu": "all"})[4:]
    )
    assert eight.statuses(done) == {
        **dict.fromkeys(NAMES, "ok"),
        "gpu003": "unreachable",
        "gpu004": "unreachable",
    }
    assert done.node("gpu004")["message"] == "not read: Slurm has it down (a fan)"
    assert "unhang: gpu003 not read: Slurm has it drain+idle (a fan)" in done.stderr
    assert "not read: Slurm has it drain+idle (a fan)" in " ".join(done.stdout.split())
    for name in ("gpu003", "gpu004"):
        eight.slurm.run("scontrol", "update", f"nodename={name}", "state=resume")
    eight.idle()
    before = (done.folder / "nodes" / "gpu001.json").stat().st_mtime_ns
    again = eight.audit("--continue", str(done.folder))
    assert eight.statuses(again) == dict.fromkeys(NAMES, "ok"), again.stderr
    assert (done.folder / "nodes" / "gpu001.json").stat().st_mtime_ns == before
    assert "not read" not in again.stdout


def test_a_job_of_whole_nodes_is_read_by_its_number_or_by_the_environment_and_goes_on(eight):
    job = eight.job(3)
    words = as_typed("unhang audit --via slurm --slurm-job 1234", {"1234": job})[4:]
    for done in (eight.audit(*words), eight.audit(environment={"SLURM_JOB_ID": job})):
        assert eight.statuses(done) == dict.fromkeys(NAMES[:3], "ok"), done.stderr
        assert f"3 hosts by srun in job {job}" in done.stderr
    assert eight.statuses(
        eight.audit("--slurm-job", job, "--limit", "gpu[002-003]")
    ) == dict.fromkeys(NAMES[1:3], "ok")
    assert eight.slurm.run("squeue", "--noheader", "--format=%i %T") == f"{job} RUNNING"
    others = eight.audit()
    assert eight.statuses(others) == {
        **dict.fromkeys(NAMES[:3], "unreachable"),
        **dict.fromkeys(NAMES[3:], "ok"),
    }
    assert "Slurm has it allocated" in others.node("gpu001")["message"]


def test_a_job_without_all_gpus_of_a_node_does_not_read_it(eight):
    job = eight.job(1, "--gres=gpu:1", "--ntasks=1")
    done = eight.audit("--slurm-job", job)
    assert eight.statuses(done) == {"gpu001": "unreachable"}
    assert "gpu:2 is more than the job's gres_per_node=gpu:1" in done.node("gpu001")["message"]


def test_what_a_node_answers_costs_its_own_result_alone(eight):
    liar = eight.program(
        "liar", f"print({ANOTHER!r}, flush=True)\nprint('~ 0', flush=True)\nprint({ANOTHER!r})"
    )
    python = eight.python(
        gpu002=f"exec {liar}",
        gpu003=(
            'for n in 0 1 2 3 4 5 6 7; do echo; echo "$n: {}"; echo "$n: ~ 0"; done; echo'
            " '7: lost' >&2; echo 'srun: error: gpu007: task 6: Killed' >&2"
        ),
        gpu004="exec cat /dev/zero",
        gpu005="echo '{\"schema\":'; exit 0",
        gpu006="exec sleep 1000",
        gpu007="exec yes ''",
        gpu008="echo 'no memory is left' >&2; exit 3",
    )
    done = eight.audit("--", *python, "-e", "unhang_node_timeout_s=15")
    wanted = {
        "gpu001": "ok",
        "gpu002": "invalid",
        "gpu003": "ok",
        "gpu004": "invalid",
        "gpu005": "invalid",
        "gpu006": "timeout",
    }
    assert eight.statuses(done) == {**wanted, "gpu007": "invalid", "gpu008": "failed"}
    assert done.node("gpu002")["message"] == "this is the answer of gpu001, not of gpu002"
    assert "more than 4194304" in done.node("gpu004")["message"]
    assert "node_facts is not a JSON document" in done.node("gpu005")["message"]
    assert done.node("gpu006")["message"] == "no answer within 15 s"
    assert "more than 4194304" in done.node("gpu007")["message"]
    assert (
        done.node("gpu008")["message"] == "the collector ended without an answer: no memory is left"
    )
    assert eight.slurm.run("squeue", "--noheader", "--states=RUNNING") == ""


def test_a_job_that_ends_in_the_middle_loses_nothing_that_had_arrived(eight):
    job = eight.job(3)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(
            eight.audit,
            "--slurm-job",
            job,
            "--",
            *eight.python(gpu002="exec sleep 1000", gpu003="echo {; exec sleep 1000"),
        )
        audits.wait_until(
            lambda: running.done() or '"ok"' in eight.text_of("gpu001"), "gpu001 has answered"
        )
        eight.slurm.run("scancel", job)
        done = running.result()
    assert eight.statuses(done) == {"gpu001": "ok", "gpu002": "failed", "gpu003": "invalid"}
    ended = ("CANCELLED", "Terminated", "Killed")
    assert any(word in done.node("gpu002")["message"] for word in ended)


def test_another_user_than_root_reads_as_himself(eight):
    done = eight.audit_as_nobody()
    assert done.code in (0, 1), done.stderr
    assert eight.statuses(done) == dict.fromkeys(NAMES, "ok")
    assert '"denied"' in json.dumps(done.node("gpu001")["facts"]["sections"])


def test_root_is_had_by_sudo_where_it_asks_for_no_password(eight):
    root = eight.audit("--limit", "gpu001", "--", "--become")
    assert eight.statuses(root) == {"gpu001": "ok"}
    done = eight.audit_as_nobody("--limit", "gpu001", "--", "--become")
    assert eight.statuses(done) == {"gpu001": "failed"}
    assert "sudo: " in done.node("gpu001")["message"]
    asked = eight.audit("--", "--become", "--ask-become-pass")
    assert asked.code == 2
    assert "takes only `sudo -n` as the way to root, not a password for gpu[001" in asked.stderr


def test_the_deadline_of_the_run_cuts_a_node_that_still_works(eight):
    done = eight.audit(
        "--limit", "gpu002", "--deadline", "20", "--", *eight.python(gpu002="exec sleep 1000")
    )
    assert done.node("gpu002")["message"] == "no answer by the deadline of the run, 20 s"
    assert eight.statuses(done) == {"gpu002": "timeout"}


def test_what_slurm_does_not_permit_is_named_in_its_words_and_asks_nobody(eight):
    # it also lets munged answer him
    assert eight.audit_as_nobody("--limit", "gpu001").code in (0, 1)
    closed = eight.audit("--slurm-partition", "closed")
    assert eight.statuses(closed) == dict.fromkeys(NAMES, "unreachable")
    assert "Unable to allocate resources: " in closed.node("gpu001")["message"]
    job = eight.job(2, f"--uid={NOBODY}", "--gres=gpu:2", "--exclusive")
    other = eight.audit("--slurm-job", job)
    assert eight.statuses(other) == dict.fromkeys(NAMES[:2], "unreachable")
    assert "srun could not start there: " in other.node("gpu001")["message"]
    gone = eight.audit("--slurm-job", "4711")
    assert gone.code == 2
    assert "unhang: squeue failed: slurm_load_jobs error: Invalid job id specified;" in gone.stderr


def test_a_node_whose_slurmd_hangs_costs_its_own_result_alone(eight):
    # srun gives the step up when it cannot start there, and gpu005 needs longer than that
    with eight.stopped("gpu004"):
        done = eight.audit("--", *eight.python(gpu005="sleep 30"))
    assert eight.statuses(done) == {
        **dict.fromkeys(NAMES, "ok"),
        "gpu004": "unreachable",
    }, done.stderr


def test_a_slurm_that_does_not_answer_is_said_within_its_deadline(eight):
    pid = (eight.slurm.folder / "slurmctld.pid").read_text().strip()
    eight.slurm.run("kill", "-STOP", pid)
    try:
        done = eight.audit("--slurm-job", "1")
    finally:
        eight.slurm.run("kill", "-CONT", pid)
    assert done.code == 2
    assert done.stderr.startswith("unhang: squeue ")
    assert not (eight.work / "runs").exists()
