"""The smoke test under a real Slurm: slurmctld and four real nodes, each with its own slurmd and
munged, and gloo between them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys

import audits
import node_launchers
import pytest
import slurm_nodes
import torch_in_nodes
from descendant_processes import launched
from four_nodes import NAMES

pytestmark = torch_in_nodes.needs_torch
DEADLINE_S = 240


@dataclasses.dataclass
class Cluster(slurm_nodes.Cluster):
    """The nodes, and `unhang smoke` over them."""

    def run(self, *arguments, launcher=("--launcher", "slurm"), hosts="gpu[001-004]"):
        """(code, result) of `unhang smoke`."""
        common = [
            *launcher,
            "--hosts",
            hosts,
            "--nproc",
            "1",
            "--backend",
            "gloo",
            "--python",
            str(torch_in_nodes.PYTHON),
        ]
        argv = [
            sys.executable,
            "-P",
            "-m",
            "unhang",
            "smoke",
            *common,
            "--format",
            "json",
            "--max-size",
            "64K",
            "--sizes",
            "16K",
            *arguments,
        ]
        captured = {
            "capture_output": True,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "timeout": DEADLINE_S,
        }
        done = subprocess.run(
            self.bed.inside(argv, audits.PROJECT), env=self.environment, check=False, **captured
        )
        sys.stdout.write(f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}\n")
        return done.returncode, json.loads(done.stdout)

    def nothing_left(self):
        """No job and no process of the test on any node."""
        # for a moment after srun it is still completing
        audits.wait_until(lambda: self.say("squeue", "--noheader") == "", "Slurm has ended the job")
        audits.wait_until(
            lambda: (
                not any(
                    "unhang_smoke.pyz" in self.fleet.shell(name, "ps -eo args") for name in NAMES
                )
            ),
            "the payload is gone",
        )


@pytest.fixture(scope="module")
def slurm(tmp_path_factory, fake_library):
    """The cluster, with every node idle."""
    if missing := slurm_nodes.missing():
        pytest.skip(f"apt has no {', '.join(missing)} here")
    with slurm_nodes.cluster_of(NAMES, fake_library, tmp_path_factory.mktemp("slurm")) as nodes:
        yield Cluster(nodes.bed, nodes.folder, nodes.environment, nodes.fleet)


def test_four_nodes_under_srun_pass_with_the_same_result_as_everywhere(slurm):
    code, result = slurm.run("--phases", "broadcast,all_reduce,bandwidth", "--step-timeout", "60")
    assert code == 0, result["suspects"]
    assert (result["schema"], result["verdict"], result["launcher"], result["world_size"]) == (
        "unhang/smoke/1",
        "pass",
        "slurm",
        4,
    )
    assert [row["host"] for row in result["hosts"]] == list(NAMES)
    assert result["rendezvous"]["interface"] == "host0"
    slurm.nothing_left()


def test_a_node_that_corrupts_is_isolated_under_srun(slurm):
    code, result = slurm.run(
        "--phases",
        "all_reduce",
        "--step-timeout",
        "60",
        "--no-experiments",
        "--drill",
        "gpu003:corrupt",
    )
    assert code == 1
    assert [row["host"] for row in result["suspects"]] == ["gpu003"]
    assert result["isolation"]["bad_nodes"] == ["gpu003"], result["isolation"]
    slurm.nothing_left()


def test_a_stopped_rank_under_srun_is_named_and_nothing_is_left(slurm):
    options = ("--phases", "all_reduce", "--step-timeout", "20", "--no-experiments", "--no-isolate")
    code, result = slurm.run(*options, "--drill", "gpu002:stop:all_reduce")
    assert code == 1
    assert [(row["host"], row["rank"], row["phase"]) for row in result["suspects"]] == [
        ("gpu002", 1, "all_reduce")
    ]
    assert "stopped" in result["suspects"][0]["why"]
    slurm.nothing_left()


def test_a_killed_launcher_leaves_no_job_and_no_rank(slurm):
    common = [
        "--launcher",
        "slurm",
        "--hosts",
        "gpu[001-004]",
        "--nproc",
        "1",
        "--backend",
        "gloo",
        "--python",
        str(torch_in_nodes.PYTHON),
    ]
    options = [
        "--phases",
        "all_reduce",
        "--step-timeout",
        "60",
        "--max-size",
        "64K",
        "--drill",
        "gpu001:absent:all_reduce",
    ]
    argv = slurm.bed.inside(
        [sys.executable, "-P", "-m", "unhang", "smoke", *common, *options], audits.PROJECT
    )
    process = subprocess.Popen(
        argv,
        env=slurm.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert any(line.strip() == "unhang: phase all_reduce" for line in process.stderr)
        for pid in launched(process.pid, b"-m unhang smoke"):
            os.kill(pid, signal.SIGKILL)
    slurm.nothing_left()


# A crun that does not change limits and creates no keyring: podman always requests both, and a node
# inside a node, or without CAP_SYS_RESOURCE, may do neither.
RUNTIME = """#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
if "--bundle" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as source:
        bundle = json.load(source)
    bundle["process"].pop("rlimits", None)
    with open(path, "w") as target:
        json.dump(bundle, target)
