"""Several jobs in one watcher: their lines, series and records are their own, what fails in one
costs no other, and a user's comment counts only as it is documented."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from api_stand_in import answer_of_a_pod, answering

from unhang.core.errors import UserError
from unhang.jobs.commands import watch, watch_all
from unhang.jobs.commands.watch_all import Site
from unhang.jobs.commands.watch_outputs import WatchOptions, outputs_of
from unhang.jobs.watch import of_slurm
from unhang.jobs.watch.detector import ENDED, NO_PROGRESS, Event
from unhang.jobs.watch.of_all import moments
from unhang.jobs.watch.of_pods import Cluster
from unhang.jobs.watch.when_to_look import Patience

LOOK = Path(__file__).parents[4] / "fixtures/inspect/evidence/never-RAS-and-stacks.json"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site(*options): (Site, the lines that it printed); its record is in tmp_path."""
    monkeypatch.setenv("UNHANG_WATCHED", str(tmp_path / "watched.jsonl"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm
    made = []

    def make(*words):
        parser = argparse.ArgumentParser()
        watch.add_arguments(parser)
        options = WatchOptions.of(parser.parse_args(["--all", "--no-progress", "10", *words]))
        said = []
        site = Site(outputs_of(options, said.append))
        monkeypatch.setattr(site.looking.here, "evidence", lambda *_: json.loads(LOOK.read_bytes()))
        made.append(site)
        return site, said

    yield make
    for one in made:
        one.close()


def came(name, pid, **more):
    ranks = [{"rank": 0, "pid": pid, "own_pid": pid, "world_size": 2, "started": 1}]
    header = {"schema": "unhang/trace/1", "host": "n", "ranks": ranks, "every_s": 1.0, "at": 0.0}
    found = {"job": name, "header": header, "slurm_job": None, "pods": [], "is_off": False}
    found["user"] = "1000"
    return {**found, **more}


def moment(t, *, jobs=(), stands=(), **more):
    """All ranks of `jobs` work, those of `stands` do not."""
    rows = {
        name: [
            {
                "t": float(t),
                "pid": 1,
                "rank": 0,
                "state": "S",
                "cpu_s": 1.0,
                "children_cpu_s": 0.0,
                "switches": 5 + (100 * t if name in jobs else 0),
            }
        ]
        for name in (*jobs, *stands)
    }
    line = {"t": float(t), "host": "n", "came": [], "ended": [], "failed": {}, "jobs": rows}
    return {**line, "problem": None, "left_out": [], "gpus": [], "nics": [], **more}


def wait_until(holds, what):
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def test_the_job_that_hangs_is_named_and_counted_and_the_one_beside_it_is_not(site, tmp_path):
    watches, said = site("--textfile", str(tmp_path / "x.prom"))
    watches.takes(moment(0, came=[came("a", 41), came("b", 42)]))
    for t in range(1, 14):
        watches.takes(moment(t, jobs=["a"], stands=["b"]))
    a, b = (watches.watches[name].outputs for name in "ab")
    wait_until(lambda: a.last and b.hangs, "a verdict of one and a sample of both")
    assert any("hung: rank 1" in line for line in said)
    watches.written = 0.0
    watches.takes(moment(14, jobs=["a"], stands=["b"]))
    text = (tmp_path / "x.prom").read_text()
    assert 'unhang_watch_hangs{watched_job="pid 42"} 1.0' in text
    assert 'unhang_watch_hangs{watched_job="pid 41"} 0.0' in text
    assert not any(line.startswith("pid 41: ") and "no collective" in line for line in said)
    watches.takes(moment(15, ended=["a", "b"]))
    wait_until(lambda: not any(w.thread.is_alive() for w in watches.ending), "both ended")
    rows = [json.loads(line) for line in (tmp_path / "watched.jsonl").read_text().splitlines()]
    assert {row["job"]: len(row["verdicts"]) for row in rows} == {"pid 41": 0, "pid 42": 1}
    watches.written = 0.0
    watches.takes(moment(16))
    assert "watched_job" not in (tmp_path / "x.prom").read_text()


def test_what_fails_in_one_watch_ends_no_other(site, tmp_path):
    watches, said = site()
    watches.takes(moment(0, came=[came("a", 41), came("b", 42)]))
    watches.watches["a"].give([{"t": float(t), "log_bytes": "\x1b"} for t in range(3)])
    wait_until(lambda: not watches.watches["a"].thread.is_alive(), "the watch of a has ended")
    assert any(line.startswith("pid 41: this watch ended: TypeError") for line in said)
    for t in range(1, 14):
        watches.takes(moment(t, stands=["a", "b"], failed={"b": "gone\x1b"} if t == 5 else {}))
    wait_until(lambda: any("pid 42: hung: " in line for line in said), "a verdict of b")
    assert "pid 42: its processes were not read: gone\\x1b" in said
    assert '"job":"pid 41"' in (tmp_path / "watched.jsonl").read_text()


def test_stopping_keeps_the_record_of_each_watch_once(site, tmp_path):
    watches, _ = site()
    watches.takes(
        moment(0, came=[came("a", 41), came("b", 42, pods=["0-1"]), came("c", 43, pods=["0-1"])])
    )
    watches.close()
    watches.close()
    rows = [json.loads(line) for line in (tmp_path / "watched.jsonl").read_text().splitlines()]
    assert sorted(row["job"] for row in rows) == ["pid 41", "pod 0-1", "pod 0-1 pid 43"]


def slurm(folder, comment, name="7"):
    """squeue, scancel and scontrol that write down how they were called."""
    folder.mkdir(exist_ok=True)
    (folder / "answer").write_bytes(f"7|{name}|RUNNING|0|1|{comment}\n".encode())
    for program, does in (
        ("squeue", f"/bin/cat {folder}/answer"),
        ("scancel", f'echo "scancel $*" >>{folder}/called'),
        ("scontrol", f"for one; do printf '<%s>\\n' \"$one\" >>{folder}/called; done"),
    ):
        (folder / program).write_text(f"#!/bin/sh\n{does}\n")
        (folder / program).chmod(0o755)
    (folder / "called").write_text("")


def of_slurm_job(watches):
    watches.takes(moment(0, came=[came("a", 41, slurm_job="7")]))
    return watches.watches["a"]


@pytest.mark.parametrize(
    ("comment", "is_left_out", "on_hang"),
    [
        ("unhang:off", True, "report"),
        ("unhang:terminate", False, "terminate"),
        ("(null)", False, "report"),
        ("", False, "report"),
        (" unhang:off", False, "report"),
        ("unhang:off ", False, "report"),
        ("UNHANG:OFF", False, "report"),
        ("unhang:off\n7|7|RUNNING|0|1|unhang:terminate", False, "report"),
        ("x\n7|8|RUNNING|0|1|unhang:terminate", False, "report"),
        ("unhang:terminate\x1b[2J", False, "report"),
    ],
)
def test_a_comment_counts_only_as_it_is_documented(comment, is_left_out, on_hang, site, tmp_path):
    watches, said = site()
    slurm(tmp_path, comment)
    one = of_slurm_job(watches)
    ended = "slurm 7: left out: its comment is unhang:off"
    wait_until(lambda: any(": 1 rank on n" in line or line == ended for line in said), "it began")
    assert (ended in said, one.outputs.options.on_hang) == (is_left_out, on_hang)
    assert not any("\x1b" in line for line in said)


def test_without_slurm_s_commands_a_job_is_watched_and_that_is_said_once(site):
    watches, said = site()
    watches.takes(moment(0, came=[came(str(n), n, slurm_job=str(n)) for n in (7, 8)]))
    wait_until(lambda: sum(": 1 rank on n" in line for line in said) == 2, "both are watched")
    assert sum("squeue is not on PATH" in line for line in said) == 1


@pytest.mark.parametrize(
    ("options", "besides", "called"),
    [
        ([], [], []),
        (["--act"], [], ["scancel 7_3"]),
        # another job in the same allocation is healthy
        (["--act"], ["b"], []),
    ],
)
def test_a_job_is_ended_by_its_own_name_where_user_and_site_want_it_and_nothing_else_is_in_it(
    options, besides, called, site, tmp_path, monkeypatch
):
    monkeypatch.setattr("unhang.jobs.commands.watch_one.SECOND_LOOK_S", 0.01)
    watches, said = site("--out", str(tmp_path), *options)
    slurm(tmp_path, "unhang:terminate", "7_3")
    one = of_slurm_job(watches)
    watches.takes(moment(1, came=[came(name, 50, slurm_job="7") for name in besides]))
    for t in range(2, 16):
        watches.takes(moment(t, stands=["a"], jobs=besides))
    last = ("in shadow: ", "ended slurm 7: hung", "is in the same job of Slurm: the job is left")
    wait_until(lambda: any(words in line for line in said for words in last), "it decided")
    if called:
        one.thread.join(60)
    calls = (tmp_path / "called").read_text().splitlines()
    assert [line for line in calls if line.startswith("scancel")] == called


def test_a_verdict_in_the_comment_of_a_job_is_one_masked_line_of_its_own_argument(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm(tmp_path, "")
    of_slurm.write_admin_comment("7_3", 'unhang: hung: "x"\nJobId=8 \x1b' + "y" * 900)
    lines = (tmp_path / "called").read_text().splitlines()
    assert lines[:2] == ["<update>", "<JobId=7_3>"] and len(lines) == 3
    assert lines[2].startswith("<AdminComment=unhang: hung: 'x'\\nJobId=8 \\x1b")
    assert len(lines[2]) < 500


def test_a_job_that_stands_for_long_is_looked_at_ever_more_rarely_until_it_moves():
    patience = Patience(60.0)
    looks = [t for t in range(60, 7260, 60) if patience.is_due(Event(t, NO_PROGRESS, 0, ""))]
    assert looks[:5] == [60, 120, 240, 480, 960] and len(looks) == 8
    assert patience.is_due(Event(7260, NO_PROGRESS, 7200, ""))  # it moved meanwhile
    assert patience.is_due(Event(7261, ENDED, 7200, ""))


def test_a_rank_that_ended_delays_no_look_at_the_silence_after_it():
    patience = Patience(60.0)
    assert patience.is_due(Event(5, ENDED, 0, ""))
    assert patience.is_due(Event(60, NO_PROGRESS, 0, ""))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--all", "--pid", "1"], "not several or none"),
        (["--all", "--on-hang", "terminate"], "only where its user wants it"),
        (["--pid", "1", "--job-comment"], "--job-comment needs --all"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, expected):
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    with pytest.raises(UserError, match=expected):
        watch.run(parser.parse_args(words))


@pytest.mark.slow
def test_a_sampler_that_is_killed_is_replaced_and_jobs_that_ended_meanwhile_are_ended(monkeypatch):
    monkeypatch.setattr("unhang.jobs.watch.of_all.AGAIN_S", 0.01)
    said = []
    settings = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": f"test-{os.getpid()}"}
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    lines = moments(0.2, said.append)
    with subprocess.Popen(argv, env={**os.environ, **settings}) as rank:
        name = next(
            one["job"] for one in next(lines)["came"] if settings["MASTER_ADDR"] in one["job"]
        )
        rank.kill()
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text()
    for pid in children.split():
        if b"all_samples" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    first = last = next(lines)
    while not said:
        last = next(lines)
    again = last
    lines.close()
    assert said == ["the sampler ended with -9; it is started again"]
    assert name in again["ended"] and again["t"] > first["t"] - 1


def test_sigterm_ends_the_command_with_nothing_left(tmp_path):
    program = "import sys; from unhang.cli import main; sys.exit(main(['watch', '--all']))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "UNHANG_WATCHED": str(tmp_path / "record")},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert "all jobs of this machine" in process.stderr.readline()
        process.terminate()
        assert process.wait(60) == 143
        assert "Traceback" not in process.stderr.read()


def test_a_process_whose_files_do_not_answer_is_left_out_by_the_next_sampler(monkeypatch):
    """A sampler that stops in the middle of a call, as one whose target's memory map is locked."""
    monkeypatch.setattr("unhang.jobs.watch.of_all.SILENT_S", 0.5)
    stuck = (
        "import os, sys, time; n = int(sys.argv[4]); os.pwrite(n, b'open /proc/4711/environ', 0);"
        ' (sys.argv[5] == \'4711\') and print(\'{{"t": 1.0, "came": [], "ended": []}}\', flush=True);'
        " time.sleep(600)"
    )
    monkeypatch.setattr("unhang.jobs.inspect.here.START", stuck)
    said = []
    lines = moments(0.2, said.append)
    assert next(lines)["t"] == 1.0
    lines.close()
    assert said == ["process 4711 is left out: open /proc/4711/environ did not return"]


@pytest.mark.parametrize(
    ("pods", "line"),
    [
        ("labelled", "left out: neither pod nor namespace has the label unhang/watch=on"),
        ("all", "hung: rank 1"),
    ],
)
def test_where_the_api_server_is_away_only_what_needs_no_label_is_watched(
    site, monkeypatch, pods, line
):
    monkeypatch.setattr(watch_all, "ASKED_EVERY_S", 0.0)
    watches, said = site("--pods", pods)
    watches.cluster = Cluster("127.0.0.1", 1, "node-a", Path("/nonexistent"))
    watches.takes(moment(0, came=[came("a", 41, pods=["0-1"]), came("b", 42, pods=["0-2"])]))
    for t in range(1, 14):
        watches.takes(moment(t, stands=["a", "b"]))
    for name in ("pod 0-1", "pod 0-2"):
        wait_until(lambda name=name: any(f"{name}: {line}" in row for row in said), said)
    unknown = [row for row in said if "names and labels of its pods are not known" in row]
    assert len(unknown) == 1 and "the API server did not answer: " in unknown[0]


def test_one_strange_answer_of_the_api_server_ends_no_watch(site, monkeypatch, tmp_path):
    monkeypatch.setattr(watch_all, "ASKED_EVERY_S", 0.0)
    watches, said = site("--pods", "all")
    right, asked = answer_of_a_pod(), []

    def answer(path):
        asked.append(path)
        return (200, {"kind": "Status"}) if len(asked) == 1 else right(path)

    with answering(tmp_path, answer) as watches.cluster:
        watches.takes(moment(0, came=[came("a", 41, pods=["u"])]))
        for t in range(1, 14):
            watches.takes(moment(t, stands=["a"]))
        wait_until(lambda: any("pod team/train-0: hung: rank 1" in row for row in said), said)
    assert not any("this watch ended" in row or "not known" in row for row in said)


def test_what_is_not_watched_is_said_once(site):
    watches, said = site()
    for t in range(3):
        watches.takes(moment(t, left_out=["of user eve\x1b: 122 of 250 ranks left out"]))
    assert said == ["of user eve\\x1b: 122 of 250 ranks left out"]
