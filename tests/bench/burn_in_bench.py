"""The burn-in on real GPUs beside a plain cuBLAS loop, its drill, its end by SIGTERM, and what the quick check costs: at most seven minutes on 1 to 8 GPUs.

    python3 tests/bench/burn_in_bench.py --out FOLDER [--python PATH] [--quick dist/unhang-quick.pyz] [--budget-s 420] [--burn-s 300]

Needs torch and GPUs, and nothing else: not this project's packages either. Writes FOLDER/burn-in.md and FOLDER/burn-in.json (the same as data, with all events
of the burn-ins) after each step; what goes wrong in one step costs no other. The exit code is 1 when something was not as it should be. NVLink multicast stays
off (NCCL_NVLS_ENABLE=0): a shared host may not survive it. `--device cpu --burn-s 10` tries the script itself without GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PAYLOAD = ROOT / "roles" / "smoke_test" / "files" / "unhang_burn_in.py"
QUIET = {"NCCL_NVLS_ENABLE": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONWARNINGS": "ignore"}
PLAIN_S, SETTLE_S = 12.0, 3.0  # how long the plain loop runs, and from when on it is measured
TOLD_S, ENDED_S = 60.0, 10.0
AIM = 0.95
STAYS = ("persistence_mode", "compute_mode", "power_limit_mw", "ecc")
# One process for each GPU, torch.matmul of two random bfloat16 matrices on and on; {gpu, uuid, tflop_s, began, ended} at the end.
PLAIN = """
import json, sys, time, torch
gpu, seconds, settle, cpu = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "cpu"
device, size = (torch.device("cpu"), 64) if cpu else (torch.device("cuda", gpu), 8192)
wait = (lambda: None) if cpu else torch.cuda.synchronize
if cpu:
    torch.set_num_threads(1)
else:
    torch.cuda.set_device(device)
left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
out = torch.empty_like(left)
wait()
start = time.monotonic()
began, count = None, 0
while time.monotonic() < start + seconds:
    if began is None and time.monotonic() > start + settle:
        began, count = time.monotonic(), 0
    for _ in range(16):
        torch.matmul(left, right, out=out)
    wait()
    count += 16
ended = time.monotonic()
uuid = None if cpu else "GPU-%s" % torch.cuda.get_device_properties(device).uuid
print(json.dumps({"gpu": gpu, "uuid": uuid, "tflop_s": 2.0 * size**3 * count / (ended - began) / 1e12, "began": began, "ended": ended}))
"""


class Report:
    """rows: of the table; measured: the same as data; failed: what was not as it should be. until: when the budget is spent."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out = given, Path(given.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.until = time.monotonic() + given.budget_s
        self.rows: list[tuple[str, str]] = []
        self.measured: dict[str, Any] = {}
        self.failed: list[str] = []

    def left_s(self) -> float:
        """Of the budget."""
        return self.until - time.monotonic()

    def say(self, what: str, value: str) -> None:
        """One row, shown and written at once."""
        self.rows.append((what, value))
        sys.stdout.write(f"{what}: {value}\n")
        sys.stdout.flush()
        self.write()

    def expect(self, holds: bool, what: str) -> None:
        """Notes what is not as it should be."""
        if not holds:
            self.failed.append(what)
            self.say("NOT AS IT SHOULD BE", what)

    def write(self) -> None:
        """Both files, each whole."""
        table = "| what | measured |\n| --- | --- |\n" + "".join(f"| {what} | {value} |\n" for what, value in self.rows)
        document = {"rows": [list(row) for row in self.rows], "measured": self.measured, "failed": self.failed}
        for name, text in (("burn-in.md", table), ("burn-in.json", json.dumps(document, separators=(",", ":"), default=str))):
            partial = self.out / f".{name}"
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.out / name)


class Sensors:
    """The payload's own readings of NVML beside a plain loop. lines: [{at, gpus: [reading]}]; uuids: in their order."""

    def __init__(self, python: str) -> None:
        argv = [python, str(PAYLOAD), "sensors", "--period", "0.25"]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.uuids: list[str] = []
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self) -> None:
        """Until the child ends."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line = json.loads(text)
            if "settings" in line:
                self.uuids = [row["uuid"] for row in line["settings"]]
            else:
                self.lines.append(line)

    def end(self) -> None:
        """Ends the child."""
        self.process.kill()
        self.process.wait()

    def mean(self, uuid: str | None, name: str, began: float, ended: float) -> float | None:
        """Of one GPU's readings in that time; None where there are none."""
        if uuid not in self.uuids:
            return None
        place = self.uuids.index(uuid)
        found = [line["gpus"][place][name] for line in self.lines if began <= line["at"] <= ended and line["gpus"][place][name] is not None]
        return statistics.mean(found) if found else None


