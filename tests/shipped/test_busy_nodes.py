"""No smoke test starts on GPUs that somebody uses: the payload's survey names who does, and such a
node takes no part unless a person says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fakes.node_tree import Link, plant
from smoke_runs import PAYLOAD

from unhang.smoke.group import SessionOptions, prepare, why_busy
from unhang.smoke.node_plans import Request
from unhang.smoke.session import follow, smoke_session

GPU = {"/proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: NVIDIA H100\nGPU UUID: GPU-1\n"}
BUSY = ["process 4711 (python3) of alice"]
LO = {"name": "lo", "up": True, "kind": "loopback", "addresses": ["127.0.0.1/8"]}


def survey(place, **more):
    interface = {
        "name": "eth0",
        "up": True,
        "kind": "physical",
        "addresses": [f"10.0.0.{place}/24"],
    }
    routes = [{"dst": "10.0.0.0/24", "dev": "eth0"}]
    return {
        "e": "survey",
        "interfaces": [LO, interface],
        "routes": routes,
        "gpus": [{"model": "H100"}],
        **more,
    }


SURVEYS = {
    "gpu001": survey(1, in_use=[]),
    "gpu002": survey(2, in_use=BUSY),
    "gpu003": survey(3, in_use=None),
    "gpu004": survey(4),
}


def test_a_node_whose_gpus_somebody_uses_takes_no_part_and_the_others_do():
    ready = prepare(list(SURVEYS), SURVEYS, Request(), SessionOptions())
    assert [member.host for member in ready.members] == ["gpu001", "gpu003", "gpu004"]
    assert dict(ready.absent) == {
        "gpu002": (
            "the GPUs are in use by process 4711 (python3) of alice: nothing was started; drain it first, or --beside-jobs"
        )
    }


@pytest.mark.parametrize(
    ("request_", "options"),
    [(Request(), SessionOptions(beside_jobs=True)), (Request(backend="gloo"), SessionOptions())],
)
def test_it_takes_part_where_a_person_says_so_or_the_test_takes_no_gpu(request_, options):
    assert [
        member.host for member in prepare(list(SURVEYS), SURVEYS, request_, options).members
    ] == list(SURVEYS)


def test_a_busy_node_alone_is_neither_started_nor_failed_for_a_fault_of_its_own():
    session = smoke_session(["gpu002"], SURVEYS, Request(), SessionOptions())
    result = follow(session, lambda plans: pytest.fail(f"started on {plans}"))
    assert result.verdict != "pass"
    [suspect] = result.suspects
    assert (suspect.host, suspect.blind) == ("gpu002", True)
    assert "process 4711" in suspect.why


def test_many_users_are_counted_and_a_hostile_answer_is_shown_as_text():
    assert (
        why_busy({"in_use": [f"process {number}" for number in range(9)]})
        .partition(": nothing")[0]
        .endswith("process 3 and 5 more")
    )
    assert "\x1b" not in why_busy({"in_use": ["\x1b[2J"]})
    assert why_busy({"in_use": "x"}) == why_busy({}) == ""


def surroundings(folder, script, **variables):
    """The environment of a planted node on which nvidia-smi is this script."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "nvidia-smi").write_text(script)
    (folder / "bin" / "nvidia-smi").chmod(0o755)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return mine | {
        "UNHANG_SMOKE_ROOT": str(folder / "root"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        **variables,
    }


def surveyed(folder, script, **variables):
    """Who uses its GPUs, by the payload's survey."""
    argv = [sys.executable, str(PAYLOAD), "survey"]
    done = subprocess.run(
        argv, env=surroundings(folder, script, **variables), stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)["in_use"]


def processes(folder, files):
    (folder / "root").mkdir(parents=True)
    plant(folder / "root", {**GPU, **files})


SMI = '#!/bin/sh\n[ "$1" = --query-compute-apps=pid ] || exit 9\necho 4711\necho 4712\necho 4711\n'
NAMES = {"/proc/4711/comm": "python3\n", "/proc/4712/comm": "nvidia-cuda-mps\n"}


def test_the_survey_names_processes_on_the_gpus_and_jobs_of_slurm_and_no_daemon(tmp_path):
    mine = os.readlink("/proc/self/ns/pid")
    step = {
        "/proc/90/cmdline": "slurmstepd: [77.0]\0",
        "/proc/90/ns/pid": Link(mine),
        "/proc/91/cmdline": "slurmstepd: [78.batch]\0",
        "/proc/91/ns/pid": Link("pid:[1]"),
    }
    processes(tmp_path, {**NAMES, **step})
    assert [line.partition(" of ")[0] for line in surveyed(tmp_path, SMI)] == [
        "process 4711 (python3)",
        "job 77",
    ]


def test_the_survey_leaves_an_allocation_to_slurm(tmp_path):
    processes(tmp_path, NAMES)
    assert surveyed(tmp_path, SMI, SLURM_JOB_ID="77") == []


def test_a_node_without_gpus_is_not_asked(tmp_path):
    (tmp_path / "root" / "proc").mkdir(parents=True)
    assert surveyed(tmp_path, "#!/bin/sh\ntouch $0.asked\n") == []
    assert not (tmp_path / "bin" / "nvidia-smi.asked").exists()


def test_an_nvidia_smi_that_fails_says_nothing(tmp_path):
    processes(tmp_path, NAMES)
    assert surveyed(tmp_path, "#!/bin/sh\necho 4711\nexit 9\n") is None


def test_a_busy_machine_is_refused_before_anything_is_started(tmp_path):
    processes(tmp_path, NAMES)
    command = [sys.executable, "-P", "-m", "unhang", "smoke", "--local", "--backend", "nccl"]
    done = subprocess.run(
        command,
        env=surroundings(tmp_path, SMI),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "the GPUs are in use by process 4711 (python3)" in done.stderr