if "create" in words:
    words.insert(words.index("create") + 1, "--no-new-keyring")
os.execv("/usr/bin/crun", ["crun", *words])
"""
STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "/run/images"\nrunroot = "/run/containers"\n'
ENGINE = (
    '[containers]\ncgroups = "disabled"\n[engine]\nruntime = "crun"\n[engine.runtimes]\ncrun ='
    ' ["/usr/local/sbin/crun"]\n'
)
IN_IMAGE = (
    "bin lib lib64 usr/bin usr/lib64 usr/lib/python3 usr/lib/python3.11 usr/lib/x86_64-linux-gnu"
    " etc/ld.so.cache etc/passwd etc/group etc/alternatives"
)
IMAGE = "localhost/users-image"
TWO = NAMES[:2]


@pytest.fixture(scope="module")
def images(slurm):
    """Two of the nodes with podman and an image: it holds the node's own programs, but neither
    ip(8) nor torch, which is a volume."""
    for name in TWO:
        node = slurm.bed.nodes[name]
        node.write("/usr/local/sbin/crun", RUNTIME, mode=0o755)
        node.write("/etc/containers/storage.conf", STORAGE)
        node.write("/etc/containers/containers.conf", ENGINE)
        # a killed launcher leaves its folders behind, as the previous test checked
        slurm.fleet.shell(name, "rm -rf /tmp/unhang-smoke-*")
        slurm.fleet.shell(name, f"cd / && tar -c {IN_IMAGE} | podman import - {IMAGE}")
        slurm.fleet.undo.callback(slurm.fleet.shell, name, "cd / && podman rmi --all --force")
    return slurm


def in_image():
    """Options that run the ranks in the image, under its volume's torch."""
    volumes = [torch_in_nodes.ENVIRONMENT, *([] if torch_in_nodes.OWN else [sys.base_prefix])]
    mounts = [f"--container-option=--volume={place}:{place}:ro" for place in volumes]
    return [
        "--container-image",
        IMAGE,
        "--container-runtime",
        "podman",
        *mounts,
        "--phases",
        "broadcast,all_reduce",
        "--step-timeout",
        "60",
    ]


def holds(cluster, result, launcher):
    """The two nodes passed in containers, and no container is left."""
    assert (result["verdict"], result["launcher"], result["world_size"]) == (
        "pass",
        launcher,
        2,
    ), result["suspects"]
    assert {row["executable"] for row in result["hosts"]} == {str(torch_in_nodes.PYTHON)}
    for name in TWO:
        assert cluster.fleet.shell(name, "cd / && podman ps --all --quiet") == ""
        assert "unhang-smoke-" not in cluster.fleet.shell(name, "ls /tmp")
    cluster.nothing_left()


def test_in_an_image_under_srun(images):
    code, result = images.run(*in_image(), hosts="gpu[001-002]")
    assert code == 0, result["suspects"]
    holds(images, result, "slurm")


def test_in_an_image_over_ssh(images):
    ssh = ("--ssh-config", str(node_launchers.ssh_config(images.bed, images.fleet.work)))
    code, result = images.run(*in_image(), launcher=ssh, hosts="gpu[001-002]")
    assert code == 0, result["suspects"]
    holds(images, result, "fabric")


def test_in_an_image_by_the_playbook(images):
    inventory = audits.inventory_of(images.bed, {"training": list(TWO)})
    code, found, output = node_launchers.play(images.fleet, *in_image(), inventory=inventory)
    assert code == 0, output
    holds(images, found["group"], "ansible")


def test_a_rank_that_dies_in_an_image_is_named_and_its_container_goes(images):
    options = ("--drill", "gpu002:crash:all_reduce", "--no-experiments", "--no-isolate")
    ssh = ("--ssh-config", str(node_launchers.ssh_config(images.bed, images.fleet.work)))
    code, result = images.run(*in_image(), *options, launcher=ssh, hosts="gpu[001-002]")
    assert code == 1
    assert [(row["host"], row["phase"]) for row in result["suspects"]] == [("gpu002", "all_reduce")]
    assert "SIGSEGV" in result["suspects"][0]["why"]
    for name in TWO:
        assert images.fleet.shell(name, "cd / && podman ps --all --quiet") == ""