def environment() -> dict[str, str]:
    """This process's, with NVLink multicast off."""
    return {**os.environ, **QUIET}


def gpu_count(report: Report) -> int:
    """GPUs that torch sees, 2 workers on the CPU."""
    if report.given.device == "cpu":
        return 2
    shown = "import torch; print(torch.cuda.device_count(), torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0))"
    asked = subprocess.run([report.given.python, "-c", shown], capture_output=True, text=True, env=environment(), timeout=120)
    fields = asked.stdout.split(maxsplit=3)
    if asked.returncode or not fields or fields[0] == "0":
        raise RuntimeError(f"expected torch with GPUs in {report.given.python}, found: {(asked.stdout + asked.stderr).strip()[-300:]}; name one with --python")
    report.say("machine", f"{fields[0]} × {fields[3].strip()}, torch {fields[1]}, CUDA {fields[2]}")
    return int(fields[0])


def step_quick(report: Report) -> None:
    """CPU and wall time of the quick check beside `nvidia-smi -q`."""
    quick = Path(report.given.quick)
    commands = {"nvidia-smi -q": ["nvidia-smi", "-q"]}
    if quick.exists():
        plain = [report.given.python, "-I", "-S", str(quick)]
        commands = {"python3 -I -S unhang-quick.pyz": plain, "python3 unhang-quick.pyz": [report.given.python, str(quick)], **commands}
    else:
        report.say("quick check", f"not measured: {quick} is not there (make collector)")
    for name, argv in commands.items():
        costs = [cost_of(argv) for _ in range(5)]
        if None in costs:
            report.say(name, "not there")
            continue
        wall, cpu = (statistics.median(cost[place] for cost in costs if cost) for place in (0, 1))
        codes = sorted({cost[2] for cost in costs if cost})
        report.measured.setdefault("quick", {})[name] = {"wall_ms": wall, "cpu_ms": cpu, "codes": codes, "all": costs}
        report.say(f"{name}, median of 5", f"{wall:.0f} ms wall, {cpu:.0f} ms CPU, exit code {codes}")


def cost_of(argv: list[str]) -> tuple[float, float, int] | None:
    """(wall, CPU of it and its children in ms, exit code); None where there is no such program."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    except OSError:
        return None
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, done.returncode


def step_plain(report: Report, name: str, gpus: int) -> None:
    """The plain loop on all GPUs at once: TFLOP/s and power of each."""
    sensors = Sensors(report.given.python)
    argv = [report.given.python, "-c", PLAIN]
    seconds = ["6", "1"] if report.given.device == "cpu" else [str(PLAIN_S), str(SETTLE_S)]
    loops = [
        subprocess.Popen([*argv, str(gpu), *seconds, report.given.device], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        for gpu in range(gpus)
    ]
    try:
        answers = [loop.communicate(timeout=180) for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
        sensors.end()
    rows = []
    for loop, (output, errors) in zip(loops, answers, strict=True):
        if loop.returncode:
            raise RuntimeError(f"the plain loop ended with {loop.returncode}: {errors.strip()[-300:]}")
        row = json.loads(output)
        for reading in ("power_w", "sm_mhz", "temperature_c"):
            row[reading] = sensors.mean(row["uuid"], reading, row["began"], row["ended"])
        rows.append(row)
    report.measured[name] = rows
    report.say(f"plain torch.matmul, bfloat16, 8192 x 8192, {name}", "; ".join(f"GPU {row['gpu']}: {shown_load(row)}" for row in rows))


def shown_load(row: dict[str, Any]) -> str:
    """TFLOP/s, and the values of the sensors."""
    more = [f"{row[name]:.0f} {unit}" for name, unit in (("power_w", "W"), ("sm_mhz", "MHz"), ("temperature_c", "°C")) if row.get(name) is not None]
    return ", ".join([f"{row['tflop_s']:.1f} TFLOP/s" if row["tflop_s"] > 1 else f"{row['tflop_s']:.2g} TFLOP/s", *more])


def burn(report: Report, name: str, plan: dict[str, Any], end_after_s: float | None, limit_s: float) -> tuple[list[dict[str, Any]], float | None, int]:
    """(events, seconds from SIGTERM to the end or None, exit code). end_after_s: of full load, until SIGTERM comes."""
    plan = {"device": report.given.device, "python": report.given.python, **plan}
    argv = [report.given.python, str(PAYLOAD), "node", "--plan", json.dumps(plan)]
    events: list[dict[str, Any]] = []
    report.measured[name] = {"plan": plan, "events": events}
    agent = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment())
    reader = threading.Thread(target=hear, args=(agent, events), daemon=True)
    reader.start()
    asked, took, until = None, None, time.monotonic() + limit_s
    ready_at = None
    while agent.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
        now = time.monotonic()
        if ready_at is None and sum(event["e"] == "ready" for event in list(events)) >= plan["nproc"]:
            ready_at = now
        if end_after_s is not None and asked is None and ready_at is not None and now > ready_at + end_after_s:
            agent.send_signal(signal.SIGTERM)
            asked = now
    if agent.poll() is None:
        agent.kill()
        report.expect(False, f"{name}: expected an end within {limit_s:.0f} s, found none; it was killed")
    agent.wait()
    took = None if asked is None else time.monotonic() - asked
    reader.join(10)
    return events, took, agent.returncode


def hear(agent: subprocess.Popen[str], events: list[dict[str, Any]]) -> None:
    """Events until the agent ends."""
    assert agent.stdout is not None
    for line in agent.stdout:
        events.append(json.loads(line))


def last(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The last event of a kind. Raises RuntimeError when there is none."""
    for event in reversed(events):
        if event["e"] == kind:
            return event
    raise RuntimeError(f"expected an event {kind}, found {[event['e'] for event in events][-10:]}: {json.dumps(events[-3:])[:600]}")


