"""Steps of gpu_bench.py about the node itself: facts, the collector's cost beside nvidia-smi,
agreement with nvidia-smi, and the whole audit."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from job_steps import running_job
from smoke_bench import ROOT, Bench

HERE = Path(__file__).resolve().parent
STEP_LIMIT_S = 120
ROUNDS = 5


def printed(argv: list[str], **options: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a program."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=STEP_LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


def step_facts(bench: Bench) -> None:
    """The collector's facts of this node; it is built first if it is missing."""
    if not Path(bench.pyz).is_file():
        Path(bench.pyz).parent.mkdir(parents=True, exist_ok=True)
        code, _, errors = printed(
            [sys.executable, str(ROOT / "tools" / "collector" / "build.py"), bench.pyz]
        )
        bench.expect(
            "collector",
            code == 0,
            f"the one-file collector to be built, found {errors.strip()[-300:]}",
        )
    code, output, errors = printed([sys.executable, "-I", "-S", bench.pyz])
    bench.expect(
        "facts", code == 0, f"facts of this node, found exit code {code}: {errors.strip()[-300:]}"
    )
    bench.measured["facts"] = facts = json.loads(output or "{}")
    sections = facts.get("sections", {})
    unread = [
        f"{name}: {section['probe']['error']}"
        for name, section in sections.items()
        if section["probe"]["status"] in ("timeout", "error", "denied")
    ]
    bench.say(
        "facts of the node",
        f"{len(output)} bytes, {len(sections)} sections; not read:"
        f" {'; '.join(unread)[:300] or 'none'}",
    )


def step_collector(bench: Bench) -> None:
    """Bench (a): the collector beside nvidia-smi -q and topo -m, in turn."""
    code, output, errors = printed(
        [sys.executable, str(HERE / "bench_collector.py"), bench.pyz, "--rounds", str(ROUNDS)]
    )
    bench.tables.append(output)
    sys.stdout.write(output)
    bench.expect(
        "collector bench",
        code == 0,
        f"measurements of the collector, found {errors.strip()[-300:]}",
    )


def step_agreement(bench: Bench) -> None:
    """The facts compared with the output of nvidia-smi for the same GPUs."""
    _, xml, _ = printed(["nvidia-smi", "-q", "-x"])
    (bench.folder / "nvidia-smi-q.xml").write_text(xml, encoding="utf-8")
    (bench.folder / "facts.json").write_text(
        json.dumps(bench.measured.get("facts", {})), encoding="utf-8"
    )
    code, output, errors = printed(
        [
            sys.executable,
            str(HERE / "agreement.py"),
            str(bench.folder / "facts.json"),
            str(bench.folder / "nvidia-smi-q.xml"),
        ]
    )
    bench.measured["nvidia-smi -q -x"] = xml
    bench.say(
        "facts beside nvidia-smi -q -x",
        (output + errors).strip().splitlines()[-1][:300] if output or errors else "nothing said",
    )
    bench.expect("agreement with nvidia-smi", code == 0, output.strip()[-400:])


def step_busy(bench: Bench) -> None:
    """Facts while a job runs: processes that hold the GPUs, and the mapped libnccl."""
    with running_job(bench):
        code, output, errors = printed([sys.executable, "-I", "-S", bench.pyz])
    bench.measured["facts of a busy node"] = json.loads(output or "{}")
    bench.expect(
        "facts of a busy node", code == 0, f"facts beside a job, found {errors.strip()[-300:]}"
    )
    bench.say("facts of a busy node", f"{len(output)} bytes")


def step_audit(bench: Bench) -> None:
    """The whole audit play on this machine, where Ansible is installed."""
    if importlib.util.find_spec("ansible") is None:
        bench.say("audit of this machine", "Ansible is not installed here")
        return
    path = os.pathsep.join(
        filter(
            None, [str(ROOT / "tools"), str(ROOT / "module_utils"), os.environ.get("PYTHONPATH")]
        )
    )
    argv = [
        sys.executable,
        "-m",
        "unhang",
        "audit",
        "--inventory",
        str(ROOT / "inventory" / "local"),
        "--out",
        str(bench.folder / "runs"),
    ]
    code, output, errors = printed(argv, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT)
    bench.measured["audit"] = output
    bench.say("audit of this machine", f"exit code {code}")
    bench.expect(
        "audit", code in (0, 1), f"an audit, found exit code {code}: {errors.strip()[-300:]}"
    )
