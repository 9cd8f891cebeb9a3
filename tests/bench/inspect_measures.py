"""What `unhang watch` and `unhang inspect` cost a real job with NCCL, and how soon the watcher
tells a hang; for inspect_bench.py."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from children_cost import UNHANG, cost_of
from inspect_parts import HERE, say, started, steps_in, wait_for

from unhang.jobs.watch.prepared import SIZES, prepared_environment
from unhang_node.base.root import Root
from unhang_node.job.process_table import ancestors, read_stats


def measure_speed(
    scene: str, number: int, arguments: argparse.Namespace
) -> tuple[list[dict], dict[str, str]]:
    """Steps per second without `unhang watch` and with it, in turn; and what it costs: processor
    time and memory of all its processes."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    costs: list[dict[str, float]] = []
    with started(scene, number, arguments, 1e9) as (processes, folder):
        wait_for(folder, "step 100", 60)
        for turn in range(10):
            with watcher(processes[0].pid) if turn % 2 else contextlib.nullcontext() as watch:
                time.sleep(3)
                before, first, begun = steps_in(folder), cost_of(watch), time.monotonic()
                time.sleep(10)
                seconds = time.monotonic() - begun
                rates[("without", "with")[turn % 2]].append(
                    round((steps_in(folder) - before) / seconds, 2)
                )
                last = cost_of(watch)
            if watch:
                costs.append(
                    {
                        "cores": round((last["cpu_s"] - first["cpu_s"]) / seconds, 4),
                        **{name: last[name] for name in ("rss_mib", "pss_mib")},
                    }
                )
    row = {"scene": scene, "rates": rates, "watcher": costs}
    say(json.dumps(row))
    return [row], {}