def step_drill(report: Report, gpus: int) -> None:
    """One flipped bit on the last GPU: found, with GPU, type and address."""
    where = "bfloat16"
    began = time.monotonic()
    plan = {"duration_s": 6.0, "round_s": 3.0, "nproc": gpus, "drill": {"gpu": gpus - 1, "where": where}}
    events, _, code = burn(report, "drill", plan, None, TOLD_S + 60)
    end, wrong = last(events, "burn_end"), [event for event in events if event["e"] == "wrong"]
    report.say(
        "drill: one bit flipped in a result", f"{len(wrong)} found: {json.dumps(wrong)[:500]}; exit code {code}; {time.monotonic() - began:.0f} s in all"
    )
    right = (
        len(wrong) == 1 and wrong[0]["gpu"] == gpus - 1 and wrong[0]["what"] == where and wrong[0]["elements"] == 1 and bool(wrong[0]["places"][0]["address"])
    )
    report.expect(right, f"the drill: expected one wrong element of {where} on GPU {gpus - 1}")
    report.expect(end["trouble"] is None, f"the drill: expected no trouble, found {end['trouble']}")
    types = [(event["gpu"], event["type"], event["status"], event.get("why") or event.get("wrong")) for event in events if event["e"] == "type"]
    report.say("types", ", ".join(f"{name} {status}" + (f" ({why})" if why else "") for gpu, name, status, why in types if gpu == 0))
    report.expect(all(status == "ready" for _, _, status, _ in types), f"every type ready on every GPU, found {[row for row in types if row[2] != 'ready']}")


def step_burn(report: Report, gpus: int) -> None:
    """Five minutes at full load, then SIGTERM; power and TFLOP/s of each GPU; what the GPUs were before and are after."""
    reserve = 10.0 if report.given.device == "cpu" else PLAIN_S + 10.0
    load_s = min(report.given.burn_s, max(5.0, report.left_s() - reserve - 22.0))
    plan = {"duration_s": load_s + 600.0, "round_s": 30.0 if report.given.device == "cuda" else 1.0, "nproc": gpus}
    events, took, code = burn(report, "burn-in", plan, load_s, load_s + 240.0)
    end = last(events, "burn_end")
    wrong = [event for event in events if event["e"] == "wrong"]
    report.say(
        "burn-in", f"{load_s:.0f} s at full load, {end['seconds']:.0f} s in all, {len(wrong)} wrong results, exit code {code}, trouble: {end['trouble']}"
    )
    report.expect(not wrong and end["trouble"] is None, f"no wrong result and no trouble, found {json.dumps(wrong)[:300]} {end['trouble']}")
    report.say("SIGTERM", f"ended after {took:.1f} s" if took is not None else "was not sent: it ended by itself")
    report.expect(took is not None and took < ENDED_S, f"an end within {ENDED_S:.0f} s of SIGTERM, found {took}")
    for worker in end["workers"]:
        rates = {name: row["work"] / row["seconds"] for name, row in worker["done"].items() if row["seconds"]}
        shown = [f"{name} {rate / 1e12:.3g} T{'B' if name in ('memory', 'collective') else 'FLOP'}/s" for name, rate in rates.items()]
        report.say(f"GPU {worker['gpu']}", f"{', '.join(shown)}; mean power {end['power_w'].get(worker['uuid'])} W")
    for row in end["readings"]:
        power, clock = row["power_w"] or {}, row["sm_mhz"] or {}
        held = {reason: count for reason, count in row["reasons"].items() if count * 20 > row["samples"]}
        report.say(f"{row['uuid'][:12]} in {row['phase']}", f"{power.get('mean')} W, {clock.get('mean')} MHz, {row['samples']} readings, held back by {held}")
    compare_settings(report, end)


