"""The smoke test on real GPUs: its time, its bandwidth beside nccl-tests', and whether planned faults are explained. Under six minutes on four GPUs.

    python3 tests/bench/gpu_smoke.py --out FOLDER [--python PATH] [--nproc N] [--nccl-tests FOLDER] [--other-nccl FILE] [--only smoke,matrix,...]

Needs torch and GPUs, and of this project's packages none but the standard library. Writes FOLDER/gpu_smoke.md (rows for docs/benchmarks.md) and each result as
JSON. The exit code is 1 when something was not explained as it should be. NVLink multicast stays off throughout (NCCL_NVLS_ENABLE=0): a shared host may not
survive it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils")]

from unhang.smoke import plan as planning  # noqa: E402
from unhang.smoke.local import free_port, payload_path, run_local  # noqa: E402
from unhang.smoke.result import judge  # noqa: E402

QUIET = {"NCCL_NVLS_ENABLE": "0"}
GIB = 1 << 30
PROGRAMS = {"all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "broadcast": "broadcast_perf"}
PLACES = ("/opt/nccl-tests/build", "/usr/local/nccl-tests/build", "/opt/nccl-tests", "/usr/local/bin", "/usr/bin", "/root/nccl-tests/build")
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)")


@dataclass
class Bench:
    """What the steps share. rows: lines of the table; failed: what was not as it should be."""

    out: Path
    python: str
    nproc: int
    nccl_tests: Path | None
    other_nccl: str | None
    rows: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def say(self, what: str, value: str) -> None:
        """One row of the table, shown at once."""
        self.rows.append(f"| {what} | {value} |")
        sys.stdout.write(f"{what}: {value}\n")
        sys.stdout.flush()

    def smoke(self, name: str, **options) -> tuple[dict, float]:
        """(result, seconds) of one smoke run here; its result goes to a file."""
        nproc = options.pop("nproc", self.nproc)
        options["environment"] = {**QUIET, **options.get("environment", {})}
        request = planning.Request(backend="nccl", python=self.python, total_timeout_s=150.0, **options)
        [node] = planning.plan_group(request, [planning.Member(os.uname().nodename, nproc)], "127.0.0.1", free_port())
        began = time.monotonic()
        result = judge([run_local(node, payload_path(ROOT), [sys.executable])])
        seconds = time.monotonic() - began
        (self.out / f"smoke-{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        blamed = [(suspect["rank"], suspect["phase"], suspect["why"][:200]) for suspect in result["suspects"]]
        sys.stdout.write(f"  {name}: {result['verdict']} in {seconds:.1f} s; suspects {blamed}\n")
        return result, seconds

    def expect(self, name: str, holds: bool, what: str) -> None:
        """Notes what is not as it should be."""
        if not holds:
            self.failed.append(f"{name}: expected {what}")


def step_smoke(bench: Bench) -> None:
    """The default smoke: how long, and where the time goes."""
    result, seconds = bench.smoke("default")
    bench.expect("default", result["verdict"] == "pass", "pass")
    phases = ", ".join(f"{row['name']} {row['duration_s']:.1f}" for row in sorted(result["phases"], key=lambda row: -row["duration_s"])[:8])
    bench.say(f"default smoke, {bench.nproc} GPUs", f"{result['verdict']}, {seconds:.1f} s ({phases})")
    ways = sorted({way + (" over NVLink" if row.get("nvlink") else "") for row in result["transports"] for way in row["via"]})
    bench.say("transports", ", ".join(ways) or "none told")
    for row in result["collectives"]:
        if row["measures"] == "bandwidth" and row["size_bytes"] >= GIB // 2:
            bench.say(f"default smoke: {row['op']} at {row['size_bytes']} B", f"{row['busbw_gb_s']} GB/s busbw")


def step_matrix(bench: Bench) -> None:
    """With the copies between all pairs."""
    phases = tuple(name for name in planning.PHASES if name != "build")
    result, seconds = bench.smoke("matrix", phases=phases)
    bench.expect("matrix", result["verdict"] == "pass" and bool(result["p2p"]), "pass and a row per pair")
    rates = [row["gb_s"] for row in result["p2p"]] or [0.0]
    took = next((row["duration_s"] for row in result["phases"] if row["name"] == "p2p_matrix"), 0.0)
    pairs = f"{len(result['p2p'])} pairs, {min(rates)} to {max(rates)} GB/s, matrix {took:.1f} s"
    bench.say(f"smoke with P2P matrix, {bench.nproc} GPUs", f"{result['verdict']}, {seconds:.1f} s; {pairs}")


def step_bandwidth(bench: Bench) -> None:
    """1 GiB beside nccl-tests, in turns, medians of three."""
    ours: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    theirs: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    library = None
    for turn in range(3):
        result, _ = bench.smoke(f"bandwidth-{turn}", phases=("bandwidth",), bandwidth_bytes=(GIB,), bandwidth_ops=tuple(PROGRAMS))
        for row in result["collectives"]:
            if row["op"] in ours:
                ours[row["op"]].append(row["busbw_gb_s"])
        library = next((one["path"] for host in result["hosts"] for one in host["nccl"]), library)
        for name in PROGRAMS if bench.nccl_tests else ():
            theirs[name] += nccl_tests_busbw(bench, name, library)
    for name in PROGRAMS:
        mine = statistics.median(ours[name] or [0.0])
        other = statistics.median(theirs[name]) if theirs[name] else None
        beside = f"nccl-tests {other:.1f}, ratio {mine / other:.3f}" if other else "nccl-tests is not installed here"
        bench.say(f"{name} at 1 GiB, {bench.nproc} GPUs, busbw GB/s", f"{mine:.1f} ({', '.join(f'{one:.1f}' for one in ours[name])}); {beside}")
        bench.expect(name, mine > 0, "a bandwidth")


def nccl_tests_busbw(bench: Bench, name: str, library: str | None) -> list[float]:
    """[busbw] out-of-place of one run of nccl-tests under torch's own libnccl; [] when it does not run."""
    words = [str(bench.nccl_tests / PROGRAMS[name]), "-b", "1G", "-e", "1G", "-g", str(bench.nproc), "-w", "5", "-n", "20", "-c", "0"]
    paths = [str(Path(library).parent)] if library else []
    environment = {**os.environ, **QUIET, "LD_LIBRARY_PATH": os.pathsep.join([*paths, os.environ.get("LD_LIBRARY_PATH", "")])}
    try:
        said = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as problem:
        sys.stdout.write(f"  nccl-tests: {problem}\n")
        return []
    return [float(found[4]) for line in said.splitlines() if (found := ROW.match(line)) and int(found[1]) == GIB]


