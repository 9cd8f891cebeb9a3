"""Booted nodes in a real Slurm, read by srun, Ansible, clush and files: the same documents,
refusals and report."""

from __future__ import annotations

from pathlib import Path

import audits
import pytest
import slurm_nodes
from four_nodes import NAMES
from test_ways_of_the_audit import collect_documents, report_of

WORKING, DRAINED, OFF = NAMES[:2], NAMES[2], NAMES[3]
absent = slurm_nodes.missing()
pytestmark = [
    pytest.mark.skipif(bool(absent), reason=f"apt has no {', '.join(absent)} here"),
    pytest.mark.timeout(1500),
]


@pytest.fixture(scope="module")
def cluster(fake_library, tmp_path_factory):
    """Four booted nodes in Slurm."""
    with slurm_nodes.cluster_of(NAMES, fake_library, tmp_path_factory.mktemp("cluster")) as found:
        yield found


def audit(cluster, work, way, *arguments):
    """A finished `unhang audit --via WAY` of the four nodes; its folder is the run's own. The
    inventory has another order than Slurm."""
    path = work / "hosts.json"
    path.write_text(
        audits.inventory_of(cluster.bed, {"training": NAMES[::-1]}, {"unhang_node_timeout_s": 60})
    )
    runs = work / f"runs-{way}"
    command = [
        str(audits.PROGRAMS / "unhang"),
        "audit",
        "--via",
        way,
        "--inventory",
        str(path),
        "--out",
        str(runs),
        *arguments,
    ]
    folder = runs / "latest"
    if "--continue" in arguments:
        folder = Path(arguments[arguments.index("--continue") + 1])
    return audits.run(cluster.bed, command, {**cluster.environment}, folder)


def own_limits(node):
    """Takes the limits of the collector's own process out of a document: in a step they are
    slurmd's, in a session of ssh sshd's. Gives the scope's names."""
    return sorted(node["facts"]["sections"]["limits"]["scopes"].pop(0))


def test_srun_gives_what_the_other_ways_give_and_they_read_the_drained_node(cluster, tmp_path):
    with cluster.lent(tmp_path) as fleet:
        cluster.must("scontrol", "update", f"nodename={DRAINED}", "state=drain", "reason=a fan")
        fleet.undo.callback(
            cluster.say, "scontrol", "update", f"nodename={DRAINED}", "state=resume"
        )
        fleet.power_off(OFF)
        documents = str(collect_documents(fleet, (*WORKING, DRAINED), tmp_path / "documents"))
        slurm, ansible, clush, files = (
            audit(cluster, tmp_path, *way)
            for way in (("slurm",), ("ansible",), ("clush",), ("files", documents))
        )
        assert {slurm.node(name)["status"] for name in (DRAINED, OFF)} == {"unreachable"}
        assert slurm.node(DRAINED)["message"] == "not read: Slurm has it drain+idle (a fan)"
        assert "not read: srun could not start there: " in slurm.node(OFF)["message"]
        slurm = audit(cluster, tmp_path, "clush", "--continue", str(slurm.folder))
        for other in (ansible, clush, files):
            for name in (*WORKING, DRAINED):
                mine, theirs = slurm.node(name), other.node(name)
                assert {key: mine[key] for key in mine if key != "facts"} == {
                    key: theirs[key] for key in theirs if key != "facts"
                }
                assert own_limits(theirs) == own_limits(mine)
                assert (
                    list(audits.differences(mine["facts"]["sections"], theirs["facts"]["sections"]))
                    == []
                )
            assert report_of(slurm, (*WORKING, DRAINED)) == report_of(other, (*WORKING, DRAINED))
            assert slurm.code == other.code
        assert report_of(slurm, NAMES) == report_of(ansible, NAMES) == report_of(clush, NAMES)
        left = "ls /tmp | grep -c unhang; true"
        assert [fleet.shell(name, left).strip() for name in WORKING] == ["0", "0"]
