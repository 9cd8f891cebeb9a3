"""`unhang watch --slow`: when a job is looked at for a slow rank, and that only what two looks in a
row agree on is reported, by the numbers of real scenes on two H200."""

from __future__ import annotations

import argparse
import fcntl
import json
import socket
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path

import pytest
from paced_jobs import checkpoint, document, of_ranks, pace_of

from unhang.core.errors import UserError
from unhang.jobs.commands import watch, watch_one
from unhang.jobs.commands.watch_all import Site
from unhang.jobs.commands.watch_outputs import WatchOptions
from unhang.jobs.watch.live import raw_lines
from unhang.jobs.watch.record import Record
from unhang_node.job.look import check_options
from unhang_node.job.look_options import add_look_options, chosen_look_options

HANG = Path(__file__).parents[1] / "fixtures/inspect/evidence/never-RAS-and-stacks.json"
EVEN, LOADER = document((0, 2)), document((0, 43), busy=(99, 11), cores=0.13)
OTHER = of_ranks(2, power={1: 440}, clock={1: 1980})  # rank 0 works while rank 1 waits
AGAIN = document((0, 30), busy=(99, 11), cores=0.13)
checkpoint(SAVES := document((0, 0), power=(690, 400), clock=(1500, 1980), memory=(20, 9)), 35)
NO_RAS = document((0, 0))
pace_of(NO_RAS).update(answered=0, communicators=[], why="nothing listens at port 28028")
SLOW = "slow: rank 1 (n1, GPU 1) is behind in 43 of 50 looks; its GPU is busy 11 %"


def samples(seconds: int, *, stands_from: float = 1e9, step_s: int = 2, ranks: int = 2):
    """A job that launches a collective each step, until it stands."""
    for t in range(0, seconds, 2):
        steps = int(min(t, stands_from)) // step_s
        counts = {str(rank): 30 * steps for rank in range(ranks)}
        yield {"t": float(t), "ras": {"counts": counts, "missing": []}}
        for rank in range(ranks):
            row = {"rank": rank, "pid": 100 + rank, "state": "S", "children_cpu_s": 0.0}
            yield {"t": float(t), **row, "cpu_s": float(steps), "switches": steps}


class Watched:
    """A job that was watched to its end with these answers, the last one again and again. looks: at
    which second it was looked at for a slow rank; lines: what was printed."""

    def __init__(self, *answers, trace, options=("--slow",)):
        self.answers, self.looks, self.hang_looks, self.lines = list(answers), [], [], []
        self.ended, self.reported, self.gauges = [], [], []
        self.record = Record("job", "n")
        parser = argparse.ArgumentParser()
        watch.add_arguments(parser)
        arguments = parser.parse_args(["--pid", "1", *options])
        self.outputs = watch.outputs_of(arguments, self.lines.append)
        self.outputs.job = "j"
        job = watch_one.Job(
            trace,
            self.look,
            lambda: self.ended.append(1),
            is_ours=True,
            reported=self.reported.append,
            wait=lambda _seconds: None,
        )
        self.hang = json.loads(HANG.read_bytes())
        self.code = watch_one.watched(job, self.outputs, self.record)
        self.text = "\n".join(self.lines)

    def look(self, options):
        at = self.outputs.last[0].t
        if not options:
            self.hang_looks.append(at)
            return [self.hang]
        assert check_options(dict(options))["slow"]
        self.gauges.append(self.outputs.slow_ranks)
        self.looks.append(at)
        answer = self.answers[min(len(self.looks), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    def said(self) -> list[str]:
        """The verdicts of --slow, in order."""
        return [
            line.split("\n")[0].removeprefix("j: ")
            for line in self.lines
            if line.startswith(("slow: ", "even: "))
        ]


def test_a_slow_rank_is_reported_once_when_a_second_look_a_minute_later_names_it_too():
    found = Watched(LOADER, trace=samples(7200))
    assert found.looks[:4] == [600, 660, 1260, 1860]
    assert len(found.said()) == 1 and found.said()[0].startswith(SLOW[:60])
    assert "its GPU is busy 11 %" in " ".join(found.text.split())
    assert found.gauges[:3] == [None, 0, 1] and found.outputs.slow_ranks == 1


@pytest.mark.parametrize(
    "answers",
    [
        [EVEN],
        [SAVES],
        [LOADER, EVEN],
        [LOADER, SAVES, LOADER, SAVES, EVEN],
        [EVEN, LOADER, OTHER, LOADER, EVEN],
        [LOADER, UserError("srun brought no answer"), LOADER, EVEN],
    ],
    ids=[
        "even",
        "a checkpoint",
        "one look",
        "a checkpoint between",
        "each another",
        "a failure between",
    ],
)
def test_what_two_looks_in_a_row_do_not_name_is_not_reported(answers):
    found = Watched(*answers, trace=samples(14400))
    assert len(found.looks) >= 6 and found.said() == []
    assert (found.outputs.slow_ranks, found.hang_looks) == (0, [])


def test_looks_that_never_agree_are_no_more_than_two_in_ten_minutes():
    found = Watched(*[LOADER, OTHER] * 50, trace=samples(7200))
    assert found.said() == [] and len(found.looks) <= 2 * 7200 / 660 + 1


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([LOADER, LOADER, EVEN, EVEN, EVEN], ["slow: rank 1", "even: nobody is slow"]),
        ([LOADER, LOADER, EVEN, LOADER, LOADER], ["slow: rank 1"]),
        ([LOADER, LOADER, SAVES, LOADER, AGAIN], ["slow: rank 1"]),
        ([LOADER, LOADER, OTHER, OTHER], ["slow: rank 1", "slow: rank 0"]),
        ([EVEN, EVEN, EVEN, LOADER, AGAIN], ["slow: rank 1"]),
    ],
)
def test_a_report_comes_again_only_when_two_looks_name_others_or_nobody(answers, said):
    found = Watched(*answers, trace=samples(7200))
    assert [line[: len(want)] for line, want in zip(found.said(), said, strict=True)] == said
    assert not any("\n" in line for line in found.lines if line.startswith("even"))


