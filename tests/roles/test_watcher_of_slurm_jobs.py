"""The role node_gate's service on a booted node with a real slurmd: it finds the jobs as they come,
tells which of them hangs and no other, and does what a user's comment asks for."""

from __future__ import annotations

import shutil
import sys
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


def script_of(scene, port):
    """A job of two ranks; in `never` the last one sleeps before a collective."""
    return f"""#!/bin/sh
export OMP_NUM_THREADS=1 INSPECT_JOB_FOLDER=/tmp GLOO_SOCKET_IFNAME=lo WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}
for rank in 0 1; do
RANK=$rank LOCAL_RANK=$rank {torch_in_nodes.PYTHON} {SOURCE}/inspect_job.py {scene} 1 gloo &
done
wait
"""


# several jobs at once on a node of two processors
SHARED = "PartitionName=shared Nodes=ALL OverSubscribe=FORCE:8 State=UP\n"
WATCHED = [
    "--no-progress",
    "8",
    "--every",
    "1",
    "--job-comment",
    "--py-spy",
    str(torch_in_nodes.PYTHON.with_name("py-spy")),
]
pytestmark = slurm_nodes.marks(1800)


@pytest.fixture(scope="module")
def cluster(fake_library, tmp_path_factory):
    """A node with an unhang of its own and the role's service, in a Slurm."""
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
        # comments are asked for, and jobs ended, by Slurm's commands, which a compute node has
        for name in ("scontrol", "squeue", "scancel"):
            program = Path(shutil.which(name)).read_bytes()
            cluster.fleet.plant(NODE, f"/usr/bin/{name}", program, 0o755)
        with (cluster.folder / "slurm.conf").open("a") as conf:
            conf.write(SHARED)
        cluster.fleet.shell(NODE, f"printf '{SHARED}' >>/etc/slurm/slurm.conf")
        cluster.must("scontrol", "reconfigure")
        place(cluster)
        cluster.all_idle()
        yield cluster


def place(cluster, *arguments):
    given = {
        "node_gate_record": False,
        "node_gate_watch": True,
        "node_gate_watch_arguments": [*WATCHED, *arguments],
    }
    assert play_role(cluster.fleet, "node_gate", NODE, {}, **given).code == 0


def start(cluster, scene, port, *options):
    """A job beside others; its number once it runs."""
    return cluster.submit(script_of(scene, port), "--partition=shared", *options)


def printed(cluster):
    return cluster.fleet.shell(NODE, "journalctl -u unhang-watch -o cat")


def wait_for(cluster, text):
    try:
        audits.wait_until(lambda: text in printed(cluster), f"the watcher prints: {text}")
    except AssertionError:
        sys.stdout.write(printed(cluster))
        raise


def has_ended(cluster, job):
    return cluster.say("squeue", "-h", "-j", job) == ""


def record(cluster):
    return cluster.fleet.shell(NODE, "cat /var/log/unhang/watched.jsonl 2>/dev/null || true")


def admin_comment(cluster, job):
    shown = cluster.must("scontrol", "show", "job", "-o", job)
    return shown.partition("AdminComment=")[2]


def test_of_jobs_at_once_the_one_that_hangs_is_named_and_one_whose_user_wants_it_is_left_out(
    cluster,
):
    healthy = start(cluster, "healthy", 29513)
    hangs = start(cluster, "never", 29514)
    left_out = start(cluster, "never", 29515, "--comment=unhang:off")
    # whatever else a user writes is no wish
    like = start(cluster, "healthy", 29516, "--comment=unhang:off please")
    wait_for(cluster, f"slurm {hangs}: hung: rank 1 on")
    wait_for(cluster, f"slurm {left_out}: left out: its comment is unhang:off")
    wait_for(cluster, f"slurm {like}: 2 ranks on")
    said = printed(cluster)
    assert f"slurm {healthy}: 2 ranks on" in said and "it sleeps in happen" in said
    for job in (healthy, like, left_out):
        assert f"slurm {job}: no collective" not in said
    assert f"hung: rank 1 on {NODE}" in admin_comment(cluster, hangs)
    assert "AdminComment" not in cluster.must("scontrol", "show", "job", "-o", healthy)
    assert cluster.say("squeue", "-h", "-j", hangs, "-o", "%T") == "RUNNING"
    cluster.must("scancel", hangs, healthy, left_out, like)
    audits.wait_until(
        lambda: f'"job":"slurm {hangs}"' in record(cluster), "what became of it is in the record"
    )
    (row,) = [line for line in record(cluster).splitlines() if f'"slurm {hangs}"' in line]
    assert '"became":"right"' in row  # it was cancelled
    assert f'"job":"slurm {left_out}"' not in record(cluster)
    assert cluster.fleet.shell(NODE, "find /tmp /dev/shm -name 'unhang*'") == ""


def test_a_job_is_ended_where_its_user_and_the_site_both_want_it(cluster):
    job = start(cluster, "never", 29517, "--comment=unhang:terminate")
    wait_for(cluster, f"slurm {job}: in shadow: ")
    assert cluster.say("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    place(cluster, "--act", "--on-hang", "dump")  # the watcher is started anew, and finds it again
    beside = start(cluster, "never", 29518)
    audits.wait_until(lambda: has_ended(cluster, job), "the job is cancelled")
    wait_for(cluster, f"slurm {job}: ended slurm {job}: hung: rank 1 on")
    wait_for(cluster, f"slurm {beside}: hung: rank 1 on")
    assert cluster.say("squeue", "-h", "-j", beside, "-o", "%T") == "RUNNING"
    kept = cluster.fleet.shell(NODE, "stat -c '%a %U' /var/log/unhang; ls /var/log/unhang").split()
    assert kept[:2] == ["700", "root"]
    assert any(name.startswith(f"hang-slurm-{job}-") for name in kept)
    cluster.must("scancel", beside)
    cluster.fleet.shell(NODE, "systemctl stop unhang-watch")
    assert f'"job":"slurm {job}"' in record(cluster)
    assert cluster.fleet.shell(NODE, "pgrep -f '[a]ll_samples' || true") == ""
    assert (
        cluster.fleet.shell(NODE, "systemctl is-failed unhang-watch || true").strip() == "inactive"
    )