def step_absent(bench: Bench) -> None:
    """A rank that never enters a collective."""
    result, _ = bench.smoke("absent", phases=("all_reduce",), drills=({"rank": 1, "fault": "absent", "phase": "all_reduce"},))
    ranks = {suspect["rank"] for suspect in result["suspects"]}
    waited = max((row.get("waited_s") or 0 for row in result["evidence"]), default=0)
    recorded = sum("last_enqueued" in (row.get("flight_recorder") or {}) for row in result["evidence"])
    stacks = sum(bool(row.get("stack")) for row in result["evidence"])
    bench.expect("absent", ranks == {1}, f"rank 1 named, found {ranks}")
    bench.say("rank 1 never enters all_reduce", f"named: {sorted(ranks, key=str)}, told after {waited:.1f} s, {stacks} stacks, {recorded} flight recordings")


def step_wrong_device(bench: Bench) -> None:
    """A rank on another's GPU."""
    result, seconds = bench.smoke("wrong-device", phases=("all_reduce",), drills=({"rank": 1, "fault": "wrong_device"},))
    named = [suspect for suspect in result["suspects"] if suspect["rank"] == 1 and suspect["phase"] == "binding"]
    bench.expect("wrong device", bool(named), "rank 1 named in binding")
    bench.say("rank 1 on GPU 0", f"{named[0]['why'] if named else 'not named'}; {seconds:.1f} s")


