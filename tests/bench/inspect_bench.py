"""Hangs made for real with NCCL on one GPU, each inspected from outside: right rank, right cause, in how many seconds.

    python3 tests/bench/inspect_bench.py --out FOLDER [--budget SECONDS] [--py-spy PATH] [--only SCENE,...] [--backend gloo]

Two ranks share GPU 0 as two hosts (NCCL_HOSTID, sockets over lo). For each scene of inspect_job.py the script starts the job, samples it (traces for the
detector), and looks at it three times: by RAS alone, by RAS and stacks, by the driver and /proc alone. It needs torch, and of this project module_utils
and tools. Writes FOLDER/inspect.json (what each look found and took), evidence.tar.gz (the documents) and traces.tar.gz. NVLink multicast stays off.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for place in ("tools", "module_utils"):
    sys.path.insert(0, str(HERE.parents[1] / place))

from unhang.jobs.inspect.verdict import inspection_of  # noqa: E402
from unhang.jobs.watch.prepared import SIZES, prepared_environment  # noqa: E402
from unhang_node.context import Context  # noqa: E402
from unhang_node.job.finding import read_ranks  # noqa: E402
from unhang_node.job.look import OPTIONS  # noqa: E402
from unhang_node.job.samples import gpu_sample, header_of, process_samples, ras_sample  # noqa: E402
from unhang_node.root import Root  # noqa: E402

# scene: (state, rank that is to be named or None, words one of which says the cause)
SCENES: dict[str, tuple[str, int | None, tuple[str, ...]]] = {
    "healthy": ("running", None, ("",)),
    "never": ("hung", 1, ("happen",)),
    "stopped": ("hung", 1, ("stopped",)),
    "killed": ("hung", 1, ("ended", "gone")),
    "differ": ("hung", 1, ("AllGather", "all_gather")),
    "loader": ("hung", 1, ("read_from_dead_server",)),
    "path": ("hung", None, ("none left it",)),
    "allgather": ("hung", 1, ("AllGather", "all_gather", "main (")),
    "compile": ("compiling", None, ("compiling",)),
    "checkpoint": ("saving", None, ("saving",)),
    "evaluation": ("evaluating", None, ("evaluating",)),
    "slow": ("running", None, ("",)),
    "init": ("starting", 1, ("not there",)),
    "first": ("hung", 1, ("main (",)),
    "spin": ("unknown", 1, ("happen",)),
    "inflight": ("hung", 1, ("stopped",)),
    "longstep": ("running", None, ("",)),
    "lock": ("hung", 1, ("happen",)),
}
WAYS = {
    "RAS": ["stacks", "proc", "nvml", "sockets", "log_tail", "kernel_log", "locks"],
    "RAS and stacks": [],
    "driver and /proc": ["ras", "stacks"],
}
HEALTHY_S, SETTLE_S = 5.0, 3.0
LOOK = "import sys; sys.path[:0] = {}; from unhang_node.job.command import main; sys.exit(main(sys.argv[1:]))"
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=540.0)
    parser.add_argument("--py-spy")
    parser.add_argument("--only")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    until, rows, texts = time.monotonic() + arguments.budget, [], {}
    wanted = arguments.only.split(",") if arguments.only else [*list(SCENES)[:13], *MEASUREMENTS, *list(SCENES)[13:]]
    for number, scene in enumerate(wanted):
        if time.monotonic() + 40 > until:
            say(f"{scene}: passed over, the budget ends")
            continue
        try:
            found, made = MEASUREMENTS.get(scene, inspect_scene)(scene, number, arguments)
        except Exception:
            traceback.print_exc()
            found, made = [{"scene": scene, "error": traceback.format_exc(limit=2)}], {}
        rows += found
        texts.update(made)
        (arguments.out / "inspect.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        for name in ("evidence", "traces"):
            pack(arguments.out / f"{name}.tar.gz", {path: text for path, text in texts.items() if path.startswith(name)})
    print_table(rows)
    return 0


@contextlib.contextmanager
def started(scene: str, number: int, backend: str, healthy_s: float = HEALTHY_S, recorder: bool | None = None) -> Iterator[tuple[list[subprocess.Popen], Path]]:
    folder = Path(tempfile.mkdtemp(prefix="inspect-"))
    processes = []
    for rank in (0, 1) if scene != "init" else (0,):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29700 + number),
            "NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0",
            "NCCL_SET_THREAD_NAME": str(int(scene == "path")), "INSPECT_JOB_FOLDER": str(folder),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "OMP_NUM_THREADS": "2", "NCCL_RAS_ADDR": f"localhost:{28100 + number}",
        }  # fmt: skip
        with (folder / f"log-{rank}").open("wb") as log:
            argv = [sys.executable, "-W", "ignore", str(HERE / "inspect_job.py"), scene, str(healthy_s), backend]
            if recorder is not None:
                environment |= prepared_environment(["python3"], environment, folder) if recorder else dict.fromkeys(SIZES, "0")
            processes.append(subprocess.Popen(argv, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True))
    try:
        yield processes, folder
    finally:
        for process in processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(folder: Path, word: str, limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if word in (folder / "log-0").read_text(encoding="utf-8", errors="replace"):
            return True
        time.sleep(0.1)
    return False


def inspect_scene(scene: str, number: int, arguments: argparse.Namespace) -> tuple[list[dict], dict[str, str]]:
    with started(scene, number, arguments.backend) as (processes, folder), contextlib.ExitStack() as stack:
        if scene in ("init", "first"):
            time.sleep(12)
        elif not wait_for(folder, "step 20", 60):
            raise RuntimeError((folder / "log-0").read_text(errors="replace")[-2000:])
        trace: list[dict] = []
        stack.enter_context(sampling([process.pid for process in processes], trace))
        if scene == "path":
            wait_for(folder, "happens", HEALTHY_S + 20)
            stack.enter_context(frozen_threads(processes[1].pid))
        elif scene not in ("init", "first"):
            wait_for(folder, "happens", HEALTHY_S + 20)
        happened = time.time()
        time.sleep(SETTLE_S)
        rows, texts = [], {}
        for way, without in WAYS.items():
            begun = time.monotonic()
            document = look_from_outside(processes[0].pid, without, arguments.py_spy)
            seconds = time.monotonic() - begun
            rows.append(judged(scene, way, document, seconds))
            texts[f"evidence/{scene}-{way.replace(' ', '-').replace('/', '')}.json"] = json.dumps(document)
            say(json.dumps(rows[-1])[:600])
        trace[0]["scene"], trace[0]["happened"] = scene, round(happened, 3)
        texts[f"traces/{scene}.jsonl"] = "".join(json.dumps(line) + "\n" for line in trace)
        return rows, texts


def look_from_outside(pid: int, without: list[str], py_spy: str | None) -> dict[str, Any]:
    """What unhang-inspect.pyz would print: a process of its own, because the driver's library does not survive a fork."""
    code = LOOK.format([str(HERE.parents[1] / "module_utils")])
    argv = [sys.executable, "-c", code, "--pid", str(pid), *(word for name in without for word in ("--without", name))]
    done = subprocess.run([*argv, *(["--py-spy", py_spy] if py_spy else [])], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def judged(scene: str, way: str, document: dict, seconds: float) -> dict[str, Any]:
    state, rank, words = SCENES[scene]
    found = inspection_of([document])
    said = " ".join([found["headline"], *(suspect["why"] for suspect in found["suspects"])])
    named = [suspect["rank"] for suspect in found["suspects"]]
    return {
        "scene": scene, "way": way, "seconds": round(seconds, 2), "state": found["state"], "right_state": found["state"] == state,
        "right_rank": rank in named if rank is not None else named in ([], [None]), "right_cause": any(word in said for word in words),
        "says": found["headline"],
        "ras": document["sections"]["ras"]["probe"].get("error"),
    }  # fmt: skip


def load_pynvml() -> Any:
    import pynvml

    return pynvml


@contextlib.contextmanager
def sampling(pids: list[int], trace: list[dict], every_s: float = 1.0) -> Iterator[None]:
    """Samples the job into `trace` until the end of the block."""
    context = Context(Root(), {**OPTIONS, "pids": pids, "skipped": []}, (), None)
    ranks = [row for _, fields, _, *_ in read_ranks(context) for row in fields.get("ranks", [])]
    trace.append(header_of(os.uname().nodename, ranks, every_s, time.time()))
    asking, gpus, ended = open_gpus(), [0], threading.Event()

    def sample() -> None:
        begun = time.monotonic()
        while not ended.is_set():
            t = round(time.monotonic() - begun, 2)
            trace.append(ras_sample(ranks, t))
            trace.extend(process_samples(Root(), ranks, t))
            if asking:
                trace.extend(gpu_sample(asking.about("", "0", handle=asking.session.nvmlDeviceGetHandleByIndex(index)), index, t) for index in gpus)
            ended.wait(max(0.05, every_s - (time.monotonic() - begun - t)))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def open_gpus() -> Any:
    from unhang_node.context import no_mark
    from unhang_node.nvml.calls import Asking
    from unhang_node.nvml.live import LiveSession
    from unhang_node.section import Unread

    try:
        session = LiveSession(load_pynvml())
        session.nvmlInit()
    except Exception as problem:
        say(f"no driver: {problem}")
        return None
    return Asking(session, no_mark, Unread())


@contextlib.contextmanager
def frozen_threads(pid: int) -> Iterator[None]:
    """Stops NCCL's threads that move data, and only these: then nothing that was launched arrives, as behind a link that is dead."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    names = {int(path.name): (path / "comm").read_text().strip() for path in Path(f"/proc/{pid}/task").iterdir()}
    say(f"threads: {sorted(set(names.values()))}")
    held = [tid for tid, name in names.items() if "Progress" in name]
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:  # a tracer is a thread
        for tid in held:
            if libc.ptrace(PTRACE_ATTACH, tid, None, None):
                say(f"ptrace of {tid}: {os.strerror(ctypes.get_errno())}")
            else:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(tid, 0x40000000)  # __WALL
        ready.set()
        done.wait()
        for tid in held:
            libc.ptrace(PTRACE_DETACH, tid, None, None)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    ready.wait(5)
    try:
        yield
    finally:
        done.set()
        thread.join(5)


def measure_speed(scene: str, number: int, arguments: argparse.Namespace) -> tuple[list[dict], dict[str, str]]:
    """Steps per second without a watcher, with one, and without again; and what the watcher costs."""
    rates, cost, costs = {}, {}, []
    with started(scene, number, arguments.backend, 1e9) as (processes, folder):
        wait_for(folder, "step 100", 60)
        for turn in range(6):
            name = f"{('without', 'with')[turn % 2]} {turn // 2 + 1}"
            trace: list[dict] = []
            before, cpu = steps_in(folder), own_cost()
            begun = time.monotonic()
            with sampling([process.pid for process in processes], trace) if turn % 2 else contextlib.nullcontext():
                time.sleep(10)
            seconds = time.monotonic() - begun
            rates[name] = (steps_in(folder) - before) / seconds
            after = own_cost()
            if turn % 2:
                costs.append((after["cpu_s"] - cpu["cpu_s"]) / seconds)
            cost = after
    row = {"scene": scene, "rates": {name: round(rate, 1) for name, rate in rates.items()}, "watcher_cores": max(costs), "memory_mib": cost["memory_mib"]}
    say(json.dumps(row))
    return [row], {}


def measure_recorder(scene: str, number: int, arguments: argparse.Namespace) -> tuple[list[dict], dict[str, str]]:
    """Steps per second of jobs without torch's flight recorder and with it, in turn."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(6):
        with started(scene, 40 + 10 * number + turn, arguments.backend, 1e9, recorder=bool(turn % 2)) as (_, folder):
            wait_for(folder, "step 100", 60)
            before, begun = steps_in(folder), time.monotonic()
            time.sleep(8)
            rates[("without", "with")[turn % 2]].append(round((steps_in(folder) - before) / (time.monotonic() - begun), 1))
    row = {"scene": scene, "rates": rates}
    say(json.dumps(row))
    return [row], {}


def own_cost() -> dict[str, float]:
    """Processor time and memory of this process, which is the sampler's."""
    usage, pages = os.times(), int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {"cpu_s": usage.user + usage.system, "memory_mib": pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)}


def steps_in(folder: Path) -> int:
    words = (folder / "log-0").read_text(encoding="utf-8", errors="replace").split()
    return max((int(word) for before, word in itertools.pairwise(words) if before == "step" and word.isdigit()), default=0)


MEASUREMENTS = {"speed": measure_speed, "recorder": measure_recorder}


def pack(path: Path, texts: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def print_table(rows: list[dict]) -> None:
    say("| scene | way | seconds | state | right state | right rank | right cause |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        if "way" in row:
            marks = ["yes" if row[name] else "no" for name in ("right_state", "right_rank", "right_cause")]
            say(f"| {row['scene']} | {row['way']} | {row['seconds']} | {row['state']} | {' | '.join(marks)} |")


if __name__ == "__main__":
    sys.exit(main())
