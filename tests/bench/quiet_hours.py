"""False alarms of `unhang watch --all` over real jobs that work, and what it says of real hangs: a
section of docs/benchmarks.md. The jobs are those of quiet_jobs.py.

    python tests/bench/quiet_hours.py --out FOLDER [--jobs 30] [--minutes 50] [--hangs 60]
    python tests/bench/quiet_hours.py --out FOLDER --gpus 2 --jobs 16 --minutes 8
    python tests/bench/quiet_hours.py --out FOLDER --labels --jobs 30 --minutes 50

Needs torch, on --gpus NCCL too, and py-spy on PATH. The ranks are forks of one process that has
imported torch, so that dozens of jobs fit into little memory; each has the environment and the
command line of a rank in /proc. With --labels the launcher puts a label before each line, as srun
--label and torchrun --tee do, and every second pair of jobs prints lines shorter than it. Without
--gpus all is, as root, in a process namespace of its own, because the watcher finds whatever else
runs on the machine. Writes FOLDER/score.json, the watcher's record and its own words, and prints
the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

PROJECT = Path(__file__).resolve().parents[2]
# beside these what the caller has of PyYAML
FOLDERS = [str(PROJECT / "module_utils"), str(PROJECT / "tools")]
sys.path[:0] = [*FOLDERS, str(PROJECT / "tests" / "bench")]

from children_cost import UNHANG  # noqa: E402

from unhang_node.base.root import Root  # noqa: E402
from unhang_node.job.looks import TICKS  # noqa: E402
from unhang_node.job.process_table import ancestors, read_stats  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
ROOM, ROOM_BYTES = "QUIET_HOURS_ROOM", 1000
INSIDE = "QUIET_HOURS_INSIDE"
TRAIN = ("python3", "train.py", "--config=large.yaml")
LABELS = ("{}: ", "[rank {}]: ", "[default{}]:")
WAS = ("right", "wrong", "no rank", "silent")
HUNG_FOR_S, SETTLED_S = 300.0, 15.0  # a hang may take so long to be said, and others after it
HOOK = """#!/bin/sh
file=$(mktemp {folder}/verdict-XXXXXX)
{{ printf '{{"at": %s, "said": ' "$(date +%s.%N)"; cat; echo '}}'; }} > "$file.new"
mv "$file.new" "$file"; mv "$file" "$file.json"
"""


@dataclass
class Running:
    """One job. pids: of its ranks, the first of which leads the group of all."""

    what: str
    folder: Path
    pids: list[int]
    began: float
    ended: float = 0.0
    is_hang: bool = False

    def hang(self) -> dict[str, float] | None:
        """{rank, at} as the victim wrote it."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.folder / "begun").read_text())
        return None

    def left(self) -> list[int]:
        """Its ranks that run."""
        return [pid for pid in self.pids if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def look_like(environment: Mapping[str, str], argv: Iterable[str]) -> None:
    """Writes over this process's first stack what /proc shows as its environment and command
    line. Raises ValueError if there is too little room."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    places = [(int(words[at]), int(words[at + 1])) for at in (45, 47)]
    texts = [list(argv), [f"{name}={value}" for name, value in environment.items()]]
    for (begin, end), text in zip(places, texts, strict=True):
        data = b"".join(one.encode() + b"\0" for one in text)
        if len(data) > end - begin:
            raise ValueError(f"expected at most {end - begin} bytes, found {len(data)}")
        ctypes.memmove(begin, data.ljust(end - begin, b"\0"), end - begin)


def be_the_nursery(gpus: int) -> None:
    """Forks a launcher for each line of standard input, which forks the ranks."""
    import quiet_jobs  # and with it torch, before the forks

    own = {name: value for name, value in os.environ.items() if name not in (ROOM, INSIDE)}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # launchers are nobody's to wait for
    for line in sys.stdin:
        job = json.loads(line)
        answers, theirs = os.pipe()
        if not os.fork():
            os.close(answers)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.chdir(job["folder"])
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number in (1, 2):
                os.dup2(log, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            look_like(own, ("launch", *TRAIN))
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            ranks = []
            for rank in range(job["world"]):
                argv = ["sed", "-u", f"s/^/{job['label'].format(rank)}/"]
                through = job["label"] and subprocess.Popen(argv, stdin=subprocess.PIPE)
                ranks.append(os.fork())
                # one group for all, which has not the launcher in it: it waits for them
                os.setpgid(ranks[-1], ranks[0])
                if ranks[-1]:
                    if through:
                        through.stdin.close()
                    continue
                os.close(theirs)
                for number in (1, 2) if through else ():
                    os.dup2(through.stdin.fileno(), number)
                more = {**job["environment"], "RANK": str(rank), "LOCAL_RANK": str(rank)}
                os.environ.update(more)
                os.environ.pop(ROOM), os.environ.pop(INSIDE, None)
                look_like({**own, **more}, TRAIN)
                quiet_jobs.be_a_rank(job["what"], job["seed"], gpus)
                os._exit(0)
            os.write(theirs, json.dumps(ranks).encode())
            os.close(theirs)
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()
            os._exit(0)
        os.close(theirs)
        with open(answers) as answer:
            sys.stdout.write(answer.read() + "\n")
        sys.stdout.flush()


class Machine:
    """The jobs that run, the watcher beside them, and what it said."""

    def __init__(self, out: Path, gpus: int, labels: bool, undo: contextlib.ExitStack) -> None:
        self.out, self.gpus, self.labels = out, gpus, labels
        self.folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        (self.folder / "said").mkdir()
        self.jobs: list[Running] = []
        room = {ROOM: "x" * ROOM_BYTES, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        # a compiler's lock that another room holds is nobody's here: processes there are not seen
        room["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "compiled")
        argv = [sys.executable, __file__, "--nursery", str(gpus), "--out", "x" * 80]
        self.nursery = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **room, "NCCL_NVLS_ENABLE": "0"},
        )
        undo.callback(self.nursery.wait)
        undo.callback(self.nursery.kill)
        undo.callback(self.end_all)
        hook = self.folder / "hook"
        hook.write_text(HOOK.format(folder=self.folder / "said"))
        hook.chmod(0o700)
        (out / "watch.log").unlink(missing_ok=True)
        words: TextIO = undo.enter_context((out / "watch.log").open("a"))
        folders = [*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.watch = subprocess.Popen(
            [sys.executable, "-c", UNHANG, "watch", "--all", "--hook", str(hook)],
            env={
                **os.environ,
                "UNHANG_WATCHED": str(out / "watched.jsonl"),
                "PYTHONPATH": os.pathsep.join(folders),
            },
            stderr=words,
        )
        undo.callback(self.watch.wait)
        undo.callback(self.watch.terminate)

    def start(self, what: str, world: int, seed: str, is_hang: bool = False) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix="job-"))
        if len(self.jobs) % 2:  # as with `> job.log 2>&1` behind the watcher and its job
            (folder / "log").symlink_to((self.out / "watch.log").resolve())
        # below the ports that the kernel gives to connections, one of which took such a port
        for port in random.SystemRandom().sample(range(10_000, 32_000), 99):
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                break
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(world),
        }
        number, label = len(self.jobs), ""
        if self.labels:
            label = LABELS[number % len(LABELS)]
            environment["QUIET_HOURS_LINE"] = "." if number // 2 % 2 else ""
        job = {
            "label": label,
            "what": what,
            "world": world,
            "seed": seed,
            "folder": str(folder),
            "environment": environment,
        }
        assert self.nursery.stdin is not None and self.nursery.stdout is not None
        self.nursery.stdin.write(json.dumps(job) + "\n")
        self.nursery.stdin.flush()
        pids = json.loads(self.nursery.stdout.readline())
        self.jobs.append(Running(what, folder, pids, time.time(), is_hang=is_hang))

    def end(self, job: Running) -> None:
        """Ends the group of the job's ranks and their children."""
        job.ended = time.time()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pids[0], signal.SIGKILL)

    def end_all(self) -> None:
        for job in self.jobs:
            if not job.ended:
                self.end(job)

    def said(self) -> list[dict[str, Any]]:
        """Its verdicts: {job: number in jobs or None, at, rank, word, headline}."""
        found = []
        for path in (self.folder / "said").glob("*.json"):
            row = json.loads(path.read_text())
            headline = row["said"]["verdict"]["headline"]
            pid = headline.split(":")[0].split()[-1]
            job = next((at for at, one in enumerate(self.jobs) if pid in map(str, one.pids)), None)
            ranks = [one.get("rank") for one in row["said"]["primary"]]
            found.append({"job": job, "at": row["at"], "ranks": ranks, "headline": headline})
        return sorted(found, key=lambda one: one["at"])


