"""Pods that lack shared memory or the right to lock memory, another libnccl on the loader's path, and the view for code hosts."""

from __future__ import annotations

import json

import pytest
from foreign_schemas import sarif_faults

from unhang import cli
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text

POD = """apiVersion: v1
kind: Pod
spec:
  containers:
    - name: train
      resources:
        limits:
          nvidia.com/gpu: {gpus}
          {rdma}
{more}
"""


def rules_of(text, kind):
    return {(one.line, one.rule) for one in lint_text(text, kind, Context())}


def test_pod_with_several_gpus_and_no_shared_memory_is_reported_at_its_line():
    assert (8, "pod-shm") in rules_of(POD.format(gpus=8, rdma="", more=""), "kubernetes")


@pytest.mark.parametrize(("gpus", "more"), [(1, ""), (8, "      volumeMounts:\n        - mountPath: /dev/shm"), (8, "  hostIPC: true")])
def test_pod_that_needs_none_or_has_its_shared_memory_is_left_alone(gpus, more):
    assert "pod-shm" not in {rule for _, rule in rules_of(POD.format(gpus=gpus, rdma="", more=more), "kubernetes")}


def test_pod_with_rdma_devices_needs_the_right_to_lock_memory():
    rdma = "rdma/hca_shared_devices_a: 1"
    assert "pod-ipc-lock" in {rule for _, rule in rules_of(POD.format(gpus=1, rdma=rdma, more=""), "kubernetes")}
    more = "      securityContext: {capabilities: {add: [IPC_LOCK]}}"
    assert "pod-ipc-lock" not in {rule for _, rule in rules_of(POD.format(gpus=1, rdma=rdma, more=more), "kubernetes")}


def test_second_document_of_a_file_is_reported_at_its_own_line():
    text = "apiVersion: v1\nkind: ConfigMap\n---\n" + POD.format(gpus=2, rdma="", more="")
    assert (11, "pod-shm") in rules_of(text, "kubernetes")


@pytest.mark.parametrize("line", ["export LD_LIBRARY_PATH=/opt/nccl/lib:$LD_LIBRARY_PATH", "export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libnccl.so.2"])
def test_library_path_that_brings_another_libnccl_is_reported(line):
    assert (1, "foreign-libnccl") in rules_of(line + "\n", "shell")


@pytest.mark.parametrize(
    "line", ["export LD_LIBRARY_PATH=/usr/local/cuda/lib64", "# LD_LIBRARY_PATH=/opt/nccl/lib", "export LD_PRELOAD=/opt/nccl/lib/libnccl.so  # unhang: ignore"]
)
def test_library_path_without_nccl_or_that_is_meant_is_left_alone(line):
    assert "foreign-libnccl" not in {rule for _, rule in rules_of(line + "\n", "shell")}


def test_sarif_names_rule_file_line_and_level(tmp_path, capsys):
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\nexport NCCL_TIMEOUT=1200000\n")
    assert cli.main(["lint", "--format", "sarif", str(script)]) == 1
    text = capsys.readouterr().out
    assert sarif_faults(text) == []
    log = json.loads(text)
    result = log["runs"][0]["results"][0]
    assert log["version"] == "2.1.0" and result["ruleId"] == "name-not-real" and result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2


def test_sarif_of_a_relative_file_is_a_uri_and_each_rule_stands_once_with_its_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my jobs").mkdir()
    (tmp_path / "my jobs" / "é#1.sh").write_text("export NCCL_TIMEOUT=1\nexport NCCL_SOCKET_TIMEOUT=1\nexport NCCL_DEBUG=verbose\n")
    cli.main(["lint", "-o", "sarif", "my jobs"])
    text = capsys.readouterr().out
    assert sarif_faults(text) == []
    run = json.loads(text)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [one["id"] for one in rules] == ["name-not-real", "wrong-value"] and all(one["helpUri"].startswith("https://") for one in rules)
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    assert {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]} == {"my%20jobs/%C3%A9%231.sh"}


def test_sarif_without_findings_has_an_empty_run(tmp_path, capsys):
    (tmp_path / "a.sh").write_text("export NCCL_DEBUG=WARN\n")
    assert cli.main(["lint", "-o", "sarif", str(tmp_path / "a.sh")]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []


JOB = """kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - command: ["torchrun", "--nnodes=3", "--node_rank={first}", "train.py"]
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
              volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
    Worker:
      replicas: {workers}
      template:
        spec:
          containers:
            - command: ["torchrun", "--nnodes=3", {second} "train.py"]
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
              {shm}
"""
MOUNT = "volumeMounts: [{name: shm, mountPath: /dev/shm}]"


@pytest.mark.parametrize(
    ("first", "workers", "second", "lines"),
    [(0, 2, '"--node_rank=0",', [9, 17]), (0, 1, '"--node_rank=1",', []), (0, 1, '"--node_rank", "0",', [9, 17]), ("$(RANK)", 2, '"--node_rank=1",', [17])],
)
def test_pods_of_a_job_that_take_themselves_for_one_node_are_found(first, workers, second, lines):
    text = JOB.format(first=first, workers=workers, second=second, shm=MOUNT)
    assert rules_of(text, "kubernetes") == {(line, "same-node-rank") for line in lines}


def test_shared_memory_of_the_master_is_not_that_of_the_worker():
    assert rules_of(JOB.format(first="$(RANK)", workers=2, second="", shm=""), "kubernetes") == {(18, "pod-shm")}
    assert rules_of(JOB.format(first="$(RANK)", workers=2, second="", shm=MOUNT), "kubernetes") == set()


def test_list_of_devices_that_is_one_string_is_found_in_compose_alone():
    compose = "services:\n  head:\n    deploy: {resources: {reservations: {devices: [{capabilities: [gpu],\n      device_ids: ['0,1,2']}]}}}\n"
    assert [(one.line, one.rule, one.instead) for one in lint_text(compose, "kubernetes", Context())] == [(4, "device-ids-in-one", "['0', '1', '2']")]
    assert lint_text(compose.replace("'0,1,2'", "'0', '1', '2'"), "kubernetes", Context()) == []
    assert lint_text(compose.replace("services", "pods"), "kubernetes", Context()) == []
