"""All jobs of a machine in one pass: jobs that come and go, processes that are no ranks, text of
users that lies, and files that do not answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from other_users import program

from unhang_node.base.root import Root
from unhang_node.job import all_samples, finding, samples
from unhang_node.job.all_samples import Node, moment_of
from unhang_node.job.finding import slurm_steps
from unhang_node.job.process_table import read_stats

PLACE = f"test-{os.getpid()}"


@contextlib.contextmanager
def job(port, ranks=2, **settings):
    """Processes that say that they are ranks of a job."""
    base = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": PLACE, "MASTER_PORT": str(port)}
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = [
        subprocess.Popen(argv, env={**base, "RANK": str(rank), **settings}) for rank in range(ranks)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def moment(node, t):
    """The line, with the jobs of this test alone: others may run on this machine."""
    line = moment_of(node, None, t, 1.0)
    ours = [one for one in line["came"] if f"MASTER_ADDR={PLACE}" in one["job"]]
    port = {name: name.rpartition("MASTER_PORT=")[2] for name in line["jobs"] if PLACE in name}
    return {
        "came": {one["job"].rpartition("MASTER_PORT=")[2]: one for one in ours},
        "ended": [name.rpartition("MASTER_PORT=")[2] for name in line["ended"] if PLACE in name],
        "jobs": {port[name]: line["jobs"][name] for name in port},
        "failed": line["failed"],
    }


def test_jobs_are_found_as_they_come_and_forgotten_when_they_end():
    node = Node(Root(), [])
    with job(1) as first:
        assert set(moment(node, 0.0)["came"]) == {"1"}
        with job(2):
            assert set(moment(node, 2.0)["jobs"]) == {"1"}  # no search yet
            line = moment(node, 12.0)
            assert (set(line["came"]), set(line["jobs"])) == ({"2"}, {"1", "2"})
            assert [row["rank"] for row in line["jobs"]["2"] if "rank" in row] == [0, 1]
            first[1].kill()
            first[1].wait()
            line = moment(node, 14.0)
            states = [row["state"] for row in line["jobs"]["1"] if "rank" in row]
            assert states[1] == "gone" and states[0] != "gone"
        line = moment(node, 24.0)
        assert (line["ended"], set(line["jobs"])) == (["2"], {"1"})
    assert moment(node, 36.0)["ended"] == ["1"]
    assert moment(node, 38.0)["jobs"] == {}


def test_a_job_of_zombies_has_ended():
    """In a container without an init nobody waits for its ranks; the watcher would look at it for
    days."""
    node = Node(Root(), [])
    with job(3) as ranks:
        assert set(moment(node, 0.0)["jobs"]) == {"3"}
        ranks[0].kill()
        while read_stats(Root())[ranks[0].pid].state != "Z":
            time.sleep(0.05)
        states = [row["state"] for row in moment(node, 2.0)["jobs"]["3"] if "rank" in row]
        assert states[0] == "Z" and states[1] != "Z"
        ranks[1].kill()
        while read_stats(Root())[ranks[1].pid].state != "Z":
            time.sleep(0.05)
        line = moment(node, 14.0)
        assert (line["ended"], set(line["jobs"])) == (["3"], set())


def test_a_process_that_executes_its_program_later_is_found_and_one_without_a_rank_never():
    node = Node(Root(), [])
    late = f"export RANK=0 WORLD_SIZE=1 MASTER_ADDR={PLACE} MASTER_PORT=7; read _; exec sleep 600"
    with subprocess.Popen(["sh", "-c", late], stdin=subprocess.PIPE) as shell:
        try:
            assert moment(node, 0.0)["came"] == {}
            shell.stdin.write(b"\n")
            shell.stdin.flush()
            while Path(f"/proc/{shell.pid}/comm").read_text() != "sleep\n":
                time.sleep(0.05)
            assert set(moment(node, 12.0)["came"]) == {"7"}
        finally:
            shell.kill()


def test_a_steady_node_is_not_searched_again(monkeypatch):
    with job(1) as started:
        ours = {str(rank.pid) for rank in started}

        class Steady(Root):
            """This machine without what others start on it meanwhile."""

            def names(self, path):
                return [one for one in super().names(path) if path != "/proc" or one in ours]

        node, searches = Node(Steady(), []), []
        search = all_samples.processes_of
        monkeypatch.setattr(
            all_samples, "processes_of", lambda *given: searches.append(1) or search(*given)
        )
        for t in range(0, 60, 2):
            moment(node, float(t))
        until_settled = len(searches)
        for t in range(60, 118, 2):
            moment(node, float(t))
    assert 1 <= until_settled <= 6 and len(searches) == until_settled


def test_what_a_user_s_environment_says_of_slurm_is_no_job_of_slurm():
    """Root cancels the job of this number."""
    with job(1, SLURM_JOB_ID="4711"):
        came = moment(Node(Root(), []), 0.0)["came"]
    assert [one["slurm_job"] for one in came.values()] == [None]


def test_a_user_s_slurmstepd_is_none_and_root_s_names_its_job(tmp_path):
    def process(pid, uid, line):
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} (slurmstepd) S 1 " + "0 " * 47)
        (folder / "status").write_text(f"Name:\tslurmstepd\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cmdline").write_text(line)

    process(10, 0, "slurmstepd: [77.batch]")
    process(11, 1000, "slurmstepd: [78.batch]")
    process(12, 0, "slurmstepd infinity")
    root = Root([str(tmp_path)])
    assert slurm_steps(root, read_stats(root)) == {10: "77", 12: None}


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmstepd is root's")
def test_a_job_of_slurm_is_known_though_its_slurmstepd_was_seen_before_it_was_one(tmp_path):
    """slurmd forks before it executes slurmstepd; between two steps the job goes on."""
    (tmp_path / "slurmstepd").write_bytes(Path("/bin/bash").read_bytes())
    (tmp_path / "slurmstepd").chmod(0o755)
    rank = f"RANK=0 WORLD_SIZE=1 MASTER_ADDR={PLACE} MASTER_PORT=9 sleep 600"
    step = f"exec -a 'slurmstepd: [77.batch]' {tmp_path}/slurmstepd -c '{rank}; read _; :'"
    node = Node(Root(), [])
    with subprocess.Popen(
        ["/bin/bash", "-c", f"read _; {step}"], stdin=subprocess.PIPE, start_new_session=True
    ) as daemon:
        try:
            assert moment(node, 0.0)["came"] == {}
            daemon.stdin.write(b"\n")
            daemon.stdin.flush()
            children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
            while not (below := children.read_text().split()):
                time.sleep(0.05)
            while Path(f"/proc/{below[0]}/comm").read_text() != "sleep\n":
                time.sleep(0.05)
            assert moment(node, 12.0)["came"]["9"]["slurm_job"] == "77"
            os.kill(int(below[0]), signal.SIGKILL)
            while children.read_text().split():
                time.sleep(0.05)
            assert moment(node, 24.0)["ended"] == []
        finally:
            os.killpg(daemon.pid, signal.SIGKILL)
    assert moment(node, 36.0)["ended"] == ["9"]


def test_a_job_that_its_user_leaves_out_has_no_samples():
    with job(1, UNHANG_WATCH="off"), job(2, UNHANG_WATCH="offered"):
        line = moment(Node(Root(), []), 0.0)
    assert {name: one["is_off"] for name, one in line["came"].items()} == {"1": True, "2": False}
    assert set(line["jobs"]) == {"2"}


def test_a_rank_that_says_off_and_claims_to_be_of_another_job_silences_nothing():
    with job(1, ranks=1), job(1, ranks=1, UNHANG_WATCH="off", RANK="1"):
        line = moment(Node(Root(), []), 0.0)
    assert [one["is_off"] for one in line["came"].values()] == [False]
    assert set(line["jobs"]) == {"1"}


def test_a_job_whose_files_cannot_be_read_costs_no_other_its_samples(monkeypatch):
    read = all_samples.process_samples

    def refuses(root, ranks, *rest):
        if "MASTER_PORT=1" in ranks[0]["job"]:
            raise ValueError("\x1b[2J no number")
        return read(root, ranks, *rest)

    monkeypatch.setattr(all_samples, "process_samples", refuses)
    with job(1), job(2):
        line = moment(Node(Root(), []), 0.0)
    assert set(line["jobs"]) == {"2"}
    assert [why for name, why in line["failed"].items() if PLACE in name]


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1_0", ""])
def test_a_rank_that_is_no_number_hides_no_job(number):
    with job(1), job(2, RANK=number, LOCAL_RANK=number):
        line = moment(Node(Root(), []), 0.0)
    assert set(line["jobs"]) == {"1"}


def test_a_search_that_fails_is_named_and_the_jobs_that_are_known_are_watched(monkeypatch):
    def fails(*_given):
        raise ValueError("\x1b no such thing")

    with job(1):
        node = Node(Root(), [])
        moment(node, 0.0)
        monkeypatch.setattr(all_samples, "candidates_of", fails)
        line = moment_of(node, None, 12.0, 1.0)
    assert "no such thing" in line["problem"]
    assert any(PLACE in name for name in line["jobs"])


def test_a_process_that_is_skipped_is_no_rank():
    with job(1) as processes:
        line = moment(Node(Root(), [processes[0].pid]), 0.0)
        rows = line["came"]["1"]["header"]["ranks"]
    assert [row["rank"] for row in rows] == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="unshare --net takes root")
def test_jobs_at_the_same_address_of_two_networks_are_two():
    """As pods that meet at localhost:29500."""
    settings = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PLACE}
    argv = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
    with contextlib.ExitStack() as undo:
        for before in ([], ["unshare", "--net"], ["unshare", "--net"]):
            process = undo.enter_context(
                subprocess.Popen(
                    [*before, *argv], env={**os.environ, **settings}, stdout=subprocess.PIPE
                )
            )
            undo.callback(process.kill)
            assert process.stdout.readline()
        line = moment_of(Node(Root(), []), None, 0.0, 1.0)
        names = [one["job"] for one in line["came"] if PLACE in one["job"]]
    assert len(names) == 3 and sum(" net:[" in name for name in names) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes of another user")
def test_ranks_that_are_not_watched_are_said_by_their_user_and_number(monkeypatch):
    monkeypatch.setattr(finding, "MOST_RANKS", 60)
    sleeps = "import os, sys, time; os.write(int(sys.argv[-1]), b'1'); time.sleep(600)"
    with contextlib.ExitStack() as stack:
        for rank in range(62):
            given = {"RANK": str(rank), "WORLD_SIZE": "62", "MASTER_ADDR": PLACE}
            stack.enter_context(program(4713, sleeps, **given))
        line = moment_of(Node(Root(), []), None, 0.0, 1.0)
        alone = samples.processes_of(Root(), {})
    (job,) = [one for one in line["came"] if PLACE in one["job"]]
    watched = len(job["header"]["ranks"])
    expected = f"of user 4713: {62 - watched} of 62 ranks (1 jobs) left out; at most 60"
    for left_out in (line["left_out"], alone[1]):
        assert [why for why in left_out if why.startswith(expected)], left_out
    assert watched < 62
