"""The table of `unhang watch`: 64 GPUs in 80 columns, what stands out is said, and no text of a
node reaches the terminal as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unhang.core.table import printed
from unhang.jobs.inspect.evidence import ProcessRow
from unhang.jobs.inspect.whose_gpus import gpu_of
from unhang.jobs.watch.detector import Tick, ticks
from unhang.jobs.watch.gpu_table import gpu_table

TRACES = Path(__file__).parents[4] / "fixtures" / "inspect" / "traces"


def shown(tick: Tick, since_s: float = 0.0, width: int = 80) -> list[str]:
    return printed(gpu_table(tick, since_s, width), False, False).splitlines()


def machine(gpus: int) -> Tick:
    tick = Tick(
        4321.0,
        {str(rank): 123456789 - (rank == 5) for rank in range(gpus)},
        (7,),
    )
    for number in range(gpus):
        row = {
            "gpu": number,
            "utilization_percent": 100,
            "memory_activity_percent": 0,
            "power_w": 712.4,
            "clock_sm_mhz": 1980,
            "pids": [1000 + number],
        }
        throttle = ["hw_thermal_slowdown", "sw_power_cap"] if number == 3 else []
        tick.gpus.append(gpu_of({**row, "throttle": throttle}))
        tick.ranks[number] = ProcessRow(1000 + number, "T" if number == 9 else "R")
    return tick


def test_64_gpus_are_64_lines_of_80_columns():
    lines = shown(machine(64), 95.4)
    assert len(lines) == 66
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("4321 s watched, no progress for 95 s")
    by_gpu = {line.split()[0]: line for line in lines[2:]}
    assert by_gpu["63"].split() == [
        "63",
        "63",
        "R",
        "100",
        "0",
        "712",
        "1980",
        "123456789",
        "waits",
    ]
    assert "behind by 1" in by_gpu["5"] and "behind" not in by_gpu["6"]
    assert (
        "silent" in by_gpu["7"] and "stopped" in by_gpu["9"] and "throttled: hw_the" in by_gpu["3"]
    )


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, shown(machine(8), 5.0, width))) <= width


def test_a_job_without_gpus_has_a_line_for_each_rank():
    tick = Tick(9.0, ranks={0: ProcessRow(7, "S"), 1: ProcessRow(8, "gone")})
    assert [line.split() for line in shown(tick)[2:]] == [["0", "S"], ["1", "gone", "ended"]]


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_recorded_sample_can_be_shown(path):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for tick in list(ticks(lines))[::5]:
        assert len(shown(tick)) >= 3


def test_strange_samples_are_shown_as_text():
    row = {
        "gpu": "\x1b[31m",
        "utilization_percent": "x",
        "throttle": ["\x1b[2J"],
        "pids": 3,
        "power_w": None,
    }
    lines = [{"ras": {"counts": 3, "missing": 4}}, row, {"rank": 0, "pid": 1, "state": "\x1b"}]
    [tick] = ticks({"t": 1.0, **line} for line in lines)
    text = "\n".join(shown(tick))
    assert "\x1b" not in text
