"""Pods that lack shared memory or the right to lock memory, another libnccl on the loader's path,
and the view for code hosts."""

from __future__ import annotations

import json
import re
import time

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


@pytest.mark.parametrize(
    ("gpus", "more"),
    [(1, ""), (8, "      volumeMounts:\n        - mountPath: /dev/shm"), (8, "  hostIPC: true")],
)
def test_pod_that_needs_none_or_has_its_shared_memory_is_left_alone(gpus, more):
    assert "pod-shm" not in {
        rule for _, rule in rules_of(POD.format(gpus=gpus, rdma="", more=more), "kubernetes")
    }


def test_pod_with_rdma_devices_needs_the_right_to_lock_memory():
    rdma = "rdma/hca_shared_devices_a: 1"
    assert "pod-ipc-lock" in {
        rule for _, rule in rules_of(POD.format(gpus=1, rdma=rdma, more=""), "kubernetes")
    }
    more = "      securityContext: {capabilities: {add: [IPC_LOCK]}}"
    assert "pod-ipc-lock" not in {
        rule for _, rule in rules_of(POD.format(gpus=1, rdma=rdma, more=more), "kubernetes")
    }


@pytest.mark.parametrize(
    ("rdma", "is_found"),
    [
        ("vpc.amazonaws.com/efa: 4", False),
        ("vpc.amazonaws.com/efa: 4\n          rdma/ib: 1", True),
        ("nvidia.com/sriov-rdma-vf: 8", True),
    ],
)
def test_pod_with_efa_alone_needs_no_right_to_lock_memory(rdma, is_found):
    text = POD.format(gpus=1, rdma=rdma, more="")
    assert ("pod-ipc-lock" in {rule for _, rule in rules_of(text, "kubernetes")}) is is_found


def test_second_document_of_a_file_is_reported_at_its_own_line():
    text = "apiVersion: v1\nkind: ConfigMap\n---\n" + POD.format(gpus=2, rdma="", more="")
    assert (11, "pod-shm") in rules_of(text, "kubernetes")


