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
from inotify_room import room_for_nodes
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
class Cluster:
    """bed: the nodes; fleet: a test's actions on them; environment: in which Slurm's commands find
    the controller; folder: of its daemons' files."""

    bed: Testbed
    fleet: Fleet
    environment: dict
    folder: object

    @contextlib.contextmanager
    def lent(self, work):
        """A Fleet of these nodes, with all changes undone at the end. work: a folder of the
        test."""
        with contextlib.ExitStack() as undo:
            yield Fleet(self.bed, self.fleet.library, work, undo)

    def say(self, *argv):
        """Output of one of Slurm's commands."""
        return self.bed.run(argv, env=self.environment).stdout.strip()

    def must(self, *argv):
        """The same for a command that must succeed."""
        done = self.bed.run(argv, env=self.environment)
        assert done.returncode == 0, f"{argv}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout.strip()

    def state(self, node):
        """(states, reason) from scontrol."""
        lines = self.must("scontrol", "show", "node", node).split("\n")
        fields = {key: value for line in lines for key, _, value in [line.strip().partition("=")]}
        return fields["State"].split()[0], fields.get("Reason", "")

    def start_job(self, node, script):
        """Starts a job that has a node for itself; gives its id once it runs."""
        return self.submit(script, "--exclusive", f"--nodelist={node}")

    def submit(self, script, *options):
        """Starts a job with these options of sbatch; gives its id once it runs."""
        path = self.folder / "job.sh"
        path.write_text(script)
        job = self.must(
            "sbatch",
            "--parsable",
            "--chdir=/tmp",
            "--output=/dev/null",
            *options,
            str(path),
        )
        audits.wait_until(
            lambda: self.say("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", f"job {job} runs"
        )
        return job

    def start_controller(self):
        """Starts slurmctld, which goes to the background by itself."""
        self.must("slurmctld", "-f", str(self.folder / "slurm.conf"))

    def stop_controller(self):
        """Ends slurmctld; its state is saved."""
        pid = (self.folder / "slurmctld.pid").read_text().strip()
        self.must("kill", pid)
        audits.wait_until(
            lambda: self.bed.run(["kill", "-0", pid]).returncode, "slurmctld has ended"
        )

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
        room_for_nodes(CACHE),
        Testbed(CACHE, names, prepare=prepare, layers=[layer, *layers]) as bed,
        contextlib.ExitStack() as undo,
    ):
        folder = bed.folder / "slurm"
        environment = {**audits.environment_of(bed, work), "SLURM_CONF": str(folder / "slurm.conf")}
        cluster = Cluster(bed, Fleet(bed, library, work, undo), environment, folder)
        _start(cluster, names, key, returns)
        cluster.all_idle()
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
