"""Booted nodes in a real Slurm: each with its own slurmd and munged; slurmctld is on this side of
the bridge."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket

import audits
import hardware
import package_layer
import pytest
import torch_in_nodes
from four_nodes import CACHE, Fleet
from slurm_here import SlurmCommands
from testbed import Testbed
from testbed.tree import ready_tree

PACKAGES = ("slurmd", "munge", "podman", "crun")
CONTROLLER = ("munged", "slurmctld", "srun", "sinfo", "squeue", "sbatch", "scontrol")
CONFIGURATION = """ClusterName=unhang
SlurmctldHost={host}(10.213.7.1)
AuthType=auth/munge
{auth}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService={returns}
MinJobAge=86400
DebugFlags=NO_CONF_HASH
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing():
    """Programs of Slurm that this machine does not have."""
    return [name for name in CONTROLLER if shutil.which(name) is None]


def marks(timeout_s):
    """The pytestmark of a module whose nodes are in Slurm and have torch. timeout_s: of each
    test."""
    absent = missing()
    return [
        torch_in_nodes.needs_torch,
        pytest.mark.skipif(bool(absent), reason=f"apt has no {', '.join(absent)} here"),
        pytest.mark.timeout(timeout_s),
    ]


@dataclasses.dataclass
class Cluster(SlurmCommands):
    """fleet: a test's actions on the nodes of the bed."""

    fleet: Fleet

    @contextlib.contextmanager
    def lent(self, work):
        """A Fleet of these nodes, with all changes undone at the end. work: a folder of the
        test."""
        with contextlib.ExitStack() as undo:
            yield Fleet(self.bed, self.fleet.library, work, undo)

    def say(self, *argv):
        """Output of one of Slurm's commands."""
        return self.bed.run(argv, env=self.environment).stdout.strip()

    def all_idle(self):
        """Waits until every node accepts jobs."""
        count = str(len(self.bed.names))
        audits.wait_until(
            lambda: self.say("sinfo", "--noheader", "--states=idle", "--format=%D") == count,
            f"{count} nodes are idle",
        )


def configuration(names, folder, auth, returns=2):
    """slurm.conf of the controller or of a node. returns: ReturnToService."""
    rows = [
        f"NodeName={name} NodeAddr=10.213.7.{11 + place} CPUs=2 State=UNKNOWN"
        for place, name in enumerate(names)
    ]
    return CONFIGURATION.format(
        host=socket.gethostname(),
        folder=folder,
        auth=auth,
        nodes="\n".join(rows),
        returns=returns,
    )


@contextlib.contextmanager
def cluster_of(names, library, work, layers=(), returns=2):
    """A Cluster of these nodes, with every node idle. library: the fake libnvidia-ml; work: a
    folder of the test; layers: as for Testbed; returns: ReturnToService, of which Slurm's default
    is 0."""
    layer = package_layer.ready(CACHE, ready_tree(CACHE), PACKAGES)
    munge, key = package_layer.user_of(layer, "munge"), os.urandom(128)

    def prepare(node):
        torch_in_nodes.mount(node)
        hardware.install(node, hardware.H200X8, library, work)
        node.write("/etc/munge/munge.key", key, mode=0o400, owner=munge)
        node.write("/etc/slurm/slurm.conf", configuration(names, "/nowhere", "", returns))
        # Without this setting slurmd refuses a kernel that has the old control groups too; it uses
        # neither version.
        node.write("/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        node.write("/var/spool/slurmd/.keep", "")

    with (
        Testbed(CACHE, names, prepare=prepare, layers=[layer, *layers]) as bed,
        contextlib.ExitStack() as undo,
    ):
        folder = bed.folder / "slurm"
        environment = {**audits.environment_of(bed, work), "SLURM_CONF": str(folder / "slurm.conf")}
        cluster = Cluster(bed, folder, environment, Fleet(bed, library, work, undo))
        _start(cluster, names, key, returns)
        cluster.all_idle()
        yield cluster


PINNED = "CUDA_VISIBLE_DEVICES=0\n"


@contextlib.contextmanager
def pinned_cluster_of(names, library, work):
    """A Cluster each of whose nodes has one GPU pinned, which a role repairs; what a rollout keeps
    on a node goes with it."""
    with cluster_of(names, library, work) as cluster:
        for name in names:
            cluster.fleet.plant(name, "/etc/environment", PINNED)
            cluster.fleet.undo.callback(cluster.fleet.shell, name, "rm -rf /var/lib/unhang")
        yield cluster


def _start(cluster, names, key, returns):
    """Starts munged and slurmctld, which go to the background by themselves and end with the
    bed."""
    folder = cluster.folder
    for part in ("munge", "state"):
        (folder / part).mkdir(mode=0o700, parents=True)
    (folder / "munge" / "key").write_bytes(key)
    (folder / "munge" / "key").chmod(0o400)
    (folder / "slurm.conf").write_text(
        configuration(names, folder, f"AuthInfo=socket={folder}/munge/socket", returns)
    )
    files = {
        "key-file": "key",
        "pid-file": "pid",
        "log-file": "log",
        "seed-file": "seed",
        "socket": "socket",
    }
    cluster.must(
        "munged",
        "--force",
        *(f"--{option}={folder}/munge/{name}" for option, name in files.items()),
    )
    cluster.start_controller()
