"""A server that started is no job that ended: what comes after the start decides."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.meaning.conclusion import EXIT_CODES

START = "INFO:     Started server process [7]\nINFO:     Application startup complete.\n"
ANSWER = 'INFO:     192.0.2.9:50110 - "POST /v1/completions HTTP/1.1" 200 OK\n'


def speed(prompt, generated, running, waiting):
    return (
        f"INFO 03-09 11:00:10 [loggers.py:122] Engine 000: Avg prompt throughput: {prompt}"
        f" tokens/s, Avg generation throughput: {generated} tokens/s, Running: {running} reqs,"
        f" Waiting: {waiting} reqs, GPU KV cache usage: 3.0%\n"
    )


WORKS, STANDS = speed(81.0, 12.5, 2, 0), speed("0.0", "0.0", 2, 1)
HEALTHY = {
    "it has just started": START,
    "it serves": START + ANSWER + WORKS,
    "it is idle": START + ANSWER + WORKS + speed("0.0", "0.0", 0, 0),
    "one long prompt": START + WORKS + STANDS,
    "it goes on after a pause": START + WORKS + STANDS + STANDS + WORKS,
    "one long prompt, and one hours ago": START + STANDS + WORKS + STANDS,
    "no request is left after a stand": START + WORKS + STANDS + STANDS + speed("0.0", "0.0", 0, 0),
    "another start after a stand": START + STANDS + STANDS + "INFO:     Shutting down\n" + START,
    "an end on purpose, with its workers": (
        START
        + WORKS
        + "INFO:     Shutting down\nERROR 03-09 11:07:11 [multiproc_executor.py:140] Worker proc"
        " VllmWorker-3 died unexpectedly, shutting down executor.\n"
    ),
    "a request that it refuses": (
        START
        + WORKS
        + 'ERROR 03-09 11:00:11 [serving.py:9] no model of that name\nINFO: "POST /v1/completions'
        ' HTTP/1.1" 404 Not Found\n'
    ),
    "an error before it started": (
        "ERROR 03-09 10:59:00 [probe.py:3] cannot read the cache, it is made anew\n" + START
    ),
}
FAILED = {
    "a worker died": (
        START
        + WORKS
        + "ERROR 03-09 11:07:11 [multiproc_executor.py:140] Worker proc VllmWorker-3 died"
        " unexpectedly, shutting down executor.\n"
    ),
    "its handler of signals": START + "*** SIGSEGV received at time=1754130000 on cpu 3 ***\n",
    "another handler of signals": START + "!!!!!!! Segfault encountered !!!!!!!\n",
    "an error that nobody knows": (
        START
        + ANSWER
        + 'ERROR 03-09 11:00:11 [core.py:9] the scheduler lost its shard\nINFO: "GET /health'
        ' HTTP/1.1" 503 Service Unavailable\n'
    ),
}
HANGS = {
    "no token for a while": START + WORKS + STANDS + STANDS,
    "no token, and a crowd waits": START + WORKS + speed("0.0", "0.0", 16, 90),
    "only its health is asked": (
        START + WORKS + STANDS + STANDS + 'INFO: "GET /metrics HTTP/1.1" 200 OK\n' * 12
    ),
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_server_that_runs_is_healthy_and_no_job_that_ended(text):
    outcome = diagnose_text(text)["outcome"]
    assert (
        outcome["word"] == "healthy"
        and outcome["why"].startswith("the server started")
        and "ended" not in outcome["why"]
    )


@pytest.mark.parametrize("text", FAILED.values(), ids=FAILED)
def test_server_that_failed_after_its_start_is_a_failure(text):
    assert EXIT_CODES[diagnose_text(text)["outcome"]["word"]] == 3


@pytest.mark.parametrize("text", HANGS.values(), ids=HANGS)
def test_server_that_makes_no_token_has_no_end(text):
    answer = diagnose_text(text)
    assert (
        answer["outcome"]["word"] == "no_end"
        and "makes no token" in answer["outcome"]["why"]
        and answer["next"]["command"].startswith("unhang inspect")
    )