def test_a_slow_rank_is_no_hang(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(f"{tmp_path}/log")
        log.settimeout(30)
        hook = ["--hook", f"touch {tmp_path}/called", "--out", str(tmp_path)]
        ending = ["--on-hang", "terminate", "--act", "--syslog", f"{tmp_path}/log"]
        found = Watched(LOADER, trace=samples(3600), options=["--slow", *hook, *ending])
        assert log.recv(4096).rstrip(b"\0").decode().startswith(f"<28>unhang-watch: j: {SLOW}")
        log.setblocking(False)
        with pytest.raises(BlockingIOError):
            log.recv(4096)
    assert len(found.said()) == 1
    assert (found.code, found.ended, found.reported, found.record.verdicts) == (None, [], [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert (found.outputs.hangs, found.outputs.looks, found.outputs.hung) == (0, 0, False)


@pytest.mark.parametrize("answer", [LOADER, EVEN, NO_RAS])
def test_a_job_that_hangs_after_a_look_is_answered_as_a_hang(answer):
    found = Watched(answer, trace=samples(1000, stands_from=610))
    assert found.looks == [600] and found.hang_looks[0] == 670
    assert "no collective" in found.text and "j: hung: rank" in found.record.verdicts[0].headline


def test_a_job_that_stands_or_has_one_rank_is_not_looked_at():
    assert Watched(LOADER, trace=samples(9000, stands_from=300)).looks == []
    assert Watched(LOADER, trace=samples(9000, ranks=1)).looks == []
    assert Watched(LOADER, trace=samples(9000), options=[]).looks == []


def test_only_progress_counts_and_the_time_between_two_steps_does():
    assert Watched(EVEN, trace=samples(1250, step_s=40)).looks == [600, 1200]
    assert Watched(EVEN, trace=samples(9000, step_s=90)).looks == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NO_RAS, "RAS answered 0 of 50 looks (nothing listens at port 28028)"),
        (UserError("srun brought no answer\x1b[2J"), "srun brought no answer"),
        ({**NO_RAS, "ranks": [], "sections": {}}, "no rank was found"),
    ],
    ids=["no RAS", "no look", "no rank"],
)
def test_a_look_without_an_answer_is_said_once_and_comes_half_as_often_each_time(answer, why):
    found = Watched(answer, trace=samples(9000))
    assert found.looks == [600, 1800, 3600, 5400, 7200]
    (line,) = [line for line in found.lines if "the look for a slow rank failed: " in line]
    assert why in line and "\x1b" not in line
    assert found.said() == [] and found.outputs.slow_ranks is None
    again = Watched(answer, EVEN, LOADER, trace=samples(4000))
    assert again.looks == [600, 1800, 2400, 2460, 3060, 3660] and len(again.said()) == 1