def compare_settings(report: Report, end: dict[str, Any]) -> None:
    """The GPUs are as they were."""
    different = []
    for one, other in zip(end["before"]["settings"], end["after"]["settings"], strict=False):
        different += [f"{one['uuid']} {name}: {one[name]} -> {other[name]}" for name in STAYS if one[name] != other[name]]
        different += [f"{one['uuid']}: processes {other['processes']}"] if other["processes"] else []
        used = [row["used_bytes"] or 0 for row in (one, other)]
        different += [f"{one['uuid']}: {used[1] >> 20} MiB in use, {used[0] >> 20} before"] if used[1] > used[0] + 2**28 else []
    same = len(end["before"]["settings"]) == len(end["after"]["settings"]) and not different
    report.say("state of the GPUs afterwards", "as before" if same else f"{'; '.join(different)} {end['after']['problem']}")
    report.expect(same, "the GPUs as they were")
    for look in end["counters"]:
        report.say(f"counters {look['when']}", f"{look['read']} read, {len(look['moved'])} moved, {look['problem'] or 'no problem'}")


def step_ratios(report: Report) -> None:
    """Power and TFLOP/s of the burn-in over those of the plain loops before and after it."""
    plains = [row for name in ("before", "after") for row in report.measured.get(name) or []]
    end = last(report.measured["burn-in"]["events"], "burn_end")
    if not plains:
        report.say("ratios", "no plain loop was measured")
        return
    plain_rate = statistics.mean(row["tflop_s"] for row in plains)
    rates = [worker["done"]["bfloat16"]["work"] / worker["done"]["bfloat16"]["seconds"] / 1e12 for worker in end["workers"]]
    ratios = {"TFLOP/s in bfloat16": statistics.mean(rates) / plain_rate}
    powers = [row["power_w"] for row in plains if row["power_w"]]
    if powers and end["power_w"]:
        ratios["mean power over all phases"] = statistics.mean(end["power_w"].values()) / statistics.mean(powers)
        alone = [row["power_w"]["mean"] for row in end["readings"] if row["phase"] == "bfloat16" and row["power_w"]]
        ratios["power in bfloat16"] = statistics.mean(alone) / statistics.mean(powers) if alone else 0.0
    report.measured["ratios"] = ratios
    for name, ratio in ratios.items():
        report.say(f"burn-in over plain loop, {name}", f"**{ratio:.3f}** (aim {AIM})")
        report.expect(report.given.device == "cpu" or ratio >= AIM, f"{name}: a ratio of at least {AIM}, found {ratio:.3f}")


def go(report: Report, name: str, needs_s: float, step: Callable[[], None]) -> None:
    """One step; what goes wrong in it costs no other step."""
    if report.left_s() < needs_s:
        report.say(name, f"passed over: it takes {needs_s:.0f} s, and {max(0.0, report.left_s()):.0f} s are left")
        return
    began = time.monotonic()
    try:
        step()
    except Exception as problem:
        traceback.print_exc(file=sys.stdout)
        report.expect(False, f"{name}: expected a step that ends, found {type(problem).__name__}: {problem}")
    report.measured.setdefault("step seconds", {})[name] = round(time.monotonic() - began, 1)
    report.write()


def main() -> int:
    """0 when every step was as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / ".bench" / "burn-in"))
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--quick", default=str(ROOT / "dist" / "unhang-quick.pyz"), help="the quick check's file")
    parser.add_argument("--budget-s", type=float, default=420.0)
    parser.add_argument("--burn-s", type=float, default=300.0, help="full load")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    report = Report(parser.parse_args())
    try:
        gpus = gpu_count(report)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
        report.expect(False, str(problem))
        return 1
    cpu = report.given.device == "cpu"
    go(report, "quick", 5, lambda: step_quick(report))
    go(report, "plain before", 5 if cpu else PLAIN_S + 10, lambda: step_plain(report, "before", gpus))
    go(report, "drill", 30, lambda: step_drill(report, gpus))
    go(report, "burn-in", 30 if cpu else 90, lambda: step_burn(report, gpus))
    go(report, "plain after", 5 if cpu else PLAIN_S + 10, lambda: step_plain(report, "after", gpus))
    go(report, "ratios", -1e9, lambda: step_ratios(report))
    report.say(
        "all steps", f"{report.given.budget_s - report.left_s():.0f} s; " + ("failed: " + "; ".join(report.failed) if report.failed else "as they should be")
    )
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
