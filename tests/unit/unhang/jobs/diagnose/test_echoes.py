"""Which error came first and which are echoes, across programs: vLLM, SGLang, Ray, JAX, TensorFlow,
Horovod and launchers wrap and repeat."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.strict_yaml import load_yaml

ROWS = load_yaml(Path(__file__).parents[4] / "fixtures" / "diagnose_echoes" / "programs.yml")[0]
# What each program prints of a failure elsewhere: never a cause by itself.
ECHOES = (
    (
        "client.h:80] Terminating process because the JAX distributed service detected fatal"
        " errors. This most likely indicates that another task died"
    ),
    (
        "Coordination agent is set to ERROR: UNAVAILABLE: Task /job:worker/replica:0/task:3"
        " heartbeat timeout."
    ),
    (
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was"
        " caused by an exception on one of the ranks"
    ),
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.",
    (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack"
        " trace (above) for the root cause."
    ),
    (
        "[2026-01-18 08:16:03] Received sigquit from a child process. It usually means the child"
        " failed."
    ),
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    (
        "[rank: 3] Child process with PID 4471 terminated with code 1. Forcefully terminating all"
        " other processes to avoid zombies"
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_who_failed_first_is_the_cause_whatever_program_repeats_it(tmp_path, row):
    log = tmp_path / "job.log"
    log.write_text(row["text"], encoding="utf-8")
    first = diagnose([str(log)])["causes"][0]
    assert (first["cause"], first["severity"] != "info") == (row["cause"], True)
    assert first["evidence"][0]["line"] <= 5, "the line that failed first leads"


@pytest.mark.parametrize("line", ECHOES)
def test_echo_alone_names_no_cause_and_is_no_all_clear(tmp_path, line):
    log = tmp_path / "job.log"
    log.write_text(f"{line}\n", encoding="utf-8")
    answer = diagnose([str(log)])
    assert (
        not answer["found"]
        and answer["outcome"]["word"] in ("no_end", "failure")
        and answer["collect_next"]
    )
