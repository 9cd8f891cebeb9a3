"""Hangs made for real with NCCL, each inspected from outside: right rank, right cause, in how many
seconds.

    python3 tests/bench/inspect_bench.py --out FOLDER [--budget SECONDS] [--py-spy PATH] [--only
    SCENE,...] [--backend gloo] [--gpus 2]

Two ranks share GPU 0 as two hosts (NCCL_HOSTID, sockets over lo), or with `--gpus 2` each has its
own, and only `path`, which needs a network, has two hosts. For each scene of inspect_job.py the
script starts the job, samples it (traces for the detector), and looks at it three times: by RAS
alone, by RAS and stacks, by the driver and /proc alone. It needs torch, and of this project
module_utils and tools. Writes FOLDER/inspect.json (what each look found and took), evidence.tar.gz
(the documents) and traces.tar.gz. NVLink multicast stays off.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tarfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for place in ("tools", "module_utils", "tests/support"):
    sys.path.insert(0, str(HERE.parents[1] / place))

from inspect_measures import MEASUREMENTS  # noqa: E402
from inspect_parts import (  # noqa: E402
    HEALTHY_S,
    crowded,
    frozen_threads,
    sampling,
    say,
    started,
    wait_for,
)
from inspected import inspection_of  # noqa: E402

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
    "restore": ("restoring", None, ("restoring",)),
    "import": ("starting", None, ("starting",)),
    "baton": ("hung", 1, ("wait, called by wait_for_build",)),
    "crowded": ("running", None, ("",)),
    "full": ("running", None, ("",)),
    "graph": ("hung", 1, ("replay_but_the_last",)),
    "writer": ("hung", 1, ("read_from_a_pipe",)),
    # a stranger computes on the GPU of the rank that hangs
    "never beside": ("hung", 1, ("happen",)),
    "loader beside": ("hung", 1, ("read_from_dead_server",)),
    "stopped beside": ("hung", 1, ("stopped",)),
}
OF_TWO_GPUS = ("crowded", "full")
WAYS = {
    "RAS": ["stacks", "proc", "nvml", "sockets", "log_tail", "kernel_log", "locks"],
    "RAS and stacks": [],
    "driver and /proc": ["ras", "stacks"],
}
SETTLE_S = 3.0
LOOK = (
    "import sys; sys.path[:0] = {}; from unhang_node.job.command import main;"
    " sys.exit(main(sys.argv[1:]))"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=540.0)
    parser.add_argument("--py-spy")
    parser.add_argument("--only")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--gpus", type=int, default=1, choices=(1, 2))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    until, rows, texts = time.monotonic() + arguments.budget, [], {}
    scenes = [scene for scene in SCENES if arguments.gpus > 1 or scene not in OF_TWO_GPUS]
    wanted = (
        arguments.only.split(",") if arguments.only else [*scenes[:13], *MEASUREMENTS, *scenes[13:]]
    )
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
            pack(
                arguments.out / f"{name}.tar.gz",
                {path: text for path, text in texts.items() if path.startswith(name)},
            )
    print_table(rows)
    return 0


def inspect_scene(
    scene: str, number: int, arguments: argparse.Namespace
) -> tuple[list[dict], dict[str, str]]:
    job = scene.removesuffix(" beside")
    with started(job, number, arguments) as (processes, folder), contextlib.ExitStack() as stack:
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
        if scene == "crowded" or job != scene:
            stack.enter_context(crowded(arguments.gpus - 1))
        happened = time.time()
        time.sleep(SETTLE_S + (12 if scene in OF_TWO_GPUS or job != scene else 0))
        rows, texts = [], {}
        for way, without in WAYS.items():
            begun = time.monotonic()
            document = look_from_outside(processes[0].pid, without, arguments.py_spy)
            seconds = time.monotonic() - begun
            rows.append(judged(scene, way, document, seconds))
            name = f"{scene}-{way}".replace(" ", "-").replace("/", "")
            texts[f"evidence/{name}.json"] = json.dumps(document)
            say(json.dumps(rows[-1])[:600])
        trace[0]["scene"], trace[0]["happened"] = scene, round(happened, 3)
        texts[f"traces/{scene.replace(' ', '-')}.jsonl"] = "".join(
            json.dumps(line) + "\n" for line in trace
        )
        return rows, texts


def look_from_outside(pid: int, without: list[str], py_spy: str | None) -> dict[str, Any]:
    """What unhang-inspect.pyz would print: a process of its own, because the driver's library does
    not survive a fork."""
    code = LOOK.format([str(HERE.parents[1] / "module_utils")])
    argv = [
        sys.executable,
        "-c",
        code,
        "--pid",
        str(pid),
        *(word for name in without for word in ("--without", name)),
    ]
    done = subprocess.run(
        [*argv, *(["--py-spy", py_spy] if py_spy else [])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def judged(scene: str, way: str, document: dict, seconds: float) -> dict[str, Any]:
    state, rank, words = SCENES[scene]
    found = inspection_of([document])
    said = " ".join([found["headline"], *(suspect["why"] for suspect in found["suspects"])])
    named = [suspect["rank"] for suspect in found["suspects"]]
    return {
        "scene": scene, "way": way, "seconds": round(seconds, 2), "state": found["state"],
        "right_state": found["state"] == state,
        "right_rank": rank in named if rank is not None else named in ([], [None]),
        "right_cause": any(word in said for word in words),
        "says": found["headline"],
        "ras": document["sections"]["ras"]["probe"].get("error"),
    }  # fmt: skip


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
            marks = [
                "yes" if row[name] else "no"
                for name in ("right_state", "right_rank", "right_cause")
            ]
            say(
                f"| {row['scene']} | {row['way']} | {row['seconds']} | {row['state']} |"
                f" {' | '.join(marks)} |"
            )


if __name__ == "__main__":
    sys.exit(main())
