"""What may happen to a job while it is looked at: processes that go or whose number another gets, a
driver that hangs, logs that rotate, clocks that jump."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from unhang.jobs.watch.detector import NO_PROGRESS, detect
from unhang.jobs.watch.live import end_job
from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.job import samples
from unhang_node.job.files import read_logs
from unhang_node.job.look import OPTIONS
from unhang_node.job.looks import log_of, look_at, read_proc_looks
from unhang_node.job.process_table import (
    ancestors,
    descendants,
    read_stats,
    read_stats_again,
    stat_of,
    tops,
)


@contextlib.contextmanager
def rank(code: str = "import time; time.sleep(600)", stdout=subprocess.DEVNULL, **settings: str):
    """A process that says that it is the only rank of a job."""
    environment = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": f"test-{os.getpid()}",
        **settings,
    }
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=stdout, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def row_of(process) -> dict:
    return {
        "pid": process.pid,
        "rank": 0,
        "started": stat_of(Root(), process.pid).started,
        "settings": {},
        "own_pid": process.pid,
    }


def test_a_process_that_goes_and_one_whose_number_another_has_are_told_apart():
    with rank() as process:
        row = row_of(process)
        assert look_at(Root(), row["pid"], row["started"], read_stats(Root()))["state"] in (
            "R",
            "S",
            "D",
        )
        assert (
            look_at(Root(), row["pid"], row["started"] - 1, read_stats(Root()))["state"] == "reused"
        )
        reused = list(
            samples.process_samples(Root(), [{**row, "started": row["started"] - 1}], 1.0)
        )
    assert [line["state"] for line in reused] == ["reused"]
    assert look_at(Root(), row["pid"], row["started"], {})["state"] == "gone"


def test_a_process_that_got_the_number_of_one_that_ended_is_not_killed():
    """The job ends at SIGTERM; what has its number afterwards has another start."""
    with rank() as process, rank() as other:
        end_job(process.pid, 5)
        assert process.wait(60) < 0
        assert other.poll() is None


def test_a_clock_that_is_set_between_the_looks_changes_no_rate(monkeypatch):
    """A time server may set it back by an hour, or forward: the time between the looks is that of
    the monotonic clock."""
    true_time = time.time
    for jump_s in (-3600.0, 3600.0):
        with rank() as process:
            context = Context(
                Root(), {**OPTIONS, "ranks": [row_of(process)], "gap_s": 0.5}, (), None
            )
            pieces = read_proc_looks(context)
            fields = dict(next(pieces)[1])
            monkeypatch.setattr(time, "time", lambda by=jump_s: true_time() + by)
            for piece in pieces:
                fields.update(piece[1])
            monkeypatch.setattr(time, "time", true_time)
        assert 0.4 < fields["at_2_s"] - fields["at_1_s"] < 600


@pytest.mark.parametrize(
    ("rotate", "lines"), [(lambda path: path.rename(f"{path}.1"), [["step 1"]]), (os.unlink, [])]
)
def test_a_log_that_was_rotated_is_read_where_the_rank_still_writes(rotate, lines, tmp_path):
    """logrotate renames or deletes the file; the rank goes on writing into the old one, which
    without a name is measured alone."""
    path = tmp_path / "train.log"
    with (
        path.open("wb") as log,
        rank(
            "import sys, time; print('step 1', flush=True); time.sleep(600)", stdout=log
        ) as process,
    ):
        while not path.read_text():
            time.sleep(0.05)
        rotate(path)
        path.write_text("a new file of another program")
        _, size = log_of(Root(), process.pid)
        context = Context(
            Root(), {**OPTIONS, "ranks": [{**row_of(process), "framework": None}]}, (), None
        )
        pieces = list(read_logs(context))
    assert size == len("step 1\n")
    assert [row["lines"] for piece in pieces for row in piece[1].get("logs", [])] == lines
    assert lines or "a file that was deleted" in pieces[0][2][0]["reason"]


def test_a_job_without_a_rank_makes_progress_while_the_log_of_its_child_grows(
    tmp_path, monkeypatch
):
    """And by the work of a GPU that it has for itself, not of one that a stranger is on too."""
    shell = [
        "sh",
        "-c",
        (
            f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(600)' >"
            f" {tmp_path}/train.log; true"
        ),
    ]
    with subprocess.Popen(
        shell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while not (tmp_path / "train.log").exists() or not (tmp_path / "train.log").read_text():
                time.sleep(0.05)
            job = samples.Watched(Root(), {"pids": [process.pid]})
            assert not job.has_other_ranks(0.0)
            pids = ([process.pid], [process.pid, 1], [])
            gpus = [{"gpu": number, "pids": those} for number, those in enumerate(pids)]
            monkeypatch.setattr(samples, "gpu_samples", lambda *_: gpus)
            *moment, gpu = samples._moment(job, None, 0.0)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert gpu["gpu"] == 0 and not any("gpu" in line for line in moment)
    assert moment[-1].get("log_bytes", 0) >= 2


def quiet(t: float, log_bytes: int) -> list[dict]:
    return [
        {
            "t": t,
            "pid": 1,
            "rank": 0,
            "state": "S",
            "cpu_s": 1.0,
            "switches": 5,
            "children_cpu_s": 0.0,
        },
        {"t": t, "log_bytes": log_bytes},
    ]


def test_a_log_that_was_cut_to_nothing_and_grows_again_is_progress_and_one_that_stays_is_none():
    """copytruncate makes the file shorter."""
    cut_often = [line for at in range(200) for line in quiet(float(at), 1000 * (at % 50))]
    assert list(detect(cut_often, 60)) == []
    cut_once = [line for at in range(200) for line in quiet(float(at), 1000 if at < 5 else 0)]
    assert NO_PROGRESS in [event.what for event in detect(cut_once, 60)]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system of its own, which needs root")
def test_a_full_disk_costs_the_bundle_and_not_the_verdict(tmp_path):
    """A real file system of 8 KiB, in a mount namespace that ends with the command."""
    evidence = os.path.join(
        os.path.dirname(__file__), "../../../fixtures/inspect/evidence/never-RAS-and-stacks.json"
    )
    unhang = os.path.join(os.path.dirname(sys.executable), "unhang")
    script = (
        f"mount -t tmpfs -o size=8k none {tmp_path} && head -c 8000 /dev/zero > {tmp_path}/fill; "
    )
    script += (
        f"{unhang} inspect --evidence {evidence} --out {tmp_path}/hang.tar.gz -o json; echo $? >&2;"
        f" ls {tmp_path} >&2"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert json.loads(done.stdout)["state"] == "hung"
    assert "the bundle could not be written: No space left on device" in done.stderr
    assert done.stderr.split()[-2:] == ["2", "fill"]


@pytest.mark.parametrize(
    ("before", "now", "replaced"),
    [
        ([], [1, 2], True),
        ([1, 2], [1, 2], False),
        ([1, 2], [2], False),
        ([1, 2], [], False),
        ([1], [1, 2], True),
        ([1, 2], [3], True),
        ([1, 2], [3, 4], True),
    ],
)
def test_the_ranks_of_the_next_step_are_watched_and_those_that_are_left_are_not_taken_for_it(
    before, now, replaced
):
    assert (
        samples.replaces([{"pid": pid} for pid in now], [{"pid": pid} for pid in before])
        is replaced
    )


def test_processes_below_a_rank_are_those_of_which_it_is_an_ancestor():
    stats = read_stats(Root())
    tops = list(stats)[:40]
    assert {top: sorted(pids) for top, pids in descendants(stats, tops).items()} == {
        top: sorted(pid for pid in stats if pid != top and top in ancestors(stats, pid))
        for top in tops
    }


def test_a_process_below_a_rank_is_the_rank_s_and_one_beside_it_is_not():
    """As the GPU's sample names them: a tensor-parallel worker that a rank started computes for
    it."""
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time;"
        " time.sleep(600)'], env={}).wait()"
    )
    with rank(code) as process, rank(MASTER_ADDR="the-neighbour"):
        job = samples.Watched(Root(), {"pids": [process.pid]})
        job.has_other_ranks(0.0)
        until = time.monotonic() + 60
        while not (below := job.below.get(process.pid)):
            job.read_again([process.pid])
            assert time.monotonic() < until
        rank_of = tops({process.pid: below})
        os.kill(below[0], signal.SIGKILL)
    assert rank_of == {below[0]: process.pid}


def test_a_table_is_read_again_for_what_is_watched_and_what_is_new_and_drops_what_has_gone():
    with rank("while True: pass") as busy, rank("while True: pass") as other, rank() as gone:
        before = read_stats(Root())
        gone.kill()
        gone.wait()
        with rank() as new:
            until = time.monotonic() + 60
            while (
                stat_of(Root(), busy.pid).cpu_ticks == before[busy.pid].cpu_ticks
                or stat_of(Root(), other.pid).cpu_ticks == before[other.pid].cpu_ticks
            ):
                assert time.monotonic() < until
            after = read_stats_again(Root(), before, {busy.pid})
            assert after[busy.pid].cpu_ticks > before[busy.pid].cpu_ticks
            assert after[other.pid] == before[other.pid]
            assert (new.pid in after, gone.pid in after) == (True, False)


def test_ranks_are_searched_until_they_are_settled_then_now_and_then_and_at_once_when_one_has_gone(
    monkeypatch,
):
    searches = []
    search = samples.processes_of
    monkeypatch.setattr(
        samples, "processes_of", lambda *given: searches.append(1) or search(*given)
    )
    name = f"watched-{os.getpid()}"
    with rank(MASTER_PORT=name) as process:
        job = samples.Watched(Root(), {"pids": [process.pid]})
        changed = []
        for t in (0.0, 2.0, 4.0, 6.0, 11.0, 12.5):
            changed.append(job.has_other_ranks(t))
            job.read_again([process.pid])
        assert (changed, len(searches)) == ([True, False, False, False, False, False], 3)
        with rank(MASTER_PORT=name):
            assert job.has_other_ranks(14.0) is False
            process.kill()
            process.wait()
            job.read_again([process.pid])
            assert job.has_other_ranks(15.0) is False
            assert len(searches) == 4
