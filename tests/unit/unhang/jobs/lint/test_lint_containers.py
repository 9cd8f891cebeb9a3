"""Containers that see fewer GPUs than their command needs, services with too little shared memory,
and pods of one job with unlike settings."""

from __future__ import annotations

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text

SERVER = """services:
  server:
    image: vllm/vllm-openai:v0.8.5
    {gpus}
    environment: {environment}
    {memory}
    command: {command}
"""
TWO = '["--model", "m", "--tensor-parallel-size", "2"]'
SHARED = "shm_size: 8gb"


def found(text):
    return {(one.line, one.rule) for one in lint_text(text, "kubernetes", Context())}


def service(gpus="runtime: nvidia", environment="{A: b}", memory=SHARED, command=TWO):
    return SERVER.format(gpus=gpus, environment=environment, memory=memory, command=command)


@pytest.mark.parametrize(
    ("memory", "is_found"),
    [
        ("shm_size: 64m", True),
        ("shm_size: 64MB", True),
        ("shm_size: 67108864", True),
        ("tty: true", True),
        ("shm_size: 65m", False),
        ("shm_size: ${SHM}", False),
        ("ipc: host", False),
    ],
)
@pytest.mark.parametrize("gpus", ["runtime: nvidia", "gpus: all", "gpus: [{count: 2}]"])
def test_default_shared_memory_is_too_small_also_where_it_is_written_out(gpus, memory, is_found):
    line = 6 if memory.startswith("shm_size") else 4
    assert found(service(gpus, memory=memory)) == ({(line, "pod-shm")} if is_found else set())


def test_shared_memory_of_a_server_on_one_gpu_or_on_none_is_left_alone():
    one = '["--model", "m", "--tensor-parallel-size", "1"]'
    assert found(service(memory="shm_size: 64m", command=one)) == set()
    assert found(service(gpus="tty: true", memory="shm_size: 64m")) == set()


@pytest.mark.parametrize(
    "environment",
    [
        "[CUDA_VISIBLE_DEVICES=0]",
        '{NVIDIA_VISIBLE_DEVICES: "3"}',
        "[NVIDIA_VISIBLE_DEVICES=GPU-1a]",
    ],
)
@pytest.mark.parametrize("command", [TWO, "vllm serve m -tp 2", "python -m sglang --tp-size=4"])
def test_service_that_sees_fewer_gpus_than_its_processes_is_found(environment, command):
    text = service(environment=environment, command=command)
    assert found(text) == {(5, "gpus-fewer-than-processes")}


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ("['CUDA_VISIBLE_DEVICES=0,1']", TWO),
        ("[NVIDIA_VISIBLE_DEVICES=all]", TWO),
        ("['CUDA_VISIBLE_DEVICES=${GPUS}']", TWO),
        ("[CUDA_VISIBLE_DEVICES]", TWO),
        ("[CUDA_VISIBLE_DEVICES=0]", "vllm serve m --tensor-parallel-size 1 --port 2"),
        ("[CUDA_VISIBLE_DEVICES=0]", "sglang --tp 2 --nnodes 2 --node-rank 0"),
        ("[CUDA_VISIBLE_DEVICES=0]", "vllm serve m -tp 2 --distributed-executor-backend ray"),
    ],
)
def test_service_with_enough_or_unknown_gpus_is_silent(environment, command):
    assert found(service(environment=environment, command=command)) == set()


CONTAINER = """kind: Deployment
spec: {{template: {{spec: {{containers: [{{command: [vllm, serve, m, {option}],
  resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}], hostIPC: true}}}}}}
"""


@pytest.mark.parametrize(
    ("option", "gpus", "is_found"),
    [
        ("--tensor-parallel-size=2", 1, True),
        ("--tensor-parallel-size=8", 4, True),
        ("--tensor-parallel-size=2", 2, False),
        ("--tensor-parallel-size=$N", 1, False),
    ],
)
def test_pod_asks_for_a_gpu_for_each_process(option, gpus, is_found):
    text = CONTAINER.format(option=option, gpus=gpus)
    assert found(text) == ({(3, "gpus-fewer-than-processes")} if is_found else set())


GROUP = """kind: {kind}
spec:
  leaderWorkerTemplate:
    leaderTemplate: {{spec: {{containers: [{{resources: {{limits: {{nvidia.com/gpu: 1}}}},
      env: [{leader}]}}]}}}}
    workerTemplate: {{spec: {{containers: [{{resources: {{limits: {{nvidia.com/gpu: {gpus}}}}},
      env: [{worker}] {more}}}]}}}}
"""


def unlike(leader, worker, *, kind="LeaderWorkerSet", gpus=1, more=""):
    """(line, severity) of each pair of unlike settings."""

    def rows(settings):
        return ", ".join(f'{{name: {name}, value: "{value}"}}' for name, value in settings.items())

    text = GROUP.format(kind=kind, leader=rows(leader), worker=rows(worker), gpus=gpus, more=more)
    return {
        (one.line, one.severity)
        for one in lint_text(text, "kubernetes", Context())
        if one.rule == "settings-unlike"
    }


@pytest.mark.parametrize(
    ("leader", "worker", "expected"),
    [
        ({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}, {(7, "warning")}),
        ({"NCCL_PROTO": "Simple"}, {}, {(5, "warning")}),
        ({}, {"FI_PROVIDER": "efa"}, {(7, "warning")}),
        ({"UCX_TLS": "rc"}, {"UCX_TLS": "tcp"}, {(7, "warning")}),
        ({"NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_2"}, {(7, "info")}),
    ],
)
def test_pods_of_one_job_with_unlike_settings_are_found(leader, worker, expected):
    assert unlike(leader, worker) == expected


@pytest.mark.parametrize(
    ("leader", "worker", "rest"),
    [
        (
            {"NCCL_ALGO": "Ring", "FI_PROVIDER": "efa"},
            {"FI_PROVIDER": "efa", "NCCL_ALGO": "ring"},
            {},
        ),
        ({"NCCL_DEBUG": "INFO", "FI_LOG_LEVEL": "warn"}, {}, {}),
        ({"NCCL_IB_DISABLE": "0"}, {}, {}),
        ({"NCCL_ALGO": "Ring"}, {}, {"more": ", envFrom: [{configMapRef: {name: nccl}}]"}),
        ({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "$(ALGO)"}, {}),
        ({"NCCL_ALGO": "Ring"}, {}, {"more": ", command: [sh, -c, export NCCL_ALGO=Ring]"}),
        ({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}, {"kind": "Template"}),
        ({"NCCL_ALGO": "Ring"}, {}, {"gpus": 0}),
    ],
)
def test_like_settings_logs_and_what_is_not_in_the_file_are_silent(leader, worker, rest):
    assert unlike(leader, worker, **rest) == set()