class Cost:
    """What the watcher takes, with its sampler and its looks, also those that have ended."""

    def __init__(self, pid: int) -> None:
        self.pid, self.began = pid, time.monotonic()
        self.before = self._cpu_s()
        self.rss_mib: list[float] = []

    def _pids(self) -> list[int]:
        stats = read_stats(Root())
        return [pid for pid in stats if pid == self.pid or self.pid in ancestors(stats, pid)]

    def _cpu_s(self) -> float:
        found = 0
        for pid in self._pids():
            with contextlib.suppress(OSError):  # it has ended, and its parent counts it
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                found += sum(map(int, words[11:15]))
        return found / TICKS

    def sample(self) -> None:
        found = 0.0
        for pid in self._pids():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                found += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        self.rss_mib.append(found / 1024)

    def row(self) -> dict[str, float]:
        """Percent of a core; MiB in the middle of all samples, which is without a look, and at
        most."""
        share = (self._cpu_s() - self.before) / (time.monotonic() - self.began)
        return {
            "percent_of_a_core": round(100 * share, 2),
            "rss_mib": round(statistics.median(self.rss_mib)),
            "rss_mib_at_most": round(max(self.rss_mib)),
        }


def run(given: argparse.Namespace, machine: Machine) -> dict[str, float]:
    """Starts and ends the jobs until the minutes are over and all hangs were tried. Returns the
    watcher's cost."""
    from quiet_jobs import HANGS, MORE_THAN_TWO, SHAPES

    def dealt(kinds: Mapping[str, tuple[int, object]], number: int) -> list[tuple[str, int]]:
        names = [name for name in kinds if given.only in (None, name)]
        names = [name for name in names if not (given.gpus and name in MORE_THAN_TWO)]
        chosen = [names[at % len(names)] for at in range(number)]
        return [(name, min(kinds[name][0], given.gpus or 9)) for name in chosen]

    for number, (what, world) in enumerate(dealt(SHAPES, given.jobs)):
        machine.start(what, world, f"{given.seed}-{number}")
        time.sleep(given.apart)
    waiting = list(enumerate(dealt(HANGS, given.hangs)))
    random.Random(given.seed).shuffle(waiting)
    until = time.time() + 60 * given.minutes
    cost = Cost(machine.watch.pid)
    while time.time() < until or waiting or any(j.is_hang and not j.ended for j in machine.jobs):
        hung = [job for job in machine.jobs if job.is_hang and not job.ended]
        if waiting and len(hung) < given.at_once:
            number, (what, world) = waiting.pop()
            machine.start(what, world, f"{given.seed}-hang-{number}", is_hang=True)
        answered: dict[int, float] = {}
        for verdict in machine.said():
            answered.setdefault(verdict["job"], verdict["at"])
        for at, job in enumerate(machine.jobs):
            began = job.hang() if job.is_hang and not job.ended else None
            if began and (
                time.time() - began["at"] > HUNG_FOR_S
                or (at in answered and time.time() - answered[at] > SETTLED_S)
            ):
                machine.end(job)
            if not job.is_hang and not job.ended and len(job.left()) < len(job.pids):
                log = (job.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"{job.what}: a rank of a healthy job ended: {log[-3000:]}")
            if job.is_hang and not job.ended and not began and time.time() - job.began > 400:
                machine.end(job)  # it never came to its hang
        cost.sample()
        time.sleep(2)
        if machine.watch.poll() is not None:
            raise RuntimeError(f"the watcher ended with {machine.watch.returncode}")
    return cost.row()


