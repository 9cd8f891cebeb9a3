"""A driver whose calls never return, under a running job: inspect says so and has the rest, watch
goes on without it. Only the driver's library is a fake."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X2, collect_in_process, write_recording
from inspected import inspection_of

from unhang.jobs.watch.live import live_samples

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from unhang_node.job.command import main; sys.exit(main(sys.argv[1:]))",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The folder of the fake library."""
    folder = tmp_path_factory.mktemp("fake-nvml")
    build_fake_nvml(str(folder))
    return folder


@pytest.fixture
def rank():
    """A process that says that it is a rank."""
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(900)"], env=environment
    ) as process:
        yield process
        process.kill()


def driver(library, folder, stall):
    profile = write_profile(
        str(write_recording(folder, H200X2, stall=stall)), str(folder / "profile")
    )
    return {"LD_LIBRARY_PATH": str(library), "UNHANG_FAKE_NVML_PROFILE": profile}


@pytest.mark.parametrize(
    "stall",
    ["nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2(0)", "nvmlDeviceGetUtilizationRates(1)"],
)
def test_a_call_that_never_returns_is_named_and_all_else_is_read(library, rank, tmp_path, stall):
    document = collect_in_process(
        "--pid",
        str(rank.pid),
        "--gap",
        "0.5",
        "--without",
        "stacks",
        env=driver(library, tmp_path, stall),
        command=COMMAND,
    )
    nvml, proc = (document["sections"][name] for name in ("nvml", "proc"))
    assert nvml["probe"]["status"] == "timeout"
    named = stall.replace("(", "(GPU ")
    assert f"{named} did not return within" in nvml["probe"]["error"]
    assert (proc["probe"]["status"], [row["pid"] for row in proc["ranks_2"]]) == ("ok", [rank.pid])
    told = [row for row in inspection_of([document])["unread"] if row["what"] == "nvml"]
    assert "that is the finding" in told[0]["helps"]


def test_the_watcher_goes_on_without_a_driver_that_hangs(library, rank, tmp_path, monkeypatch):
    for name, value in driver(library, tmp_path, "nvmlDeviceGetUtilizationRates(0)").items():
        monkeypatch.setenv(name, value)
    lines = live_samples(rank.pid, 0.5)
    before, after = [], []
    for line in lines:
        (after if any("silent" in one for one in before) else before).append(line)
        if sum("state" in one for one in after) >= 3:
            break
    lines.close()
    assert sum("state" in one for one in before) >= 1
    assert not any("gpu" in one for one in after)
