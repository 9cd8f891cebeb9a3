"""The payload without an agent: under torchrun and started by hand it reports the same events, and
ends a stall by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from smoke_runs import DEADLINE_S, PAYLOAD, environment

PLAN = {
    "backend": "gloo",
    "phases": ["broadcast", "all_reduce"],
    "max_bytes": 65536,
    "step_timeout_s": 60,
}


def run(argv, plan, **more):
    """(code, events) of the payload started with this command. Ranks that finish leave no folder of
    their own."""
    with tempfile.TemporaryDirectory() as folder:
        variables = environment(
            UNHANG_SMOKE_PLAN=json.dumps(plan),
            GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
            TMPDIR=folder,
            **more,
        )
        shown = {
            "capture_output": True,
            "text": True,
            "timeout": DEADLINE_S,
            "stdin": subprocess.DEVNULL,
            "check": False,
        }
        done = subprocess.run(argv, env=variables, **shown)
        # torchrun kills the remaining ranks when one stalls
        assert done.returncode or [path.name for path in Path(folder).glob("unhang-*")] == []
    sys.stdout.write(done.stderr[-2000:])
    return done.returncode, [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]


def torchrun(count):
    """argv of torchrun on a free port, with the modules of the checkout as the page has it."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={count}",
        "--master-addr=127.0.0.1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "-m",
        "unhang.smoke.payload",
    ]


def test_under_torchrun_all_ranks_go_through_the_phases():
    code, events = run(torchrun(2), PLAN)
    assert code == 0
    ended = {
        (event["rank"], event["phase"])
        for event in events
        if event["e"] == "phase_end" and event["status"] == "ok"
    }
    assert {
        (rank, phase)
        for rank in (0, 1)
        for phase in ("environment", "init", "broadcast", "all_reduce", "agreement")
    } <= ended
    assert sorted(event["rank"] for event in events if event["e"] == "rank_end") == [0, 1]


def test_a_stall_under_torchrun_is_told_by_the_ranks_themselves():
    plan = {
        **PLAN,
        "step_timeout_s": 8,
        "drills": [{"rank": 1, "fault": "absent", "phase": "all_reduce"}],
    }
    code, events = run(torchrun(2), plan)
    assert code != 0
    stalls = {event["rank"]: event for event in events if event["e"] == "stall"}
    assert stalls, "no rank told of the stall"
    first = next(iter(stalls.values()))
    assert first["phase"] == "all_reduce"
    assert "/payload/" in first["stack"]


@pytest.mark.parametrize(
    "names",
    [("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")],
)
def test_by_hand_and_under_srun_one_rank_takes_its_place_from_the_environment(names):
    from unhang.smoke.local import free_port

    code, events = run(
        [sys.executable, str(PAYLOAD)],
        PLAN,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        **dict(zip(names, ("0", "1", "0"), strict=True)),
    )
    assert code == 0
    assert [event["rank"] for event in events if event["e"] == "rank_end"] == [0]
