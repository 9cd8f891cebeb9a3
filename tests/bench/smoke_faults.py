"""Steps of gpu_bench.py that cause faults on purpose: each fault must be explained, with the right
rank, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from smoke_bench import QUIET, Bench, remains


def step_absent(bench: Bench) -> None:
    """A rank that never enters a collective: which rank is named, when, with which evidence."""
    result, seconds = bench.smoke(
        "absent",
        phases=("broadcast", "all_reduce"),
        drills=({"rank": 1, "fault": "absent", "phase": "all_reduce"},),
    )
    ranks = {suspect["rank"] for suspect in result["suspects"]}
    rows, nodes = result["evidence"], result["nodes"]
    waited = max((row.get("waited_s") or 0 for row in rows), default=0)
    recorded = sum("last_enqueued" in (row.get("flight_recorder") or {}) for row in rows)
    stacks = sum(bool(row.get("stack")) for row in rows)
    native = sum(
        any(word in (row.get("native_stack") or "").lower() for word in ("libcuda", "libnccl"))
        for row in rows
    )
    bench.expect("absent", ranks == {1}, f"rank 1 named, found {ranks}")
    bench.expect("absent", 0 < waited < 20, f"to be told within 20 s of the stall, found {waited}")
    evidence = (
        f"{stacks} stacks, {recorded} flight recordings, {native} of py-spy's with frames of the"
        " driver"
    )
    bench.say(
        "rank 1 never enters all_reduce",
        f"named: {sorted(ranks, key=str)}, told {waited:.1f} s after the stall, {evidence};"
        f" {seconds:.1f} s in all",
    )
    accused(bench, "absent", result)
    links = {name: count for node in nodes for name, count in (node.get("nvlink") or {}).items()}
    sent = [count for name, count in links.items() if "data sent" in name]
    bench.expect(
        "NVLink counters",
        bench.shared or bool(sent),
        "counters of data sent over NVLink that moved",
    )
    errors = {name: count for name, count in links.items() if "error" in name}
    moved = (
        f"{len(links)} moved, {len(sent)} of data sent, together {sum(sent) / 1024:.0f} MiB; errors"
        f" that rose: {errors or 'none'}"
    )
    bench.say(
        "NVLink counters in that evidence", f"{moved}; NVML: {[node.get('nvml') for node in nodes]}"
    )
    lines = [node.get("kernel_log") for node in nodes]
    nics = len([name for node in nodes for name in node.get("counters") or {}])
    log = (
        "may not be read"
        if lines == [None]
        else f"{sum(len(one or ()) for one in lines)} new lines"
    )
    bench.say("kernel log and NIC counters in that evidence", f"log {log}; {nics} counters moved")
    bench.say("the verdict", "; ".join(suspect["why"] for suspect in result["suspects"])[:600])


def step_stopped(bench: Bench) -> None:
    """A rank stopped by SIGSTOP in the last phase, after the traffic of all others: the rank is
    named, and no counter is."""
    before = link_errors()
    result, seconds = bench.smoke(
        "stopped", drills=({"rank": 1, "fault": "stop", "phase": "bandwidth"},)
    )
    after = link_errors()
    ranks = {suspect["rank"] for suspect in result["suspects"]}
    bench.expect("stopped", ranks == {1}, f"rank 1 named, found {ranks}")
    accused(bench, "stopped", result)
    bench.measured["nvidia-smi nvlink -e"] = {"before": before, "after": after}
    shown = "the same as before" if before == after else "not the same as before"
    bench.say(
        "rank 1 stopped after all other phases",
        f"named: {sorted(ranks, key=str)}; `nvidia-smi nvlink -e` {shown}; {seconds:.1f} s in all",
    )


def accused(bench: Bench, name: str, result: dict[str, Any]) -> None:
    """On a healthy machine no counter may be reported as a likely cause."""
    shown = [suspect["why"] for suspect in result["suspects"] if "rose by" in suspect["why"]]
    bench.expect(name, not shown, f"no counter accused, found {shown}")
    errors = {
        key: count
        for node in result["nodes"]
        for key, count in (node.get("nvlink") or {}).items()
        if "KiB" not in key
    }
    bench.say(
        f"error counters that rose with a rank {name}",
        f"{errors or 'none'}; accused: {shown or 'none'}",
    )


def link_errors() -> str:
    """The vendor tool's output about NVLink errors; "" without the tool."""
    try:
        return subprocess.run(
            ["nvidia-smi", "nvlink", "-e"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def step_wrong_device(bench: Bench) -> None:
    """A rank that uses another rank's GPU."""
    result, seconds = bench.smoke(
        "wrong-device", phases=("all_reduce",), drills=({"rank": 1, "fault": "wrong_device"},)
    )
    named = [
        suspect
        for suspect in result["suspects"]
        if suspect["rank"] == 1 and suspect["phase"] == "binding"
    ]
    bench.expect("wrong device", bool(named), "rank 1 named in binding")
    bench.say("rank 1 on GPU 0", f"{named[0]['why'] if named else 'not named'}; {seconds:.1f} s")


def step_two_nccl(bench: Bench) -> None:
    """Two different libnccl: another release where one is available, else a copy with another build
    id."""
    other = bench.other_nccl or find_other_nccl(bench)
    if not other:
        bench.say("two different libnccl", "no libnccl could be found to make a second one")
        return
    result, seconds = bench.smoke(
        "two-nccl", phases=("all_reduce",), rank_environment={"1": {"LD_PRELOAD": other}}
    )
    named = [
        suspect
        for suspect in result["suspects"]
        if suspect["phase"] == "consistency" and suspect["why"].startswith("NCCL is")
    ]
    ranks = sorted(suspect["rank"] for suspect in named)
    bench.expect(
        "two libnccl",
        ranks == [1] if bench.nproc > 2 else bool(ranks),
        f"rank 1 named in consistency, found {ranks}",
    )
    bench.say(
        "rank 1 has another libnccl",
        f"{named[0]['why'][:160] if named else 'not named'}; {seconds:.1f} s",
    )


def find_other_nccl(bench: Bench) -> str | None:
    """A second libnccl: the system's, or a copy of torch's with its build id changed."""
    asked = (
        "import torch, glob, os; d = os.path.dirname(os.path.dirname(torch.__file__));"
        " print(*glob.glob(d + '/nvidia/nccl/lib/libnccl.so.2'))"
    )
    torchs = subprocess.run(
        [bench.python, "-c", asked], capture_output=True, text=True, check=False
    ).stdout.split()
    for place in (
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "/usr/local/lib/libnccl.so.2",
        "/usr/lib64/libnccl.so.2",
    ):
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
    """NCCL_SOCKET_IFNAME names no existing interface."""
    result, seconds = bench.smoke(
        "interface", phases=("all_reduce",), environment={"NCCL_SOCKET_IFNAME": "nosuch0"}
    )
    named = [suspect for suspect in result["suspects"] if "NCCL_SOCKET_IFNAME" in suspect["why"]]
    bench.expect("interface", bool(named), "NCCL_SOCKET_IFNAME named")
    bench.say(
        "NCCL_SOCKET_IFNAME=nosuch0",
        f"{named[0]['why'] if named else 'not named'}; {seconds:.1f} s",
    )


def step_killed(bench: Bench) -> None:
    """The launcher is killed: no process remains on the GPUs."""
    drill = {"rank": 1, "fault": "absent", "phase": "all_reduce"}
    program = (
        f"import sys; sys.path[:0] = {sys.path[:2]!r}\n"
        "from unhang.smoke import node_plans as p\n"
        "from unhang.smoke.local import *\n"
        "from unhang.smoke.payload_zip import payload_bytes\n"
        f"given = dict(python={bench.python!r}, environment={QUIET!r}, drills=({drill!r},))\n"
        "r = p.Request(backend='nccl', **given)\n"
        f"members = [p.Member('here', {bench.nproc})]\n"
        "[n] = p.plan_group(r, members, '127.0.0.1', free_port())\n"
        "show = lambda e: print(e['e'], e.get('phase'), flush=True)\n"
        "run_local(n, payload_bytes(), on_event=show)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    in_collective = any(line.strip() == "phase_begin all_reduce" for line in launcher.stdout)
    launcher.kill()
    launcher.wait()
    began = time.monotonic()
    while remains() and time.monotonic() - began < 20:
        time.sleep(0.1)
    left = remains()
    bench.expect(
        "killed launcher",
        in_collective,
        "the launcher to reach all_reduce before it is killed, found that it ended",
    )
    bench.expect("killed launcher", not left, f"no process left, found {left}")
    bench.say(
        "launcher killed with SIGKILL in a collective",
        f"{len(left)} processes left after {time.monotonic() - began:.1f} s",
    )
