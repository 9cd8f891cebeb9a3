"""What is told as it happens: on traces of real GPUs and of a real kernel's interface, and silence
where nothing is wrong."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from neighbours import with_neighbour

from unhang.jobs.watch.alerts import Alerts
from unhang.jobs.watch.detector import ticks
from unhang.jobs.watch.of_slurm import merged, parsed
from unhang_node.base.root import Root
from unhang_node.job.samples import nic_samples

FIXTURES = Path(__file__).parents[4] / "fixtures" / "inspect"
SET_INTERFACE, SET_CARRIER, TAP = 0x400454CA, 0x400454E2, 0x1002  # linux/if_tun.h


def told(lines) -> list[str]:
    """With another user's job beside it, which trains on a GPU of its own."""
    alerts = Alerts()
    return [line for tick in ticks(with_neighbour(lines)) for line in alerts.of(tick)]


def trace(name: str) -> list[dict]:
    return [
        json.loads(line)
        for line in (FIXTURES / "traces" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize("name", ["healthy", "never", "slow", "checkpoint"])
def test_two_ranks_that_share_a_gpu_are_told_once_while_the_job_still_works(name):
    """Recorded so: two ranks of the one GPU that there was."""
    assert told(trace(name)) == ["ranks 0-1 share GPU 0"]


def test_a_rank_of_its_own_gpu_is_no_word():
    assert told(trace("init")) == []
    spread = [
        {**line, **({"pids": line["pids"][:1]} if "gpu" in line else {})}
        for line in trace("healthy")
    ]
    other = [
        {**line, "gpu": 1, "pids": source["pids"][1:]}
        for line, source in zip(spread, trace("healthy"), strict=True)
        if "gpu" in line
    ]
    assert told(sorted([*spread[1:], *other], key=lambda line: line["t"])) == []


def test_gpus_without_a_rank_are_counted_beside_the_crowded_one():
    lines = [
        line
        for one in trace("healthy")[1:]
        for line in (
            [one, {**one, "gpu": 1, "pids": []}, {**one, "gpu": 2, "pids": []}]
            if "gpu" in one
            else [one]
        )
    ]
    assert told(lines) == [
        "ranks 0-1 share GPU 0; 2 other GPUs have none: does the program choose its device by"
        " LOCAL_RANK?"
    ]


def of_two_gpus(name: str) -> list[dict]:
    return [
        json.loads(line)
        for line in (
            (FIXTURES / "two_gpus" / "traces" / f"{name}.jsonl")
            .read_text(encoding="utf-8")
            .splitlines()
        )
    ]


@pytest.mark.parametrize(
    "name", ["full", "healthy", "evaluation", "checkpoint", "longstep", "crowded"]
)
def test_gpus_that_work_or_wait_are_no_word(name):
    """In `full` both draw all the power they may, in `crowded` one does for a stranger; in
    `evaluation` one computes and the other waits for it."""
    assert told(of_two_gpus(name)) == []


def with_reason(
    lines: list[dict], *reasons: str, first_s: float = 0.0, node: str = ""
) -> list[dict]:
    """The GPUs of a recorded job, slowed down for these reasons from a moment on: no GPU that was
    lent may be made hot."""
    rows = [
        {**line, "throttle": list(reasons)} if "gpu" in line and line["t"] >= first_s else line
        for line in lines
    ]
    return [{**row, "asked_as": node} if node and "t" in row else row for row in rows]


SUPPLY = "fans, inlet air, power supply; nvidia-smi -q -d TEMPERATURE,PERFORMANCE has the limits"


def test_all_gpus_that_the_driver_slows_down_for_heat_are_told_once_in_one_line():
    assert told(with_reason(of_two_gpus("healthy"), "sw_thermal")) == [
        f"GPUs 0-1 are throttled (sw_thermal): {SUPPLY}"
    ]
    assert told(
        with_reason(
            of_two_gpus("healthy"), "sw_power_cap", "hw_slowdown", "hw_thermal", node="gpu03"
        )
    ) == [f"GPUs 0-1 are throttled on gpu03 (hw_thermal, hw_slowdown): {SUPPLY}"]


def test_a_hot_gpu_is_told_once_and_one_that_is_hot_for_a_moment_or_without_a_rank_is_not():
    crowded = [
        {**line, "throttle": ["hw_thermal"]} if line.get("throttle") else line
        for line in of_two_gpus("crowded")
    ]
    assert [line.partition(":")[0] for line in told(crowded)] == ["GPU 1 is throttled (hw_thermal)"]
    last = of_two_gpus("healthy")[-1]["t"]
    assert told(with_reason(of_two_gpus("healthy"), "sw_thermal", first_s=last - 9)) == []
    assert (
        told(
            [
                {**line, "pids": []} if "gpu" in line else line
                for line in with_reason(of_two_gpus("healthy"), "sw_thermal")
            ]
        )
        == []
    )
    assert told(with_reason(of_two_gpus("healthy"), "sw_power_cap")) == []


def test_a_link_that_goes_on_another_node_is_told_with_its_name():
    """As the step of a job of Slurm sends it."""
    lines = [
        {
            "asked_as": "gpu02",
            "t": float(t),
            "nic": "ib0",
            "carrier_changes": 4 + (t > 2),
            "up": t <= 2,
        }
        for t in range(6)
    ]
    sent = parsed((b"0", json.dumps(line).encode()) for line in lines)
    assert told(merged(sent, 1)) == [
        "the link of ib0 on gpu02 went away (1 change): cable, module, switch port or driver"
    ]


def test_equal_process_ids_of_two_nodes_are_not_taken_for_one_gpu():
    lines = []
    for t in range(5):
        for node, rank in (("a", 0), ("b", 1)):
            row = {"asked_as": node, "t": float(t)}
            lines += [{**row, "pid": 7, "rank": rank, "state": "R"}, {**row, "gpu": 0, "pids": [7]}]
    assert told(merged(lines, 2)) == []


RECORD = (
    "import sys; sys.path[:0] = sys.argv[1].split(':'); from test_alerts import record; record()"
)


def record() -> None:
    """In a network namespace of its own: an interface of the kernel whose link goes and comes; one
    line for each sample."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, SET_INTERFACE, struct.pack("16sH22x", b"nic0", TAP))
    for argv in (["nic0", "up"], ["lo", "up"]):
        subprocess.run(["ip", "link", "set", *argv], check=True)
    subprocess.run(
        ["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"], check=True
    )
    for t, carrier in enumerate((1, 1, 0, 1, 1, 0, 0, 1)):
        fcntl.ioctl(descriptor, SET_CARRIER, struct.pack("i", carrier))
        subprocess.run(["ip", "link", "set", "veth0", "up" if t % 2 else "down"], check=True)
        for line in nic_samples(Root(), 40.0 * t):
            sys.stdout.write(json.dumps(line) + "\n")
    os.close(descriptor)


WENT = "the link of nic0 went away (1 change): cable, module, switch port or driver"


def test_a_recorded_link_that_goes_and_comes_is_told_with_the_interface():
    lines = [
        json.loads(line)
        for line in (FIXTURES / "nic-flaps.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    found = told(lines)
    assert found[0] == WENT
    assert len(found) == 3  # at 80 s, 200 s and 280 s: at 120 s it was told 40 s before


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(),
    reason="makes an interface in a namespace of its own: needs root and /dev/net/tun",
)
def test_a_real_interface_whose_link_goes_is_told_and_those_of_containers_are_not():
    path = os.pathsep.join([str(Path(__file__).parent), *[one for one in sys.path if one]])
    command = f'mount -t sysfs none /sys && exec {sys.executable} -c "{RECORD}" {path}'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["nic"] for line in lines} == {"nic0"}, done.stderr
    assert told(lines)[0] == WENT


def test_a_link_that_flaps_all_the_time_is_told_once_a_minute():
    lines = [
        {"t": float(t), "nic": "ib0", "carrier_changes": 2 * t, "up": True} for t in range(180)
    ]
    found = told(lines)
    assert len(found) == 3
    assert (
        found[1]
        == "the link of ib0 went away and came back (120 changes): cable, module, switch port or"
        " driver"
    )


def test_hostile_samples_are_no_words_and_no_error():
    odd = [
        {"t": 1, "nic": 7, "carrier_changes": "x"},
        {"t": 2, "nic": "a", "carrier_changes": 1},
        {"t": 3, "nic": "a\x1b[2J", "carrier_changes": -4},
    ]
    odd += [{"t": t, "ras": {"counts": {"0": t, "x": []}}} for t in (3.5, 3.6)]
    odd += [
        {"t": 3.6, "rank": 0, "pid": 7},
        *(
            {"t": 3.6, "gpu": gpu, "pids": [7], "clock_sm_mhz": "x", "throttle": {}}
            for gpu in (0, {})
        ),
    ]
    assert (
        told([*odd, {"t": 4, "gpu": None, "pids": 7}, {"t": 5, "gpu": {}, "pids": [None, []]}])
        == []
    )
