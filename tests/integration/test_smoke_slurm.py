"""The smoke test through real Slurm: slurmctld, two slurmd and munge on this machine, in folders and on ports of their own."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import audits
import pytest

NODES = ("gpu001", "gpu002")
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
DEADLINE_S = 240
CONFIGURATION = """ClusterName=unhang
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
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
NodeName=gpu001 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=gpu002 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture(scope="module")
def slurm():
    """The environment of a small running cluster."""
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"apt has no {', '.join(missing)} here")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="unhang-slurm-"))
    folder.chmod(0o755)
    for name in ("munge", "state"):
        (folder / name).mkdir(mode=0o700)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o400)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=socket.gethostname(), folder=folder, ports=free_ports(3)))
    files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    start(["munged", "--force", f"--socket={folder}/munge.socket", *(f"--{option}={folder}/munge/{name}" for option, name in files.items())])
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PYTHONPATH": ""}
    try:
        start(["slurmctld", "-f", str(folder / "slurm.conf")], environment)
        for name in NODES:
            start(["slurmd", "-N", name, "-f", str(folder / "slurm.conf")], environment)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        audits.wait_until(lambda: subprocess.run(idle, env=environment, capture_output=True, text=True).stdout.strip() == "2", "two nodes are idle")
        yield environment
    finally:
        for path in [*folder.glob("*.pid"), folder / "munge" / "pid"]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def start(argv, environment=None):
    """A daemon that goes to the background by itself."""
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def smoke(environment, *arguments):
    """A finished `unhang smoke --launcher slurm`."""
    common = ["--launcher", "slurm", "--hosts", "gpu[001-002]", "--nproc", "1", "--backend", "gloo", "--python", sys.executable, "--format", "json"]
    command = [sys.executable, "-P", "-m", "unhang", "smoke", *common, "--max-size", "64K", "--sizes", "16K", *arguments]
    said = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": DEADLINE_S, "cwd": audits.PROJECT}
    done = subprocess.run(command, env=environment, check=False, **said)
    sys.stdout.write(f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}\n")
    return done.returncode, json.loads(done.stdout)


def test_a_group_under_srun_passes_with_the_same_result_as_everywhere(slurm):
    code, result = smoke(slurm, "--phases", "broadcast,all_reduce,bandwidth", "--step-timeout", "60")
    assert code == 0, result["suspects"]
    assert (result["schema"], result["verdict"], result["launcher"], result["world_size"]) == ("unhang/smoke/1", "pass", "slurm", 2)
    assert [row["host"] for row in result["hosts"]] == list(NODES)


def test_a_stopped_rank_under_srun_is_named_and_nothing_is_left(slurm):
    options = ("--phases", "all_reduce", "--step-timeout", "20", "--no-experiments")
    code, result = smoke(slurm, *options, "--drill", "gpu002:stop:all_reduce")
    assert code == 1
    assert [(row["host"], row["rank"], row["phase"]) for row in result["suspects"]] == [("gpu002", 1, "all_reduce")]
    assert "stopped" in result["suspects"][0]["why"]
    jobs = subprocess.run(["squeue", "--noheader"], env=slurm, capture_output=True, text=True, check=True).stdout
    assert jobs.strip() == ""