def step_two_nccl(bench: Bench) -> None:
    """Two different libnccl: another release where one is at hand, else a copy with another build id."""
    other = bench.other_nccl or find_other_nccl(bench)
    if not other:
        bench.say("two different libnccl", "no libnccl could be found to make a second one")
        return
    result, seconds = bench.smoke("two-nccl", phases=("all_reduce",), rank_environment={"1": {"LD_PRELOAD": other}})
    named = [suspect for suspect in result["suspects"] if suspect["phase"] == "consistency" and suspect["why"].startswith("NCCL is")]
    ranks = sorted(suspect["rank"] for suspect in named)
    bench.expect("two libnccl", ranks == [1] if bench.nproc > 2 else bool(ranks), f"rank 1 named in consistency, found {ranks}")
    bench.say("rank 1 has another libnccl", f"{named[0]['why'][:160] if named else 'not named'}; {seconds:.1f} s")


def find_other_nccl(bench: Bench) -> str | None:
    """A second libnccl: the system's, or a copy of torch's with its build id changed."""
    asked = "import torch, glob, os; d = os.path.dirname(os.path.dirname(torch.__file__)); print(*glob.glob(d + '/nvidia/nccl/lib/libnccl.so.2'))"
    torchs = subprocess.run([bench.python, "-c", asked], capture_output=True, text=True, check=False).stdout.split()
    for place in ("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/local/lib/libnccl.so.2", "/usr/lib64/libnccl.so.2"):
        if Path(place).exists() and place not in torchs:
            return place
    if not torchs:
        return None
    content = bytearray(Path(torchs[0]).read_bytes())
    at = content.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    if at < 0:
        return None
    content[at + 16] ^= 0xFF
    folder = tempfile.mkdtemp(prefix="other-nccl-")
    copy = Path(folder, "libnccl.so.2")
    copy.write_bytes(content)
    return str(copy)


def step_interface(bench: Bench) -> None:
    """NCCL_SOCKET_IFNAME names nothing."""
    result, seconds = bench.smoke("interface", phases=("all_reduce",), environment={"NCCL_SOCKET_IFNAME": "nosuch0"})
    named = [suspect for suspect in result["suspects"] if "NCCL_SOCKET_IFNAME" in suspect["why"]]
    bench.expect("interface", bool(named), "NCCL_SOCKET_IFNAME named")
    bench.say("NCCL_SOCKET_IFNAME=nosuch0", f"{named[0]['why'] if named else 'not named'}; {seconds:.1f} s")


