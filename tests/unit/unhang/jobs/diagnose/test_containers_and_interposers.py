"""What a container was given, libraries in front of CUDA, processes that nobody started, and scans
that fill a store's memory."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


def points(text: str, cause: str) -> float:
    return next(
        (one["points"] for one in diagnose_text(text)["causes"] if one["cause"] == cause), 0.0
    )


def first(text: str) -> str | None:
    causes = diagnose_text(text)["causes"]
    return causes[0]["cause"] if causes else None


JAX = """Traceback (most recent call last):
  File "train.py", line 9, in main
    jax.distributed.initialize(coordinator_address=address, num_processes=count, process_id=number)
jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:
:{{"description":"Error received from peer ipv4:{host}:7777","grpc_message":"Barrier timed out. Barrier_id: PjRT_Client_Connect."}}
"""


@pytest.mark.parametrize(
    ("host", "cause"), [("127.0.0.1", "launch_mismatch"), ("10.0.0.7", "firewall_ports")]
)
def test_coordinator_on_the_same_host_is_behind_no_firewall(host, cause):
    assert first(JAX.format(host=host)) == cause


SHORT = "terminate called after throwing an instance of 'std::bad_alloc'\n"
SHORT += (
    "kernel: Memory cgroup out of memory: Killed process 811 (python) total-vm:2098812220kB,"
    " anon-rss:131020412kB\n"
)
