"""The quick check as a real slurmd calls it, installed by the role node_gate: Prolog, Epilog and
HealthCheckProgram, on nodes that fail, hang and break."""

from __future__ import annotations

import json
import subprocess
import sys

import audits
import pytest
import slurm_here
from fakes.role_play import play_here

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)
# Stands for the nodes' Python: the nodes share this machine, so the state of each node is in a file
# with its name.
PYTHON = """#!/bin/sh
case $(cat {folder}/$SLURMD_NODENAME) in
good) exec {python} "$@" --facts {folder}/good.json ;;
bad) exec {python} "$@" --facts {folder}/bad.json ;;
hangs) exec sleep 3000 ;;
breaks) exec {python} -c 'raise SystemError' ;;
esac
"""
# As Prolog: the gate's own, with as many descriptors as a file with the node's name says.
LIMITED = """#!/bin/bash
ulimit -n "$(cat {folder}/$SLURMD_NODENAME.descriptors)"
exec {folder}/prolog.sh
"""
TIMEOUT_S = 30  # of the check on a node that hangs; the others take a second


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"))


@pytest.fixture(scope="module")
def placed(slurm, tmp_path_factory):
    """Folder with the scripts as the role installs them, and beside them the state of each node."""
    work = tmp_path_factory.mktemp("gate")
    subprocess.run(
        [sys.executable, str(audits.PROJECT / "tools/collector/quick.py"), str(work / "quick.pyz")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    folder, root = work / "opt", work / "root"
    for part in ("etc", "bin"):
        (root / part).mkdir(parents=True)
    (root / "bin/bash").symlink_to("/bin/bash")
    given = {
        "node_gate_rootfs": str(root),
        "node_gate_record": False,
        "node_gate_quick": True,
        "node_gate_quick_file": str(work / "quick.pyz"),
    }
    given |= {
        "node_gate_folder": str(folder),
        "node_gate_python": str(work / "python"),
        "node_gate_quick_timeout_s": TIMEOUT_S,
    }
    given |= {"node_gate_slurm_conf": str(slurm.folder / "slurm.conf")}
    assert (
        play_here(
            work,
            "node_gate",
            {**given, "node_gate_quick_for": ["slurm-prolog", "slurm-healthcheck"]},
        ).code
        == 0
    )
    folder.symlink_to(f"{root}{folder}")
    facts = json.loads((audits.PROJECT / "tests/fixtures/h200x8/facts.json").read_text())
    (folder / "good.json").write_text(json.dumps(facts))
    facts["sections"]["gpus"]["pci_count"] = 9
    (folder / "bad.json").write_text(json.dumps(facts))
    (work / "python").write_text(PYTHON.format(folder=folder, python=sys.executable))
    (work / "python").chmod(0o755)
    return folder


@pytest.fixture
def cluster(slurm, placed):
    """cluster(line of slurm.conf, node=state, ...): the daemons read both. Everything is as before
    when the test ends."""
    before = (slurm.folder / "slurm.conf").read_text()

    def configure(line, **states):
        for node in slurm_here.NODES:
            (placed / node).write_text(states.get(node, "good"))
        (slurm.folder / "slurm.conf").write_text(f"{before}{line}\n")
        slurm.run("scontrol", "reconfigure")
        return slurm

    yield configure
    configure("")
    slurm.run("scancel", "--user=root")
    for node in slurm_here.NODES:
        if "DRAIN" in slurm.state(node)[0]:
            slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    audits.wait_until(
        lambda: (
            slurm.run("squeue", "-h") == ""
            and all(slurm.state(node)[0] == "IDLE" for node in slurm_here.NODES)
        ),
        "every node is idle",
    )


def submit(slurm, node):
    """Id of a job for this node."""
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/sh\nexec sleep 3000\n")
    return slurm.run(
        "sbatch",
        "--parsable",
        "--requeue",
        f"--nodelist={node}",
        "--chdir=/tmp",
        "--output=/dev/null",
        str(script),
    )


def job_state(slurm, job):
    return slurm.run("squeue", "-h", "-j", job, "-o", "%T")


def test_a_prolog_drains_the_node_that_fails_and_no_other(cluster, placed):
    slurm = cluster(f"Prolog={placed}/prolog.sh", gpu002="bad", gpu003="hangs", gpu004="breaks")
    jobs = {node: submit(slurm, node) for node in ("gpu001", "gpu002", "gpu003", "gpu004")}
    audits.wait_until(lambda: "DRAIN" in slurm.state("gpu002")[0], "the node that fails is drained")
    assert slurm.state("gpu002")[1].startswith("Prolog error")
    for node in ("gpu001", "gpu003", "gpu004"):
        audits.wait_until(
            lambda node=node: job_state(slurm, jobs[node]) == "RUNNING", f"the job on {node} runs"
        )
    audits.wait_until(
        lambda: job_state(slurm, jobs["gpu002"]) == "PENDING",
        "the job of the drained node is queued again",
    )
    assert [node for node in slurm_here.NODES if "DRAIN" in slurm.state(node)[0]] == ["gpu002"]


def test_few_descriptors_drain_no_node_and_none_at_all_does(cluster, placed):
    """The second node cannot start any program, so that Slurm takes its Prolog for one that
    failed."""
    (placed / "limited.sh").write_text(LIMITED.format(folder=placed))
    (placed / "limited.sh").chmod(0o755)
    most = {"gpu001": 4, "gpu002": 3, "gpu003": 8, "gpu004": 11}
    for node, count in most.items():
        (placed / f"{node}.descriptors").write_text(str(count))
    slurm = cluster(f"Prolog={placed}/limited.sh")
    jobs = {node: submit(slurm, node) for node in most}
    audits.wait_until(
        lambda: "DRAIN" in slurm.state("gpu002")[0], "the node without descriptors is drained"
    )
    for node in ("gpu001", "gpu003", "gpu004"):
        audits.wait_until(
            lambda node=node: job_state(slurm, jobs[node]) == "RUNNING", f"the job on {node} runs"
        )
    assert [node for node in slurm_here.NODES if "DRAIN" in slurm.state(node)[0]] == ["gpu002"]


def test_the_limits_of_a_user_do_not_reach_the_prolog(cluster, placed):
    (placed / "limit.sh").write_text(f"#!/bin/bash\nulimit -n > {placed}/prolog.limit\n")
    (placed / "limit.sh").chmod(0o755)
    slurm = cluster(f"Prolog={placed}/limit.sh")
    job = slurm.folder / "limit-job.sh"
    job.write_text(f"#!/bin/sh\nulimit -n > {placed}/job.limit\n")
    limited = (
        "prlimit",
        "--nofile=64:64",
        "sbatch",
        "--wait",
        "--propagate=NOFILE",
        "--nodelist=gpu001",
        "--chdir=/tmp",
        "--output=/dev/null",
    )
    slurm.run(*limited, str(job))
    assert (placed / "job.limit").read_text() == "64\n"
    assert int((placed / "prolog.limit").read_text()) > 64


def test_an_epilog_drains_the_node_after_the_job_that_broke_it(cluster, placed):
    slurm = cluster(f"Epilog={placed}/prolog.sh")
    jobs = {node: submit(slurm, node) for node in ("gpu001", "gpu002", "gpu003")}
    for node, job in jobs.items():
        audits.wait_until(
            lambda job=job: job_state(slurm, job) == "RUNNING", f"the job on {node} runs"
        )
    (placed / "gpu002").write_text("bad")
    (placed / "gpu003").write_text("hangs")
    slurm.run("scancel", *jobs.values())
    audits.wait_until(lambda: "DRAIN" in slurm.state("gpu002")[0], "the node that fails is drained")
    assert slurm.state("gpu002")[1].startswith("Epilog error")
    for node in ("gpu001", "gpu003"):
        audits.wait_until(lambda node=node: slurm.state(node)[0] == "IDLE", f"{node} is idle")


def test_a_health_check_drains_with_the_reason_and_a_slurmctld_that_is_away_costs_nobody_the_node(
    cluster, placed
):
    slurm = cluster(
        f"HealthCheckProgram={placed}/healthcheck.sh\nHealthCheckInterval=2",
        gpu002="bad",
        gpu003="hangs",
        gpu004="breaks",
    )
    audits.wait_until(lambda: "DRAIN" in slurm.state("gpu002")[0], "the node that fails is drained")
    assert slurm.state("gpu002")[1].startswith("unhang: gpu-fell-off-the-bus")
    assert [node for node in slurm_here.NODES if "DRAIN" in slurm.state(node)[0]] == ["gpu002"]
    cluster("")
    running = ["pgrep", "-f", f"^/bin/bash -p {placed}/healthcheck.sh"]
    audits.wait_until(
        lambda: slurm.bed.run(running).returncode == 1,
        "no check that slurmd has started can drain the node again",
    )
    slurm.run("scontrol", "update", "nodename=gpu002", "state=resume")
    (placed / "gpu002").write_text("bad")
    slurm.stop_controller()
    try:
        done = slurm.bed.run(
            ["env", "SLURMD_NODENAME=gpu002", str(placed / "healthcheck.sh")], env=slurm.environment
        )
    finally:
        slurm.start_controller()
    assert (done.returncode, "scontrol: " in done.stderr) == (0, True), done
    audits.wait_until(lambda: slurm.state("gpu002")[0] == "IDLE", "the node is still in service")
