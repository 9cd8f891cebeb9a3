"""The role node_gate's Prolog and Epilog called by a real slurmd: a watcher lives as long as its
job, tells that it hangs, and leaves nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import audits
import pytest
import slurm_nodes
import torch_in_nodes
from role_plays import play_role

NODE = "gpu001"
SOURCE = "/opt/unhang-source"
UNHANG = f"""#!/bin/sh
PYTHONPATH={SOURCE}/tools:{SOURCE}/module_utils exec {torch_in_nodes.PYTHON} -c 'import sys; from unhang.cli import main; sys.exit(main(sys.argv[1:]))' "$@"
"""
# Of its two ranks the last one sleeps before a collective.
HANGS = f"""#!/bin/sh
export OMP_NUM_THREADS=1 INSPECT_JOB_FOLDER=/tmp GLOO_SOCKET_IFNAME=lo WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29513
for rank in 0 1; do
RANK=$rank LOCAL_RANK=$rank {torch_in_nodes.PYTHON} {SOURCE}/inspect_job.py never 1 gloo &
done
wait
"""
WATCHED = [
    "--no-progress",
    "8",
    "--every",
    "1",
    "--py-spy",
    str(torch_in_nodes.PYTHON.with_name("py-spy")),
]
pytestmark = slurm_nodes.marks(1800)


@pytest.fixture(scope="module")
def cluster(fake_library, tmp_path_factory):
    """A node with an unhang of its own, in a Slurm whose Prolog and Epilog are the role's."""
    with slurm_nodes.cluster_of([NODE], fake_library, tmp_path_factory.mktemp("slurm")) as cluster:
        inside = f"{cluster.bed.inner_state}/{NODE}/root{SOURCE}"
        cluster.must("mkdir", "-p", inside)
        job = audits.PROJECT / "tests" / "bench" / "inspect_job.py"
        cluster.must(
            "cp",
            "-r",
            *(str(audits.PROJECT / name) for name in ("tools", "module_utils")),
            str(job),
            inside,
        )
        cluster.fleet.plant(NODE, "/usr/local/bin/unhang", UNHANG, mode=0o755)
        # how a job ended is asked of Slurm, whose commands a compute node has
        scontrol = Path(shutil.which("scontrol")).read_bytes()
        cluster.fleet.plant(NODE, "/usr/bin/scontrol", scontrol, 0o755)
        place(cluster)
        lines = "Prolog=/opt/unhang/watch-prolog.sh\nEpilog=/opt/unhang/watch-epilog.sh\n"
        with (cluster.folder / "slurm.conf").open("a") as conf:
            conf.write(lines)
        cluster.fleet.shell(NODE, f"printf '{lines}' >>/etc/slurm/slurm.conf")
        cluster.must("scontrol", "reconfigure")
        cluster.all_idle()
        yield cluster


def place(cluster, *arguments):
    given = {
        "node_gate_record": False,
        "node_gate_watch": True,
        "node_gate_watch_arguments": [*WATCHED, *arguments],
    }
    assert play_role(cluster.fleet, "node_gate", NODE, {}, **given).code == 0


def state_of_watcher(cluster, job):
    return cluster.fleet.shell(
        NODE, f"systemctl is-active unhang-watch@job-{job}.service || true"
    ).strip()


def printed(cluster, job):
    return cluster.fleet.shell(NODE, f"journalctl -u unhang-watch@job-{job} -o cat")


def assert_nothing_is_left(cluster, job):
    audits.wait_until(lambda: cluster.say("squeue", "-h", "-j", job) == "", "the job has ended")
    audits.wait_until(
        lambda: state_of_watcher(cluster, job) == "inactive", "its watcher has ended with it"
    )
    cluster.all_idle()  # neither Prolog nor Epilog drained the node
    assert cluster.fleet.shell(NODE, "pgrep -f '[w]atch --slurm-job' || true") == ""
    assert (
        cluster.fleet.shell(NODE, "systemctl list-units --all --plain --no-legend 'unhang-watch@*'")
        == ""
    )
    assert cluster.fleet.shell(NODE, "find /tmp /dev/shm -name 'unhang*'") == ""


def test_a_watcher_starts_with_the_job_tells_that_it_hangs_and_ends_with_it(cluster):
    job = cluster.start_job(NODE, HANGS)
    audits.wait_until(
        lambda: state_of_watcher(cluster, job) == "active", "the Prolog has started its watcher"
    )
    audits.wait_until(
        lambda: "hung: rank 1 on" in printed(cluster, job), "the watcher tells the hang"
    )
    assert "2 ranks on" in printed(cluster, job)
    assert "it sleeps in happen" in printed(cluster, job)
    assert cluster.say("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    cluster.must("scancel", job)
    assert_nothing_is_left(cluster, job)
    record = cluster.fleet.shell(NODE, "cat /var/log/unhang/*")
    assert f'"job":"slurm {job}"' in record and '"became":"right"' in record  # it was cancelled


def test_the_evidence_of_a_hang_outlives_the_job_for_root_alone(cluster):
    place(cluster, "--on-hang", "dump")
    job = cluster.start_job(NODE, HANGS)
    audits.wait_until(
        lambda: "the evidence is in" in printed(cluster, job), "the watcher writes the evidence"
    )
    cluster.must("scancel", job)
    assert_nothing_is_left(cluster, job)
    kept = cluster.fleet.shell(
        NODE,
        "stat -c '%a %U' /var/log/unhang; ls /var/log/unhang/hang* | sed 's/[0-9T]*.tar/TIME.tar/'",
    )
    assert kept.split()[:3] == ["700", "root", "/var/log/unhang/hang-TIME.tar.gz"]