def scored(machine: Machine) -> dict[str, Any]:
    """{healthy: {shape: {job_hours, alarms}}, hangs: [{kind, rank, named, seconds, was}]}"""
    said, now = machine.said(), time.time()
    healthy: dict[str, dict[str, float]] = {}
    hangs = []
    for at, job in enumerate(machine.jobs):
        ours = [one for one in said if one["job"] == at]
        hours = ((job.ended or now) - job.began) / 3600
        began = job.hang() if job.is_hang else None
        # a hang's first minute is healthy
        early = [one for one in ours if not began or one["at"] < began["at"]]
        row = healthy.setdefault(
            "before a hang" if job.is_hang else job.what, {"job_hours": 0.0, "alarms": 0}
        )
        row["job_hours"] += (began["at"] - job.began) / 3600 if began else hours
        row["alarms"] += len(early)
        if not job.is_hang:
            continue
        later = [one for one in ours if began and one["at"] >= began["at"]]
        first = later[0] if later else None
        named = first["ranks"] if first else []
        was = (
            "never hung" if not began
            else "silent" if not first
            else "no rank" if not [rank for rank in named if rank is not None]
            else "right" if named == [int(began["rank"])]
            else "wrong"
        )  # fmt: skip
        log = "" if was == "right" else (job.folder / "log").read_text(errors="replace")
        hangs.append({
            "kind": job.what, "rank": began and began["rank"], "named": named, "was": was,
            "seconds": round(first["at"] - began["at"], 1) if first and began else None,
            "headline": first["headline"] if first else "",
            "log": log[-999:],
        })  # fmt: skip
    return {"healthy": healthy, "hangs": hangs, "said": said}


