"""What only a machine with GPUs can show: cost of the collector there, the whole audit play on it, and facts that agree with nvidia-smi.

    make collector && python3 tests/bench/gpu_node.py --out FOLDER

Writes into FOLDER: collector.md (bench a), facts.json and nvidia-smi-q.xml (the same GPUs seen by both), busy.json (facts while a NCCL job runs, where torch
is installed), run/ (the folder of `unhang audit`), audit.txt (what it printed). The exit code is 1 when the facts and nvidia-smi disagree or a step failed.
Changes nothing on the cards. NVLink multicast stays off in the NCCL job (NCCL_NVLS_ENABLE=0), since a shared host may not survive it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STEP_LIMIT_S = 240
# Ranks meet, reduce once (so that libnccl is mapped and the GPUs are held), say so, and wait until their standard input ends.
JOB = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
tensor = torch.ones(1 << 20, device="cuda:" + os.environ["LOCAL_RANK"])
dist.all_reduce(tensor)
torch.cuda.synchronize()
open(os.path.join(sys.argv[1], "ready" + os.environ["RANK"]), "w").close()
while not os.path.exists(os.path.join(sys.argv[1], "stop")):
    import time; time.sleep(0.1)
dist.destroy_process_group()
"""


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(words, output, **options):
    """Exit code of a step; what it prints goes to the file `output`, and its end to our own output."""
    with open(output, "wb") as sink:
        done = subprocess.run(words, stdout=sink, stderr=subprocess.PIPE, timeout=STEP_LIMIT_S, stdin=subprocess.DEVNULL, check=False, **options)
    for line in done.stderr.decode("utf-8", "replace").splitlines()[-20:]:
        say(f"    {line}")
    say(f"exit {done.returncode}: {' '.join(map(str, words))}")
    return done.returncode


def collect_while_busy(pyz, out):
    """Exit code of a collection made while one NCCL rank runs on each GPU; None where there is no torch or fewer than two GPUs."""
    asked = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], capture_output=True, text=True, check=False)
    count = int(asked.stdout.strip() or 0) if asked.returncode == 0 else 0
    if count < 2:
        return None
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "job.py")
        script.write_text(JOB, encoding="utf-8")
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", str(script), folder]
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, "NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN"})
        try:
            limit = time.monotonic() + 120
            while len(list(Path(folder).glob("ready*"))) < count:
                if job.poll() is not None or time.monotonic() > limit:
                    say("the NCCL job did not start")
                    return 1
                time.sleep(0.2)
            return run([sys.executable, pyz], out / "busy.json")
        finally:
            Path(folder, "stop").touch()
            try:
                job.wait(60)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pyz", default=str(ROOT / "dist" / "unhang-collect.pyz"))
    parser.add_argument("--out", default=str(ROOT / ".bench" / "gpu"))
    parser.add_argument("--rounds", default="7")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    subprocess.run(["nvidia-smi", "-L"], check=False)
    if run([sys.executable, str(HERE / "bench_collector.py"), args.pyz, "--rounds", args.rounds], out / "collector.md"):
        failed.append("collector bench")
    say((out / "collector.md").read_text(encoding="utf-8"))
    if run([sys.executable, args.pyz], out / "facts.json") or run(["nvidia-smi", "-q", "-x"], out / "nvidia-smi-q.xml"):
        failed.append("facts and nvidia-smi")
    elif run([sys.executable, str(HERE / "agreement.py"), str(out / "facts.json"), str(out / "nvidia-smi-q.xml")], out / "agreement.txt"):
        failed.append("agreement with nvidia-smi")
    say((out / "agreement.txt").read_text(encoding="utf-8"))
    if collect_while_busy(args.pyz, out):
        failed.append("facts of a busy node")
    path = os.pathsep.join(filter(None, [str(ROOT / "tools"), str(ROOT / "module_utils"), os.environ.get("PYTHONPATH")]))
    audit = [sys.executable, "-m", "unhang", "audit", "--inventory", str(ROOT / "inventory" / "local"), "--out", str(out / "runs")]
    if run(audit, out / "audit.txt", env={**os.environ, "PYTHONPATH": path}, cwd=ROOT) == 2:
        failed.append("audit")
    say((out / "audit.txt").read_text(encoding="utf-8"))
    say("failed: " + ", ".join(failed) if failed else "all steps done")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