@pytest.mark.parametrize(
    "line",
    [
        "export LD_LIBRARY_PATH=/opt/nccl/lib:$LD_LIBRARY_PATH",
        "export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    ],
)
def test_library_path_that_brings_another_libnccl_is_reported(line):
    assert (1, "foreign-libnccl") in rules_of(line + "\n", "shell")


@pytest.mark.parametrize(
    "line",
    [
        "export LD_LIBRARY_PATH=/usr/local/cuda/lib64",
        "# LD_LIBRARY_PATH=/opt/nccl/lib",
        "export LD_PRELOAD=/opt/nccl/lib/libnccl.so  # unhang: ignore",
    ],
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
    assert (
        log["version"] == "2.1.0"
        and result["ruleId"] == "name-not-real"
        and result["level"] == "error"
    )
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2


def test_sarif_of_a_relative_file_is_a_uri_and_each_rule_stands_once_with_its_page(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my jobs").mkdir()
    (tmp_path / "my jobs" / "é#1.sh").write_text(
        "export NCCL_TIMEOUT=1\nexport NCCL_SOCKET_TIMEOUT=1\nexport NCCL_DEBUG=verbose\n"
    )
    cli.main(["lint", "-o", "sarif", "my jobs"])
    text = capsys.readouterr().out
    assert sarif_faults(text) == []
    run = json.loads(text)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [one["id"] for one in rules] == ["name-not-real", "wrong-value"] and all(
        one["helpUri"].startswith("https://") for one in rules
    )
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == [
        one["ruleId"] for one in run["results"]
    ]
    assert {
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]
    } == {"my%20jobs/%C3%A9%231.sh"}


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
            - command: ["torchrun", "--nnodes={nodes}", "--node_rank={first}", "train.py"]
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
              volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
    Worker:
      replicas: {workers}
      template:
        spec:
          containers:
            - command: ["torchrun", "--nnodes={nodes}", {second} "train.py"]
              resources: {{limits: {{nvidia.com/gpu: 8}}}}
              {shm}
"""
MOUNT = "volumeMounts: [{name: shm, mountPath: /dev/shm}]"


@pytest.mark.parametrize(
    ("first", "workers", "second", "lines"),
    [
        (0, 2, '"--node_rank=0",', [9, 17]),
        (0, 1, '"--node_rank=1",', []),
        (0, 1, '"--node_rank", "0",', [9, 17]),
        ("$(RANK)", 2, '"--node_rank=1",', [17]),
    ],
)
def test_pods_of_a_job_that_take_themselves_for_one_node_are_found(first, workers, second, lines):
    text = JOB.format(nodes=1 + workers, first=first, workers=workers, second=second, shm=MOUNT)
    assert rules_of(text, "kubernetes") == {(line, "same-node-rank") for line in lines}


def test_shared_memory_of_the_master_is_not_that_of_the_worker():
    assert rules_of(
        JOB.format(nodes=3, first="$(RANK)", workers=2, second="", shm=""), "kubernetes"
    ) == {(18, "pod-shm")}
    assert (
        rules_of(
            JOB.format(nodes=3, first="$(RANK)", workers=2, second="", shm=MOUNT), "kubernetes"
        )
        == set()
    )


def test_list_of_devices_that_is_one_string_is_found_in_compose_alone():
    compose = (
        "services:\n  head:\n    ipc: host\n    deploy: {resources: {reservations: {devices:"
        " [{capabilities: [gpu],\n      device_ids: ['0,1,2']}]}}}\n"
    )
    assert [
        (one.line, one.rule, one.instead) for one in lint_text(compose, "kubernetes", Context())
    ] == [(5, "device-ids-in-one", "['0', '1', '2']")]
    assert lint_text(compose.replace("'0,1,2'", "'0', '1', '2'"), "kubernetes", Context()) == []
    assert lint_text(compose.replace("services", "pods"), "kubernetes", Context()) == []


@pytest.mark.parametrize(
    ("first", "workers", "second", "lines"),
    [
        (0, 2, '"--node_rank=1",', [17]),
        (0, 2, '"--node_rank=$(RANK)",', []),
        (0, 1, '"--node_rank=1",', []),
    ],
)
def test_pods_of_one_role_that_share_a_rank_are_found(first, workers, second, lines):
    text = JOB.format(nodes=1 + workers, first=first, workers=workers, second=second, shm=MOUNT)
    assert rules_of(text, "kubernetes") == {(line, "same-node-rank") for line in lines}
    in_words = re.sub(
        r"command: \[(.*)\]",
        lambda words: "command: [bash, -c, '{}']".format(re.sub('[",]', "", words[1])),
        text,
    )
    assert rules_of(in_words, "kubernetes") == {(line, "same-node-rank") for line in lines}
    assert rules_of(f"kind: Service\n---\n{text}", "kubernetes") == {
        (line + 2, "same-node-rank") for line in lines
    }


GROUP = """kind: LeaderWorkerSet
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: {size}
    leaderTemplate: {{spec: {{containers: [{{command: [torchrun, --nnodes={size}, --node_rank=0, --master_addr=$(LWS_LEADER_ADDRESS), train.py]}}]}}}}
    workerTemplate: {{spec: {{containers: [{{command: [torchrun, --nnodes={size}, --node_rank=1, --master_addr=$(LWS_LEADER_ADDRESS), train.py]}}]}}}}
"""


@pytest.mark.parametrize(("size", "lines"), [(2, []), (3, [7])])
def test_groups_of_pods_are_jobs_of_their_own(size, lines):
    assert rules_of(GROUP.format(size=size), "kubernetes") == {
        (line, "same-node-rank") for line in lines
    }


JOBSET = """kind: JobSet
spec: {{replicatedJobs: [{{replicas: {jobs}, template: {{spec: {{parallelism: {pods}, completions: {pods}, template: {{spec: {{containers: [
  {{command: [torchrun, --nnodes={nodes}, --rdzv-endpoint=$H, a.py]}}]}}}}}}}}}}]}}
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (JOB.format(nodes=4, first="$(RANK)", workers=2, second="", shm=MOUNT), [9, 17]),
        (JOB.format(nodes=1, first="$(RANK)", workers=2, second="", shm=MOUNT), [9, 17]),
        (JOB.format(nodes=3, first="$(RANK)", workers="$N", second="", shm=MOUNT), []),
        (JOB.format(nodes="1:4", first="$(RANK)", workers=2, second="", shm=MOUNT), []),
        (
            GROUP.format(size=4)
            .replace("nnodes=4", "nnodes=3")
            .replace("rank=1", "rank=$LWS_WORKER_INDEX"),
            [6, 7],
        ),
        (
            (
                "kind: TrainJob\nspec:\n  trainer: {numNodes: 2, command: [torchrun, --nnodes=4,"
                " train.py]}\n"
            ),
            [3],
        ),
        ("kind: TrainJob\nspec:\n  trainer: {command: [torchrun, --nnodes=4, train.py]}\n", [3]),
        (
            (
                "kind: Job\nspec: {template: {spec: {containers: [{command: [torchrun, --nnodes=2,"
                " train.py]}]}}}\n"
            ),
            [],
        ),
        (
            (
                "kind: Job\nspec: {parallelism: 4, template: {spec: {containers: [{command:"
                " [torchrun, --nnodes=2, train.py]}]}}}\n"
            ),
            [2],
        ),
        (
            (
                "kind: Job\nspec: {parallelism: 4, template: {spec: {containers: [{command:"
                " [torchrun, --nnodes=1, train.py]}]}}}\n"
            ),
            [],
        ),
        (JOBSET.format(jobs=1, pods=2, nodes=4), [3]),
        (JOBSET.format(jobs=2, pods=2, nodes=4), []),
        (JOBSET.format(jobs=2, pods=2, nodes=2), []),
        (JOBSET.format(jobs=2, pods=2, nodes=1), []),
        (JOBSET.format(jobs=2, pods=2, nodes=8), [3]),
        (
            (
                "kind: Deployment\nspec: {replicas: 4, template: {spec: {containers: [{command:"
                " [torchrun, --nnodes=2, train.py]}]}}}\n"
            ),
            [],
        ),
    ],
)
def test_a_launcher_that_waits_for_another_number_of_nodes_than_the_job_has_pods_is_found(
    text, lines
):
    assert [
        (one.line, one.rule)
        for one in lint_text(text, "kubernetes", Context())
        if one.rule == "nodes-differ"
    ] == [(line, "nodes-differ") for line in lines]


