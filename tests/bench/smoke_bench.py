"""Shared parts of the steps of gpu_bench.py: one smoke run on this machine, rows of the table, and
processes that are left running."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils")]

from unhang.core.smoke_result import document_of  # noqa: E402
from unhang.smoke import node_plans as planning  # noqa: E402
from unhang.smoke.expectations import read_expectations  # noqa: E402
from unhang.smoke.local import free_port, run_local  # noqa: E402
from unhang.smoke.local_hosts import one_host, run_hosts, several_hosts  # noqa: E402
from unhang.smoke.payload_zip import payload_bytes  # noqa: E402
from unhang.smoke.result import judge  # noqa: E402

QUIET = {"NCCL_NVLS_ENABLE": "0"}  # NVLink multicast stays off: it may bring down a shared host


@dataclass
class Bench:
    """rows: lines of the table; tables: whole ones; measured: the same as data; results: of smoke
    runs by name; failed: results that were not as expected.

    until: when the budget is spent; shared: there is one GPU, and each of the nproc ranks is a host
    of its own to NCCL (NCCL_HOSTID), with that GPU: NCCL refuses two ranks of one host on one GPU.
    folder: for temporary files. building: the build of nccl-tests.
    """

    out: Path
    python: str
    nproc: int
    nccl_tests: Path | None
    other_nccl: str | None
    until: float
    backend: str = "nccl"
    shared: bool = False
    pyz: str = str(ROOT / "dist" / "unhang-collect.pyz")
    building: Future[Path | None] | None = None
    rows: list[tuple[str, str]] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpu-bench-")))

    def say(self, what: str, value: str) -> None:
        """Adds one row of the table, prints and writes it at once: an interrupted run keeps its
        rows."""
        self.rows.append((what, value))
        sys.stdout.write(f"{what}: {value}\n")
        sys.stdout.flush()
        self.write()

    def write(self) -> None:
        """Writes the tables and the data, each file as a whole."""
        table = "| what | measured |\n| --- | --- |\n" + "".join(
            f"| {what} | {value} |\n" for what, value in self.rows
        )
        document = {
            "rows": [list(row) for row in self.rows],
            "measured": self.measured,
            "failed": self.failed,
            "results": self.results,
        }
        for name, text in (
            ("gpu.md", "\n".join([table, *self.tables])),
            ("gpu.json", json.dumps(document, separators=(",", ":"), default=str)),
        ):
            partial = self.out / f".{name}"
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.out / name)

    def smoke(self, name: str, **options: Any) -> tuple[dict[str, Any], float]:
        """(result, seconds) of one smoke run on this machine; the result is recorded.

        options: of the request, and nproc: if not all GPUs; as_hosts: this machine as this many
        hosts; more: further keys of the plan.
        """
        nproc, more, hosts = (
            options.pop("nproc", self.nproc),
            options.pop("more", {}),
            options.pop("as_hosts", self.nproc if self.shared else None),
        )
        options["environment"] = {**QUIET, **options.get("environment", {})}
        gpus = (
            []
            if self.backend == "gloo"
            else ["0"]
            if self.shared
            else [str(gpu) for gpu in range(nproc)]
        )
        each = (1 if self.shared else nproc // hosts) if hosts else nproc
        here = (
            several_hosts(os.uname().nodename, hosts, gpus, each, None)
            if hosts
            else one_host(os.uname().nodename, nproc, None)
        )
        request = planning.Request(
            backend=self.backend,
            python=self.python,
            total_timeout_s=options.pop("total_timeout_s", 120.0),
            **options,
        )
        plans = planning.plan_group(here.request(request), here.members, "127.0.0.1", free_port())
        nodes = [
            planning.NodePlan(node.host, node.ranks, {**node.document, **more}) for node in plans
        ]
        began = time.monotonic()
        streams = run_hosts(nodes, lambda node: run_local(node, payload_bytes()))
        result = document_of(judge(streams, read_expectations()))
        seconds = time.monotonic() - began
        self.results[name] = result
        blamed = [
            (suspect["rank"], suspect["phase"], suspect["why"][:200])
            for suspect in result["suspects"]
        ]
        sys.stdout.write(f"  {name}: {result['verdict']} in {seconds:.1f} s; suspects {blamed}\n")
        return result, seconds

    def expect(self, name: str, holds: bool, what: str) -> None:
        """Records a result that is not as expected."""
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


def middle(values: list[float]) -> float:
    """The median, 0 of nothing."""
    return statistics.median(values) if values else 0.0


def remains() -> list[str]:
    """Command lines of payload processes that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                argv = (folder / "cmdline").read_bytes().split(b"\0")
                zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if (
                not zombie
                and any(word.endswith(b"unhang_smoke.pyz") for word in argv)
                and (b"rank" in argv or b"node" in argv)
            ):
                found.append(b" ".join(argv)[:120].decode("utf-8", "replace"))
    return found