def step_hosts(bench: Bench) -> None:
    """Several hosts on one machine: NCCL takes the network between them."""
    half = max(1, bench.nproc // 2)
    hosts = {str(rank): {"NCCL_HOSTID": f"host{rank // half}"} for rank in range(bench.nproc)}
    phases = ("broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "storm", "overlap", "ddp", "fsdp", "bandwidth")
    options = {"max_bytes": 64 << 20, "bandwidth_bytes": (1 << 20, 64 << 20), "bandwidth_ops": ("all_reduce", "all_gather")}
    result, seconds = bench.smoke("hosts", phases=phases, rank_environment=hosts, **options)
    ways = sorted({way for row in result["transports"] for way in row["via"]})
    bench.expect("hosts", result["verdict"] == "pass" and any(way.startswith("NET") for way in ways), f"pass over NET, found {result['verdict']} over {ways}")
    large = [row for row in result["collectives"] if row["measures"] == "bandwidth" and row["size_bytes"] > GIB // 32]
    rates = ", ".join(f"{row['op']} {row['busbw_gb_s']} GB/s" for row in large)
    bench.say(f"{bench.nproc} GPUs as {bench.nproc // half} hosts (NCCL_HOSTID)", f"{result['verdict']}, {seconds:.1f} s, via {', '.join(ways)}; {rates}")


def step_killed(bench: Bench) -> None:
    """The launcher is killed: nothing stays on the GPUs."""
    program = (
        f"import sys; sys.path[:0] = {sys.path[:2]!r}\n"
        "from pathlib import Path\nfrom unhang.smoke import plan as p\nfrom unhang.smoke.local import *\n"
        f"r = p.Request(backend='nccl', python={bench.python!r}, environment={QUIET!r}, drills=({{'rank': 1, 'fault': 'absent', 'phase': 'all_reduce'}},))\n"
        f"[n] = p.plan_group(r, [p.Member('here', {bench.nproc})], '127.0.0.1', free_port())\n"
        "run_local(n, Path(sys.argv[1]), tell=lambda h, e: print(e['e'], e.get('phase'), flush=True))\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program, str(payload_path(ROOT))], stdout=subprocess.PIPE, text=True)
    for line in launcher.stdout:
        if line.strip() == "phase_begin all_reduce":
            break
    launcher.kill()
    launcher.wait()
    began = time.monotonic()
    while remains() and time.monotonic() - began < 20:
        time.sleep(0.1)
    left = remains()
    bench.expect("killed launcher", not left, f"no process left, found {left}")
    bench.say("launcher killed with SIGKILL in a collective", f"{len(left)} processes left after {time.monotonic() - began:.1f} s")


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


STEPS = {
    "smoke": step_smoke, "matrix": step_matrix, "bandwidth": step_bandwidth, "absent": step_absent, "wrong_device": step_wrong_device,
    "two_nccl": step_two_nccl, "interface": step_interface, "hosts": step_hosts, "killed": step_killed,
}  # fmt: skip


def find_nccl_tests(named: str | None) -> Path | None:
    """The folder of all_reduce_perf, or None."""
    on_path = shutil.which("all_reduce_perf")
    for place in [named, os.environ.get("NCCL_TESTS"), *([str(Path(on_path).parent)] if on_path else []), *PLACES]:
        if place and (Path(place) / "all_reduce_perf").is_file():
            return Path(place)
    return None


def main() -> int:
    """0 when every step was as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / ".bench" / "gpu"))
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--nproc", type=int, help="GPUs (default: all)")
    parser.add_argument("--nccl-tests", help="folder of all_reduce_perf")
    parser.add_argument("--other-nccl", help="another libnccl.so.2")
    parser.add_argument("--only", default=",".join(STEPS), help="steps with commas")
    given, _ = parser.parse_known_args()
    shown = "import torch; print(torch.cuda.device_count(), torch.__version__, torch.version.cuda)"
    asked = subprocess.run([given.python, "-c", shown], capture_output=True, text=True, check=False)
    if asked.returncode or not asked.stdout.split() or asked.stdout.split()[0] == "0":
        sys.stdout.write(f"expected torch with GPUs in {given.python}, found: {(asked.stdout + asked.stderr).strip()[-200:]}; name one with --python\n")
        return 1
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(out, given.python, given.nproc or int(asked.stdout.split()[0]), find_nccl_tests(given.nccl_tests), given.other_nccl)
    bench.say("machine", f"{bench.nproc} GPUs, torch {asked.stdout.split()[1]}, CUDA {asked.stdout.split()[2]}; nccl-tests at {bench.nccl_tests}")
    began = time.monotonic()
    for name in given.only.split(","):
        STEPS[name](bench)
    bench.say("all steps", f"{time.monotonic() - began:.0f} s; " + ("failed: " + "; ".join(bench.failed) if bench.failed else "all as they should be"))
    (out / "gpu_smoke.md").write_text("| what | measured |\n| --- | --- |\n" + "\n".join(bench.rows) + "\n", encoding="utf-8")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