def test_pods_that_start_something_else_count_or_not():
    job = (
        "kind: Job\nspec:\n  tasks:\n  - {replicas: 2, template: {spec: {containers: [{command:"
        " [torchrun, --nnodes=%d, --rdzv-endpoint=$H:1, train.py]}]}}}\n"
    )
    job += "  - {replicas: 1, template: {spec: {containers: [{command: [./train.sh]}]}}}\n"
    assert [
        [one.rule for one in lint_text(job % nodes, "kubernetes", Context())] for nodes in (2, 3, 4)
    ] == [
        [],
        [],
        ["nodes-differ"],
    ]


MEETS = "--rdzv-endpoint=$H:1"
PARTS = """kind: {kind}
spec:
  parallelism: 2
  template: {{spec: {{containers: [{{env: [{{name: N, value: {value}}}], command: [sh, -c, 'torchrun --nnodes=${{N}} {more} a.py']}}]}}}}
"""


@pytest.mark.parametrize(
    ("kind", "value", "more", "rules"),
    [
        ("JobSet", '"2"', "", {"master-is-loopback"}),
        ("JobSet", "2", MEETS, {"env-not-text"}),
        ("JobSet", "true", MEETS, {"env-not-text"}),
        ("JobSet", "'2'", MEETS, set()),
        ("JobSet", '"2"', "$MORE", set()),
        ("JobSet", '"2"', "--standalone", set()),
        ("JobSet", '"1"', "", set()),
        ("PyTorchJob", '"2"', "", set()),
        ("JobSet", "", MEETS, set()),
        ("JobSet", "{{n}}", MEETS, set()),
    ],
)
def test_variables_of_a_container_are_text_and_say_where_its_launcher_meets(
    kind, value, more, rules
):
    text = PARTS.format(kind=kind, value=value, more=more)
    assert {one.rule for one in lint_text(text, "kubernetes", Context())} == rules


def test_memory_that_kuberay_mounts_is_not_asked_for_and_a_hosts_infiniband_needs_locked_memory():
    pod = (
        "kind: RayCluster\nspec:\n  headGroupSpec: {template: {spec: {containers: [{resources:"
        ' {limits: {nvidia.com/gpu: "8"}}}]}}}\n'
    )
    assert rules_of(f"apiVersion: ray.io/v1\n{pod}", "kubernetes") == set()
    [found] = lint_text(f"apiVersion: other/v1\n{pod}", "kubernetes", Context())
    assert (found.rule, found.found) == ("pod-shm", 'nvidia.com/gpu: "8"')
    volume = "  volumes:\n  - hostPath:\n      path: /dev/infiniband\n"
    pod = (
        f"kind: Pod\nspec:\n{volume}  containers:\n  - resources: {{limits: {{nvidia.com/gpu:"
        f" 8}}}}\n    {MOUNT}\n"
    )
    assert rules_of(pod, "kubernetes") == {(7, "pod-ipc-lock")}