@contextlib.contextmanager
def watcher(pid: int) -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
        [sys.executable, "-c", UNHANG, "watch", "--pid", str(pid)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as watch:
        try:
            yield watch
        finally:
            watch.terminate()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(watch.pid, signal.SIGTERM)


def measure_looks(
    scene: str, number: int, arguments: argparse.Namespace
) -> tuple[list[dict], dict[str, str]]:
    """Steps per second without a look and while one `unhang inspect` follows the other, in turn;
    and what each look costs."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    looks: list[dict[str, Any]] = []
    with started("speed", number, arguments, 1e9) as (processes, folder):
        wait_for(folder, "step 100", 60)
        for turn in range(6):
            before, begun = steps_in(folder), time.monotonic()
            while time.monotonic() - begun < 10:
                if turn % 2:
                    looks.append(cost_of_look(processes[0].pid, arguments.py_spy))
                else:
                    time.sleep(0.5)
            rates[("without", "with")[turn % 2]].append(
                round((steps_in(folder) - before) / (time.monotonic() - begun), 2)
            )
    row = {"scene": scene, "rates": rates, "looks": looks}
    say(json.dumps(row))
    return [row], {}


def cost_of_look(pid: int, py_spy: str | None) -> dict[str, Any]:
    """One `unhang inspect`: its exit code, wall and processor seconds with all that it started, and
    MiB of its largest process."""
    begun = time.monotonic()
    look = subprocess.Popen(
        [
            sys.executable,
            "-c",
            UNHANG,
            "inspect",
            "--pid",
            str(pid),
            *(["--py-spy", py_spy] if py_spy else []),
        ],
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(look.pid, 0)
    look.returncode = os.waitstatus_to_exitcode(status)
    if look.returncode not in (0, 1, 3):
        raise RuntimeError(
            f"expected a verdict of unhang inspect, found exit code {look.returncode}"
        )
    seconds = {
        "wall_s": round(time.monotonic() - begun, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
    }
    return {"code": look.returncode, **seconds, "largest_mib": round(used.ru_maxrss / 1024, 1)}


def measure_told(
    scene: str, number: int, arguments: argparse.Namespace
) -> tuple[list[dict], dict[str, str]]:
    """`unhang watch -- torchrun` on a job that hangs: seconds from the hang to the verdict and to
    the end, and the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        job = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            f"--master-port={29900 + number}",
            str(HERE / "inspect_job.py"),
            "never",
        ]
        argv = [
            sys.executable,
            "-c",
            UNHANG,
            "watch",
            "--no-progress",
            "10",
            "--on-hang",
            "terminate",
            "--act",
            "--grace",
            "5",
            "--out",
            folder,
        ]
        argv += ["--py-spy", arguments.py_spy] if arguments.py_spy else []
        environment = {
            **os.environ,
            "NCCL_NVLS_ENABLE": "0",
            "INSPECT_JOB_GPUS": str(arguments.gpus),
            "INSPECT_JOB_FOLDER": folder,
        }
        if arguments.gpus == 1:
            environment["NCCL_P2P_DISABLE"] = "1"
        watch = subprocess.Popen(
            [*argv, "--", *job, "5", arguments.backend],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        times, said = {}, []
        for line in watch.stdout or ():
            said.append(line)
            for word in ("happens", "looking at the job", "hung:", "a second look"):
                if word in line and (
                    word not in times or (word == "looking at the job" and "hung:" not in times)
                ):
                    times[word] = time.monotonic()
        code, ended = watch.wait(), time.monotonic()
    seconds = (
        {word: round(at - times["happens"], 1) for word, at in [*times.items(), ("ended", ended)]}
        if "happens" in times
        else {}
    )
    row = {"scene": scene, "code": code, "seconds": seconds, "said": "".join(said)[:6000]}
    say(json.dumps({**row, "said": "".join(said)[-1500:]}))
    return [row], {}


# what is beside a job that runs without any of it: (torch's flight recorder, unhang watch)
VARIANTS = {"both": (True, True), "recorder": (True, False), "watch": (False, True)}
PAIRS = {"both": 10, "recorder": 4, "watch": 4}
WINDOW_S = 6.0


def measure_pairs(
    scene: str, number: int, arguments: argparse.Namespace
) -> tuple[list[dict], dict[str, str]]:
    """Steps per second of torchrun alone, and of the same job at the same time on two other GPUs
    with the recorder, with `unhang watch`, or with both; the GPUs change sides after each pair."""
    rates: dict[str, list[list[float]]] = {variant: [] for variant in PAIRS}
    for variant, pairs in PAIRS.items():
        for turn in range(pairs):
            sides = ("0,1", "2,3") if turn % 2 else ("2,3", "0,1")
            port = 29800 + 2 * (turn % 40)
            with (
                of_torchrun(arguments, port, sides[0], recorder=False, watch=False) as plain,
                of_torchrun(arguments, port + 1, sides[1], *VARIANTS[variant]) as other,
            ):
                if not all(wait_for(folder, "step 100", 60) for folder in (plain, other)):
                    raise RuntimeError((other / "log-0").read_text(errors="replace")[-2000:])
                before = [steps_in(folder) for folder in (plain, other)]
                time.sleep(WINDOW_S)
                after = [steps_in(folder) for folder in (plain, other)]
            pair = [round((b - a) / WINDOW_S, 2) for a, b in zip(before, after, strict=True)]
            rates[variant].append(pair)
            say(f"{variant}: {pair[0]} steps a second without, {pair[1]} with")
    shares = {
        variant: round(statistics.median(with_it / without for without, with_it in pairs), 4)
        for variant, pairs in rates.items()
    }
    row = {"scene": scene, "pairs": rates, "shares": shares}
    say(json.dumps(row))
    return [row], {}


@contextlib.contextmanager
def of_torchrun(
    arguments: argparse.Namespace, port: int, gpus: str, recorder: bool, watch: bool
) -> Iterator[Path]:
    """A job of two ranks on these GPUs; the folder with its log. `unhang watch` sets the recorder
    by itself, so without it the recorder is switched off by hand."""
    with tempfile.TemporaryDirectory(prefix="inspect-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
        job += [f"--master-port={port}", str(HERE / "inspect_job.py")]
        job += ["recorder", "1e9", arguments.backend]
        watcher_argv = [sys.executable, "-c", UNHANG, "watch", "--out", name, "--"]
        environment = {
            **os.environ,
            "NCCL_NVLS_ENABLE": "0",
            "CUDA_VISIBLE_DEVICES": gpus,
            "INSPECT_JOB_GPUS": "2",
            "NCCL_RAS_ADDR": f"localhost:{port - 1000}",
        }
        environment |= (
            prepared_environment(job, environment, folder)
            if recorder
            else dict.fromkeys(SIZES, "0")
        )
        with (folder / "log-0").open("wb") as log:
            process = subprocess.Popen(
                [*watcher_argv, *job] if watch else job,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield folder
        finally:
            end_all(process)


def end_all(process: subprocess.Popen) -> None:
    """Workers of torchrun have sessions of their own, so they are found by their parents."""
    stats = read_stats(Root())
    pids = [pid for pid in stats if process.pid in ancestors(stats, pid)]
    for pid in [process.pid, *pids]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


MEASUREMENTS = {
    "speed": measure_speed,
    "looks": measure_looks,
    "told": measure_told,
    "pairs": measure_pairs,
}