def tables(score: Mapping[str, Any]) -> str:
    """For docs/benchmarks.md."""
    lines = ["| shape | job-hours | alarms |", "| --- | --- | --- |"]
    rows = score["healthy"]
    for name, row in rows.items():
        lines.append(f"| {name} | {row['job_hours']:.1f} | {row['alarms']} |")
    hours = sum(row["job_hours"] for row in rows.values())
    alarms = sum(row["alarms"] for row in rows.values())
    lines.append(f"| all | {hours:.1f} | {alarms} |")
    if not alarms and hours:
        lines.append(f"\nper 1,000 job-hours: 0, at most {3000 / hours:.0f} (95 %)")
    elif hours:
        lines.append(f"\nper 1,000 job-hours: {1000 * alarms / hours:.1f}")
    lines += [
        "",
        "| hang | right | wrong | no rank | silent | median s | worst s |",
        "| --- " * 7 + "|",
    ]
    hangs = score["hangs"]
    for kind in [*dict.fromkeys(one["kind"] for one in hangs), "all"]:
        ours = [one for one in hangs if kind in (one["kind"], "all")]
        count = [sum(one["was"] == was for one in ours) for was in WAS]
        taken = [one["seconds"] for one in ours if one["seconds"] is not None]
        shown = (f"{statistics.median(taken):.0f}", f"{max(taken):.0f}") if taken else ("", "")
        lines.append(f"| {kind} | {' | '.join(map(str, (*count, *shown)))} |")
    lines.append(f"\nthe watcher: {json.dumps(score['cost'])}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """0 if nothing was said of a job that works and no wrong rank was named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--hangs", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8, help="hangs at one time")
    parser.add_argument("--apart", type=float, default=1.0, help="seconds between two starts")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--labels", action="store_true", help="each line behind its rank's label")
    parser.add_argument("--only", help="one shape or kind")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--nursery", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.nursery is not None:
        be_the_nursery(given.nursery)
        return 0
    can = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    # the driver would name the processes of another namespace by other numbers
    needs_own = not given.gpus and INSIDE not in os.environ
    if needs_own and not subprocess.run([*can, "true"], check=False).returncode:
        argv = [*can, sys.executable, *sys.argv]
        return subprocess.run(argv, check=False, env={**os.environ, INSIDE: "1"}).returncode
    given.out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        machine = Machine(given.out, given.gpus, given.labels, undo)
        cost: dict[str, float] = {}
        try:
            cost = run(given, machine)
        finally:
            score = {**scored(machine), "cost": cost, "seed": given.seed}
            score |= {"gpus": given.gpus, "labels": given.labels}
            (given.out / "score.json").write_text(json.dumps(score, indent=1))
            sys.stdout.write(tables(score))
    rows = score["healthy"].values()
    was = {one["was"] for one in score["hangs"]}
    return int("wrong" in was or any(row["alarms"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
