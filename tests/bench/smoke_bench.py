"""What the steps of gpu_smoke.py share: one smoke run on this machine, rows of the table, nccl-tests, and what is left running."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils")]

from unhang.smoke import plan as planning  # noqa: E402
from unhang.smoke.local import free_port, payload_path, run_local  # noqa: E402
from unhang.smoke.result import judge  # noqa: E402

QUIET = {"NCCL_NVLS_ENABLE": "0"}  # NVLink multicast stays off: a shared host may not survive it
GIB = 1 << 30
PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "broadcast": "broadcast_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
}  # fmt: skip
PLACES = ("/opt/nccl-tests/build", "/usr/local/nccl-tests/build", "/opt/nccl-tests", "/usr/local/bin", "/usr/bin", "/root/nccl-tests/build")
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)")


@dataclass
class Bench:
    """rows: lines of the table; measured: the same as data, by step; failed: what was not as it should be; until: when no step is begun any more.

    shared: there is one GPU, and each of the nproc ranks is a host of its own to NCCL (NCCL_HOSTID), with that GPU: NCCL refuses two ranks of one host on one.
    """

    out: Path
    python: str
    nproc: int
    nccl_tests: Path | None
    other_nccl: str | None
    until: float
    backend: str = "nccl"
    shared: bool = False
    rows: list[tuple[str, str]] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def say(self, what: str, value: str) -> None:
        """One row of the table, shown at once and written at once: a run that is cut off keeps what it had."""
        self.rows.append((what, value))
        sys.stdout.write(f"{what}: {value}\n")
        sys.stdout.flush()
        self.write()

    def write(self) -> None:
        """The table and the data."""
        table = "| what | measured |\n| --- | --- |\n" + "".join(f"| {what} | {value} |\n" for what, value in self.rows)
        (self.out / "gpu_smoke.md").write_text(table, encoding="utf-8")
        document = {"rows": [list(row) for row in self.rows], "measured": self.measured, "failed": self.failed}
        (self.out / "gpu_smoke.json").write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")

    def smoke(self, name: str, **options: Any) -> tuple[dict[str, Any], float]:
        """(result, seconds) of one smoke run here; its result goes to a file. nproc: other than all GPUs; more: further keys of the plan."""
        nproc, more = options.pop("nproc", self.nproc), options.pop("more", {})
        options["environment"] = {**QUIET, **options.get("environment", {})}
        here, members = os.uname().nodename, []
        if self.shared:
            options.setdefault("max_bytes", 256 << 20)  # all of it goes through sockets, and the GPU's memory is for all ranks
            members = [planning.Member(f"{here}-{number}", 1) for number in range(nproc)]
            given = options.get("rank_environment", {})
            options["rank_environment"] = {str(rank): {"NCCL_HOSTID": f"host{rank}", **given.get(str(rank), {})} for rank in range(nproc)}
        request = planning.Request(backend=self.backend, python=self.python, total_timeout_s=options.pop("total_timeout_s", 120.0), **options)
        plans = planning.plan_group(request, members or [planning.Member(here, nproc)], "127.0.0.1", free_port())
        nodes = [planning.NodePlan(node.host, node.ranks, {**node.document, **more}) for node in plans]
        began = time.monotonic()
        with ThreadPoolExecutor(len(nodes)) as pool:
            result = judge(list(pool.map(lambda node: run_local(node, payload_path(ROOT), [sys.executable]), nodes)))
        seconds = time.monotonic() - began
        (self.out / f"smoke-{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        blamed = [(suspect["rank"], suspect["phase"], suspect["why"][:200]) for suspect in result["suspects"]]
        sys.stdout.write(f"  {name}: {result['verdict']} in {seconds:.1f} s; suspects {blamed}\n")
        return result, seconds

    def expect(self, name: str, holds: bool, what: str) -> None:
        """Notes what is not as it should be."""
        if not holds:
            self.failed.append(f"{name}: expected {what}")
            sys.stdout.write(f"  NOT AS IT SHOULD BE, {name}: expected {what}\n")


def where_time_goes(result: dict[str, Any], most: int = 8) -> str:
    """The longest phases, for people."""
    longest = sorted(result["phases"], key=lambda row: -row["duration_s"])[:most]
    return ", ".join(f"{row['name']} {row['duration_s']:.1f}" for row in longest)


def labels(result: dict[str, Any]) -> dict[str, list[str]]:
    """{label: ["0>1", ...]} of the pairs of ranks."""
    found: dict[str, list[str]] = {}
    for row in result["transports"]:
        found.setdefault(row["label"], []).append(f"{row['from']}>{row['to']}")
    return found


def nccl_tests_busbw(bench: Bench, name: str, gpus: int, library: str | None) -> list[float]:
    """[busbw] out-of-place of one run of nccl-tests at 1 GiB under torch's own libnccl; [] when it does not run."""
    if bench.nccl_tests is None or not (bench.nccl_tests / PROGRAMS[name]).is_file():
        return []
    words = [str(bench.nccl_tests / PROGRAMS[name]), "-b", "1G", "-e", "1G", "-g", str(gpus), "-w", "5", "-n", "20", "-c", "0"]
    paths = [str(Path(library).parent)] if library else []
    environment = {**os.environ, **QUIET, "LD_LIBRARY_PATH": os.pathsep.join([*paths, os.environ.get("LD_LIBRARY_PATH", "")])}
    try:
        said = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.stdout.write(f"  nccl-tests: {problem}\n")
        return []
    return [float(found[4]) for line in said.splitlines() if (found := ROW.match(line)) and int(found[1]) == GIB]


def find_nccl_tests(named: str | None) -> Path | None:
    """The folder of all_reduce_perf, or None."""
    on_path = shutil.which("all_reduce_perf")
    for place in [named, os.environ.get("NCCL_TESTS"), *([str(Path(on_path).parent)] if on_path else []), *PLACES]:
        if place and (Path(place) / "all_reduce_perf").is_file():
            return Path(place)
    return None


def middle(values: list[float]) -> float:
    """The median, 0 of nothing."""
    return statistics.median(values) if values else 0.0


def remains() -> list[str]:
    """Command lines of payload processes that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if not zombie and any(word.endswith(b"unhang_smoke.py") for word in words) and (b"rank" in words or b"node" in words):
                found.append(b" ".join(words)[:120].decode("utf-8", "replace"))
    return found