def test_a_slow_gpu_is_named_by_the_driver_where_ras_does_not_answer():
    hot = document((0, 0), power=(450, 300), clock=(1980, 900))
    pace_of(hot).update(answered=0, communicators=[])
    pace_of(hot)["gpus"][1]["throttle"] = {"hw_thermal": 49}
    (line,) = Watched(hot, trace=samples(3600)).said()
    assert "slowed down (hw_thermal)" in line


def test_each_job_of_a_node_is_looked_at_by_its_own_process_and_has_its_own_series(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("UNHANG_WATCHED", str(tmp_path / "watched.jsonl"))
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    textfile = tmp_path / "x.prom"
    said, asked = [], []
    site = Site(
        watch.outputs_of(
            WatchOptions.of(parser.parse_args(["--all", "--slow", "--textfile", str(textfile)])),
            said.append,
        )
    )

    def look(words, _limit_s):
        asked.append(words)
        return LOADER if words[1] == "100" else EVEN

    monkeypatch.setattr(site.looking.here, "evidence", look)

    def came(name, pid):
        header = {"schema": "unhang/trace/1", "host": "n", "every_s": 2.0, "at": 0.0}
        rows = [{"pid": pid}, {"pid": pid + 1}]
        more = {"slurm_job": None, "pods": [], "user": "0", "is_off": False}
        return {"job": name, "header": {**header, "ranks": rows}, **more}

    line = {"t": 0.0, "host": "n", "ended": [], "failed": {}, "jobs": {}, "problem": None}
    line.update(gpus=[], nics=[], left_out=[])
    site.takes({**line, "came": [came("a", 100), came("b", 200)]})
    rows = list(samples(700))
    for t in range(0, 700, 2):
        of_moment = [row for row in rows if row["t"] == t]
        others = [{**row, "pid": row.get("pid", 0) + 100} for row in of_moment]
        site.takes({**line, "t": float(t), "came": [], "jobs": {"a": of_moment, "b": others}})
    site.takes({**line, "t": 700.0, "came": []})
    until = time.monotonic() + 60
    a, b = (site.watches[name].outputs for name in "ab")
    while (a.slow_ranks, b.slow_ranks) != (1, 0):
        assert time.monotonic() < until, said
        time.sleep(0.02)
    site.written = 0.0
    site.takes({**line, "t": 702.0, "came": []})
    shown = textfile.read_text()
    site.close()
    assert 'unhang_watch_slow_ranks{watched_job="pid 100"} 1.0' in shown
    assert 'unhang_watch_slow_ranks{watched_job="pid 200"} 0.0' in shown
    assert sum(one.startswith("pid 100: slow: rank 1 ") for one in said) == 1
    assert not any(one.startswith("pid 200: ") and "rank 1 " in one for one in said)
    parser = argparse.ArgumentParser()
    add_look_options(parser)
    options = check_options(chosen_look_options(parser.parse_args(asked[0])))
    assert options["slow"] and options["pids"] in ([100], [200])
    assert {"stacks", "log_tail"} <= {*options["without"]}
    assert not {"ras", "nvml", "proc"} & {*options["without"]}


def test_a_sampler_whose_lines_nobody_reads_during_a_look_goes_on_where_it_was():
    """More than a pipe holds, for longer than a sampler may be silent."""
    code = "for n in range(3000): print(n, 'x' * 100, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        lines = raw_lines(child, 5.0)
        first = int(next(lines).split()[0])
        held, until = array("i", [0]), time.monotonic() + 60
        while held[0] < 60_000:
            assert child.poll() is None and time.monotonic() < until
            time.sleep(0.05)
            fcntl.ioctl(child.stdout, termios.FIONREAD, held)
        time.sleep(6)
        rest = [int(line.split()[0]) for line in lines]
    assert [first, *rest] == list(range(3000)) and child.returncode == 0