COMMAND = "torchrun --nnodes=2 --node_rank=0 --master_addr={address} train.py"
CONTAINERS = {
    "a shell's words": ("command: [bash, -c, '{command}']", 6),
    "words in a line": ("command: [{words}]", 6),
    "words in lines": (
        (
            "command:\n        - torchrun\n        - --nnodes=2\n      args: [--master_addr,"
            " {address}, train.py]"
        ),
        9,
    ),
    "a script": ("args:\n        - |\n          set -e\n\n          {command}", 10),
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize(
    ("address", "is_found"),
    [("localhost", True), ("127.0.0.1", True), ("train-0", False), ("$(MASTER_ADDR)", False)],
)
def test_master_on_loopback_is_found_in_the_command_of_a_pod(kind, address, is_found):
    form, line = CONTAINERS[kind]
    command = COMMAND.format(address=address)
    container = form.format(command=command, words=", ".join(command.split()), address=address)
    text = (
        f"kind: Pod\nspec:\n  containers:\n    - name: train\n      image: x\n      {container}\n"
    )
    found = lint_text(text, "kubernetes", Context())
    assert [(one.line, one.rule) for one in found] == (
        [(line, "master-is-loopback")] if is_found else []
    )
    assert not found or "Service" in found[0].instead


def test_nodes_on_one_machine_and_a_master_that_others_call_by_name_may_be_at_loopback():
    command = COMMAND.format(address="localhost")
    compose = "services:\n" + "".join(
        f"  {name}: {{command: {command.replace('rank=0', f'rank={name[1:]}')}}}\n"
        for name in ("n0", "n1")
    )
    assert lint_text(compose, "kubernetes", Context()) == []
    assert [
        (one.line, one.rule)
        for one in lint_text(compose.rpartition("  n1")[0], "kubernetes", Context())
    ] == [(2, "master-is-loopback")]
    role = (
        "    {role}: {{template: {{spec: {{containers: [{{command: [bash, -c, {command}]}}]}}}}}}\n"
    )
    worker = COMMAND.format(address="train-master-0").replace("rank=0", "rank=1")
    text = (
        "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n"
        + role.format(role="Master", command=command)
        + role.format(role="Worker", command=worker)
    )
    assert lint_text(text, "kubernetes", Context()) == []


@pytest.mark.parametrize(
    "line",
    [
        'env: [{name: A, value: b}, {name: NCCL_P2P_DISABLE, value: "1"}]',
        'env: [{value: "1", name: NCCL_P2P_DISABLE}]',
        "environment: {NCCL_P2P_DISABLE: 1}", "- {name: NCCL_P2P_DISABLE, value: '1'}",
        '"env": [{"name": "NCCL_P2P_DISABLE", "value": "1"}]',
    ],
)  # fmt: skip
def test_settings_are_read_in_every_style_of_yaml(line):
    assert [
        (one.line, one.rule, one.found)
        for one in lint_text(f"# one\n{line}\n", "kubernetes", Context())
    ] == [(2, "hides-fault", "NCCL_P2P_DISABLE=1")]
    assert lint_text(f"# one\n# {line}\n", "kubernetes", Context()) == []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000,
        "[a," * 100_000,
        "- " * 300_000,
        "{a: " * 50_000,
        "a: &x [*x]\n",
        "a: \ud800\n",
        "&a " * 9,
        "? " * 50_000,
    ],
)
def test_hostile_yaml_is_linted_in_bounded_time(text):
    began = time.monotonic()
    lint_text(text, "kubernetes", Context())
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("head", "advice"),
    [
        ("apiVersion: batch/v1\nkind: Job", "JOB_COMPLETION_INDEX"),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob", "the operator sets RANK"),
        ("kind: 'StatefulSet'", "${HOSTNAME##*-}"), ("kind: LeaderWorkerSet", "$LWS_WORKER_INDEX"),
        ("kind: Deployment", "another --node_rank for each pod"),
        ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job", "another --node_rank for each pod"),
        ("a: b", "another --node_rank for each pod"),
    ],
)  # fmt: skip
def test_remedy_of_a_shared_rank_is_one_that_this_kind_of_job_has(head, advice):
    text = (
        f"{head}\nspec: {{parallelism: 2, replicas: 2, template: {{spec: {{containers: [{{command:"
        " [torchrun, --nnodes=2, --node_rank=0, train.py]}]}}}\n"
    )
    (found,) = lint_text(text, "kubernetes", Context())
    assert found.rule == "same-node-rank" and advice in found.instead
    assert ("operator" in found.instead) == ("kubeflow" in head) and ("c10d" in found.instead) == (
        "kubeflow" not in head
    )


def test_master_that_the_pods_of_other_documents_name_is_reached():
    pod = (
        "kind: Pod\nmetadata: {{name: m{0}}}\nspec:\n  containers:\n    - command: [torchrun,"
        " --nnodes=2, --node_rank={0}, --master_addr={1}, train.py]\n"
    )
    text = f"{pod.format(0, 'localhost')}---\n{pod.format(1, 'm0.m')}"
    assert [
        one for one in lint_text(text, "kubernetes", Context()) if one.rule == "master-is-loopback"
    ] == []
    assert [
        one.rule
        for one in lint_text(text.replace("m0.m", "localhost"), "kubernetes", Context())
        if one.rule == "master-is-loopback"
    ]
