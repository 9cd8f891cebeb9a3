"""Services of compose with several GPUs, and tasks of SkyPilot and dstack on several nodes."""

from __future__ import annotations

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text

SERVICE = """services:
  train:
    command: {command}
    {more}
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia,
      {device}, capabilities: [{capability}]}}]}}}}}}
"""
SKYPILOT = """num_nodes: {nodes}
run: |
  head=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  {condition}
  torchrun --nnodes={waits} --node_rank={rank} --master_addr={master} train.py
"""
DSTACK = """type: task
nodes: {nodes}
commands:
  - cd examples
  - torchrun --nnodes={waits} --node-rank={rank} --master-addr=$DSTACK_MASTER_NODE_IP train.py
"""


def found(text):
    return {(one.line, one.rule) for one in lint_text(text, "kubernetes", Context())}


@pytest.mark.parametrize(
    ("device", "command", "more", "is_found"),
    [
        ("count: 4", "python a.py", "tty: true", True),
        ("count: 1", "python a.py", "tty: true", False),
        ("device_ids: ['0', '3']", "python a.py", "tty: true", True),
        ("device_ids: ['3']", "python a.py", "tty: true", False),
        ("count: all", "torchrun --nproc_per_node=8 a.py", "tty: true", True),
        ("count: all", "torchrun --nproc_per_node=1 a.py", "tty: true", False),
        ("count: all", "python a.py", "tty: true", False),
        ("count: 4", "python a.py", "ipc: host", False),
        ("count: 4", "python a.py", "shm_size: 16gb", False),
        ("count: 4", "python a.py", "extends: base", False),
        ("count: 4", "python a.py", "volumes: [/dev/shm:/dev/shm]", False),
    ],
)
def test_service_with_several_gpus_needs_shared_memory(device, command, more, is_found):
    text = SERVICE.format(device=device, command=command, more=more, capability="gpu")
    assert found(text) == ({(6, "pod-shm")} if is_found else set())
    assert found(text.replace("[gpu]", "[tpu]")) == set()
    assert found(text.replace("services", "pods")) == set()


@pytest.mark.parametrize(
    ("nodes", "waits", "rank", "condition", "rules"),
    [
        (2, 2, "$SKYPILOT_NODE_RANK", "", set()),
        (2, "$SKYPILOT_NUM_NODES", "$SKYPILOT_NODE_RANK", "", set()),
        (2, 2, 0, "", {"same-node-rank"}),
        (4, 2, "$SKYPILOT_NODE_RANK", "", {"nodes-differ"}),
        (1, 1, 0, "", set()),
        (2, 1, 0, "", set()),
        (2, 2, 0, '[ "$SKYPILOT_NODE_RANK" = 0 ] || exit 0', set()),
    ],
)
def test_task_of_several_nodes_runs_its_script_on_each(nodes, waits, rank, condition, rules):
    text = SKYPILOT.format(nodes=nodes, waits=waits, rank=rank, condition=condition, master="$head")
    assert found(text) == {(5, rule) for rule in rules}


def test_task_has_no_master_on_each_of_its_nodes():
    text = SKYPILOT.format(
        nodes=2, waits=2, rank="$SKYPILOT_NODE_RANK", condition="", master="localhost"
    )
    assert found(text) == {(5, "master-is-loopback")}


@pytest.mark.parametrize(
    ("nodes", "waits", "rank", "rules"),
    [
        (2, 2, 0, {"same-node-rank"}),
        (3, 2, "$DSTACK_NODE_RANK", {"nodes-differ"}),
        (1, 2, 0, set()),
    ],
)
def test_commands_of_dstack_are_read_one_by_one(nodes, waits, rank, rules):
    assert found(DSTACK.format(nodes=nodes, waits=waits, rank=rank)) == {
        (5, rule) for rule in rules
    }
