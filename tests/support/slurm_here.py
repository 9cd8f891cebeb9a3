"""A real Slurm on this machine: munged, slurmctld and a slurmd for each node, in the namespaces of
a test bed without booted nodes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess

import audits
from four_nodes import CACHE
from testbed import Testbed

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue", "scontrol")
NODES = ("gpu001", "gpu002", "gpu003", "gpu004", "cpu01")
CONFIGURATION = """ClusterName=unhang
SlurmctldHost={host}(10.213.7.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
MessageTimeout=5
GresTypes=gpu
TopologyPlugin=topology/tree
RebootProgram=/bin/true
DebugFlags=NO_CONF_HASH
NodeName=gpu[001-004] NodeHostname={host} NodeAddr=10.213.7.1 Port=[7001-7004] CPUs=2 Gres=gpu:h200:2 Feature=h200,ib State=UNKNOWN
NodeName=cpu01 NodeHostname={host} NodeAddr=10.213.7.1 Port=7005 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=train Nodes=gpu[001-003] State=UP
"""
TOPOLOGY = (
    "SwitchName=leaf1 Nodes=gpu[001-002]\nSwitchName=leaf2"
    " Nodes=gpu[003-004],cpu01\nSwitchName=spine Switches=leaf[1-2]\n"
)


def missing():
    """Programs of Slurm that this machine does not have."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@dataclasses.dataclass
class SlurmCommands:
    """bed: its namespaces; folder: of the daemons' files; environment: in which Slurm's commands
    work."""

    bed: Testbed
    folder: object
    environment: dict

    def must(self, *command, code=0):
        """Output of a command."""
        done = self.bed.run(command, env=self.environment)
        assert done.returncode == code, f"{command}: {done.returncode} {done.stdout} {done.stderr}"
        return done.stdout.strip()

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

    def state(self, node):
        """(states, reason) from scontrol."""
        command = self.must("scontrol", "show", "node", node).split("\n")
        fields = {key: value for line in command for key, _, value in [line.strip().partition("=")]}
        return fields["State"].split()[0], fields.get("Reason", "")

    def start_job(self, node, script="#!/bin/sh\nexec sleep 3000\n"):
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
            lambda: self.must("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", f"job {job} runs"
        )
        return job


class SlurmHere(SlurmCommands):
    """Its nodes are daemons on this machine."""

    run = SlurmCommands.must

    def start_daemon(self, node):
        """Starts slurmd of a node."""
        (self.folder / f"spool-{node}").mkdir(exist_ok=True)
        self.run("slurmd", "-N", node)

    def play(self, work, playbook, hosts, variables, *arguments):
        """A finished ansible-playbook with hosts that are only names."""
        inventory = work / "hosts.yml"
        inventory.write_text(
            "all:\n  vars: {ansible_connection: local}\n "
            f" hosts:\n{''.join(f'    {name}: {{}}' + chr(10) for name in hosts)}"
        )
        extra = [
            word for name, value in variables.items() for word in ("-e", f"{{{name!r}: {value!r}}}")
        ]
        argv = self.bed.inside(
            ["ansible-playbook", str(playbook), "-i", str(inventory), *extra, *arguments],
            audits.PROJECT,
        )
        captured = {
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "text": True,
            "errors": "replace",
            "timeout": audits.DEADLINE_S,
        }
        environment = {
            **self.environment,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_NOCOLOR": "1",
        }
        return subprocess.run(argv, env=environment, check=False, **captured)


def booted(work, nodes=NODES, configuration=CONFIGURATION, topology=TOPOLOGY):
    """The cluster, with every node idle; ends with its namespaces. A generator for a fixture.
    configuration, topology: texts of their files."""
    with Testbed(CACHE, ()) as bed:
        folder = bed.folder / "slurm"
        for part in ("munge", "state"):
            (folder / part).mkdir(mode=0o700, parents=True)
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o400)
        (folder / "slurm.conf").write_text(
            configuration.format(host=socket.gethostname(), folder=folder)
        )
        (folder / "topology.conf").write_text(topology)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "gres.conf").write_text(f"Name=gpu Type=h200 File={folder}/nvidia[0-1]\n")
        for number in (0, 1):
            (folder / f"nvidia{number}").touch()
        cluster = SlurmHere(
            bed,
            folder,
            {**audits.environment_of(bed, work), "SLURM_CONF": str(folder / "slurm.conf")},
        )
        files = {
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
            "socket": "socket",
        }
        cluster.run(
            "munged",
            "--force",
            *(f"--{option}={folder}/munge/{name}" for option, name in files.items()),
        )
        cluster.start_controller()
        for node in nodes:
            cluster.start_daemon(node)
        audits.wait_until(
            lambda: (
                cluster.run("sinfo", "--noheader", "--states=idle", "--format=%D")
                == str(len(nodes))
            ),
            "every node is idle",
        )
        yield cluster
